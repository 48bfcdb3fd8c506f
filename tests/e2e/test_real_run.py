"""The first steps of a new user in the dashboard, with a real agent, SGLang on the CPU and a real trainer."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from oolong.client import Client
from tests.support.browser import PointsOfSockets
from tests.support.control_plane import ROOT, ControlPlane

pytestmark = [pytest.mark.browser, pytest.mark.engine, pytest.mark.slow]

BOOT_MILLISECONDS = 600_000  # engine and trainer, on busy cores


def write_rows(file: Path, *, invalid_row: int | None = None) -> Path:
    """Sums of two digits, with column names that are not mapped automatically. `invalid_row` lacks its answer."""
    rows = []
    for n in range(96):
        row = {
            "task": f"a{n % 9} b{n % 7} n{n}",
            "result": str(n % 9 + n % 7),
            "part": "train" if n < 80 else "eval",
        }
        if n + 1 == invalid_row:
            del row["result"]
        rows.append(json.dumps(row) + "\n")
    file.write_text("".join(rows))
    return file


def choose(page: Page, selector: str, option: str) -> None:
    page.locator(selector).click()
    page.get_by_role("option", name=option, exact=True).first.click()


def fill_mapping(page: Page) -> None:
    choose(page, "[data-testid=prompt_column]", "task")
    choose(page, "[data-testid=answer_column]", "result")
    choose(page, "[data-testid=split_column]", "part")
    page.get_by_label("Prompt template").fill("Add up: {task}")


def api(plane: ControlPlane, token: str, path: str) -> Any:
    with plane.client(token) as client:
        reply = client.get(path)
        reply.raise_for_status()
        return reply.json()


def points_of(plane: ControlPlane, token: str, run_id: str, name: str) -> dict[int, float]:
    """Points of a trainer metric from the API: {train step: value}."""
    reply = api(plane, token, f"/runs/{run_id}/metrics?names={name}&axis=step&max_points=20000")
    (series,) = [one for one in reply["series"] if one["source"].startswith("trainer")]
    return dict(zip(series["x"], series["value"], strict=True))


def wait_for_points(page: Page, least: int, *, milliseconds: int) -> None:
    script = "least => Number(document.querySelector('[data-chart=reward]')?.dataset.points ?? 0) >= least"
    page.wait_for_function(script, arg=least, timeout=milliseconds)


@pytest.mark.timeout(1800)
def test_upload_start_watch_and_stop(
    page: Page, plane: ControlPlane, log_in: Callable[[], None], node_python: Path, tmp_path: Path
) -> None:
    token = plane.token()
    model = tmp_path / "tiny"
    command = [str(node_python), "-m", "trainers.models.tiny", "--out", str(model)]
    environment = {
        "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}",
        "PATH": "/usr/bin:/bin",
        "OMP_NUM_THREADS": "1",
    }
    subprocess.run(command, check=True, timeout=300, env=environment, cwd=ROOT)
    with Client(plane.url, token) as oolong:
        oolong.models.upload(model, name="tiny")
    plane.start_agent(node_python=node_python, slots=2)
    sockets = PointsOfSockets(page)
    log_in()

    # A file with an invalid row: the error names the row and nothing is stored.
    page.goto("/datasets/new")
    page.get_by_test_id("file").set_input_files(write_rows(tmp_path / "invalid.jsonl", invalid_row=17))
    fill_mapping(page)
    page.get_by_test_id("store").click()
    errors = page.get_by_test_id("row-errors").filter(has_text="Nothing was stored")
    expect(errors).to_be_visible()
    expect(errors.get_by_role("row").nth(1)).to_contain_text("line 17: ")
    assert all(dataset["versions"] == [] for dataset in api(plane, token, "/datasets")["data"])

    # The fixed file: a rendered preview, then a version.
    page.goto("/datasets/new")
    page.get_by_test_id("file").set_input_files(write_rows(tmp_path / "sums.jsonl"))
    fill_mapping(page)
    expect(page.get_by_test_id("rendered")).to_contain_text("Add up: a0 b0 n0")
    page.get_by_test_id("dataset-name").fill("sums")
    page.get_by_test_id("store").click()
    expect(page.get_by_test_id("versions")).to_contain_text("sums@1")
    expect(page.get_by_test_id("versions")).to_contain_text("train 80")

    # The form: an invalid value shows its error at the field; then the run starts.
    page.goto("/runs/new?preset=letter-sum-rl&dataset=sums@1")
    page.locator("[data-field='/name']").fill("from the browser")
    choose(page, "[data-field='/model/base_model']", "tiny")
    for pointer, value in {
        "/rollout/group_size": "1",
        "/rollout/max_concurrent_groups": "12",
        "/rollout/max_new_tokens": "12",
        "/trainer/total_train_steps": "1000000",  # longer than the slowest browser watches
        "/trainer/groups_per_step": "4",
        "/trainer/minibatches": "2",
    }.items():
        page.locator(f"[data-field='{pointer}']").fill(value)
    expect(page.get_by_test_id("errors")).to_contain_text("take group_size >= 2")
    page.locator("[data-field='/rollout/group_size']").fill("4")
    page.locator("[data-field='/evaluation/prompts']").fill("8")
    expect(page.get_by_test_id("validation")).to_have_text("Valid")
    page.get_by_text("YAML", exact=True).click()
    text = page.get_by_test_id("spec-text").input_value()
    assert "total_train_steps: 1000000" in text and "version: sums@1" in text
    page.get_by_test_id("start").click()
    page.wait_for_url("**/runs/run_*")
    run_id = page.url.rpartition("/")[2]

    # Live: new frames and points arrive.
    reward = page.locator("[data-chart=reward]")
    wait_for_points(page, 3, milliseconds=BOOT_MILLISECONDS)
    sockets.topic = f"run:{run_id}"
    seen = sockets.count()
    shown = int(reward.get_attribute("data-points") or 0)
    wait_for_points(page, shown + 3, milliseconds=120_000)
    assert sockets.count() > seen
    sockets.check_order()
    expect(page.locator("header [data-status=RUNNING]").first).to_be_visible()
    expect(page.get_by_test_id("connection")).to_have_text("Live")
    staleness = page.locator("[data-chart=staleness] [data-line^='staleness/max']")
    expect(staleness).not_to_have_attribute("data-last", "")

    # Change the run: the page shows the new bound, and the controller reports that it applies it.
    page.get_by_test_id("change").click()
    page.get_by_label("Max staleness").fill("2")
    page.get_by_test_id("confirm-change").click()
    expect(page.locator("[data-metric='Mean staleness']")).to_contain_text("bound η = 2")
    page.get_by_role("tab", name="Events").click()
    expect(page.get_by_text("max staleness is 2 from version")).to_be_visible()
    page.get_by_role("tab", name="Live").click()

    # Stop the run: the page and the API have the same points.
    page.get_by_test_id("stop").click()
    page.get_by_test_id("confirm-stop").click()
    expect(page.locator("header [data-status=STOPPED]")).to_be_visible(timeout=240_000)
    stored = points_of(plane, token, run_id, "reward/mean")
    names = "eval/greedy,eval/sampled"
    evaluated = api(plane, token, f"/runs/{run_id}/metrics?names={names}&axis=step&max_points=20000")[
        "series"
    ]
    drawn = len(stored) + sum(len(one["x"]) for one in evaluated)
    expect(reward).to_have_attribute("data-points", str(drawn))
    line = reward.locator("[data-line^='reward/mean']")
    assert float(line.get_attribute("data-last") or "nan") == stored[max(stored)]
    assert api(plane, token, f"/runs/{run_id}")["reason"] == "stopped_by_user"
