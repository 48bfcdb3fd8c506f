"""Sweeps: created from a run, paused, resumed and canceled with their effects said, and read with the keyboard."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from oolong.client import Client
from tests.support import model_files
from tests.support.browser import accessibility_faults
from tests.support.control_plane import ControlPlane

pytestmark = [pytest.mark.browser, pytest.mark.slow]

# A sweep whose four trials have ended with an objective each, in one transaction: no tick sees it in between.
FINISHED = """
from django.db import transaction
from control_plane.core.infra import clock
from control_plane.accounts.selectors import caller_in
from control_plane.experiments import sweeps
from control_plane.experiments.models import Sweep
from control_plane.runs.models import Run
runs = list(Run.objects.filter(name__startswith="trial").order_by("name"))
plan = {"parameters": [{"pointer": "/trainer/learning_rate", "values": [1e-6, 1e-5]}, {"pointer": "/staleness/max", "values": [0, 4]}]}
with transaction.atomic():
    caller = caller_in(runs[0].created_by, runs[0].project)
    sweep = sweeps.create_sweep(caller, name="done", spec=SPEC, plan=plan, max_parallel=2, now=clock.now())
    for trial, run, value in zip(sweep.trials.order_by("number"), runs, (0.2, 0.8, 0.5, 0.4)):
        Run.objects.filter(pk=run.pk).update(status="SUCCEEDED", train_step=40, metrics={"reward/mean": value})
        trial.run = run
        trial.save()
    Sweep.objects.filter(pk=sweep.pk).update(status="FINISHED", ended_at=clock.now())
print(sweep.pk)
"""  # noqa: E501


@pytest.fixture(scope="module")
def project(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The ids of a run that waits and of a finished sweep. There is no node, so nothing runs."""
    folder = tmp_path_factory.mktemp("sweeps")
    rows = "".join(json.dumps({"q": f"What is {n}+{n}?", "a": str(2 * n)}) + "\n" for n in range(40))
    (folder / "sums.jsonl").write_text(rows)
    spec = {
        "model": {"base_model": "tiny"}, "dataset": {"version": "sums@1"},
        "trainer": {"total_train_steps": 40},
    }  # fmt: skip
    token = plane.token()
    with Client(plane.url, token) as oolong:
        oolong.datasets.upload(
            folder / "sums.jsonl", name="sums", mapping={"prompt_column": "q", "answer_column": "a"}
        )
        oolong.models.upload(model_files.write(folder / "model"), name="tiny")
    with plane.client(token) as api:
        runs = [
            api.post("/runs", json={"spec": {**spec, "name": name}}).json()["id"]
            for name in ("rates", "trial 1", "trial 2", "trial 3", "trial 4")
        ]
    code = FINISHED.replace("SPEC", repr({**spec, "name": "done"}))
    return {"run": runs[0], "sweep": plane.manage("shell", "-c", code).splitlines()[-1]}


def test_a_sweep_says_its_cost_before_it_starts_and_its_effects_before_it_changes(
    page: Page, log_in: Callable[[], None], project: dict[str, str]
) -> None:
    log_in()
    page.goto(f"/sweeps/new?run={project['run']}")
    page.get_by_test_id("sweep-name").fill("two rates")
    field = page.get_by_role("combobox", name="Field 1")
    field.fill("learning_rate")
    page.get_by_role("option", name="/trainer/learning_rate", exact=True).click()
    page.get_by_role("textbox", name="Values").fill("1e-6, 1e-5")
    cost = page.get_by_test_id("sweep-cost")
    expect(cost).to_contain_text(re.compile(r"^2 trials, 2 at a time, with \d slots? each: at most \d slots"))
    page.get_by_role("button", name="Add a parameter").click()
    page.get_by_test_id("start-sweep").click()
    expect(page.get_by_text("Choose a field of the spec.")).to_be_visible()
    page.get_by_role("button", name="Remove field 2").click()
    page.get_by_role("button", name="Start 2 trials").click()
    expect(page.get_by_role("heading", level=1, name="two rates")).to_be_visible()
    expect(page.get_by_test_id("trials").get_by_role("row")).to_have_count(3)

    page.get_by_test_id("pause-sweep").click()
    expect(page.get_by_role("dialog")).to_contain_text("No new runs start until you resume the sweep.")
    page.get_by_test_id("confirm-sweep").click()
    expect(page.locator("[data-status=PAUSED]").first).to_be_visible()
    page.get_by_test_id("resume-sweep").click()
    page.get_by_test_id("confirm-sweep").click()
    expect(page.locator("[data-status=RUNNING]").first).to_be_visible()
    page.get_by_test_id("cancel-sweep").click()
    expect(page.get_by_role("dialog")).to_contain_text("A canceled sweep cannot be resumed.")
    expect(page.get_by_role("button", name="Keep sweep")).to_be_focused()
    page.get_by_test_id("confirm-sweep").click()
    expect(page.locator("[data-status=CANCELLED]").first).to_be_visible()
    expect(page.get_by_test_id("cancel-sweep")).to_have_count(0)


def test_a_finished_sweep_shows_its_best_trial_in_every_view(
    page: Page, log_in: Callable[[], None], project: dict[str, str]
) -> None:
    log_in()
    page.keyboard.press("g")
    page.keyboard.press("s")
    row = page.get_by_test_id("sweeps").get_by_role("row").filter(has_text="done")
    expect(row).to_contain_text("reward/mean 0.800")
    row.get_by_role("link", name="done").click()
    expect(page.get_by_test_id("best-curve")).to_have_attribute("data-best", "0.8")
    trials = page.get_by_test_id("trials").locator("tbody tr")
    page.get_by_role("button", name="reward/mean").click()
    expect(page).to_have_url(re.compile("sort=-objective"))
    expect(trials.first).to_contain_text("0.800")
    expect(trials.last).to_contain_text("0.200")

    chart = page.get_by_test_id("coordinates")
    expect(chart.get_by_role("option")).to_have_count(4)
    chart.focus()
    readout = page.get_by_test_id("readout")
    expect(readout).to_have_text("Trial 2: learning_rate 1.0e-6, staleness.max 4; reward/mean 0.800")
    page.keyboard.press("ArrowDown")
    expect(readout).to_contain_text("Trial 3")
    expect(page.locator("[data-trial='3'][style]")).to_be_visible()  # its row is marked too
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1, name="trial 3")).to_be_visible()


def test_no_page_of_sweeps_has_accessibility_faults(
    page: Page, log_in: Callable[[], None], project: dict[str, str]
) -> None:
    log_in()
    page.emulate_media(reduced_motion="reduce")
    faults: list[str] = []
    for path in (f"/sweeps/{project['sweep']}", f"/sweeps/new?sweep={project['sweep']}"):
        page.goto(path)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.get_by_text(re.compile("^Loading"))).to_have_count(0)
        for scheme in ("light", "dark"):
            page.evaluate("scheme => document.documentElement.dataset.mantineColorScheme = scheme", scheme)
            faults += [f"{scheme} {path}: {fault}" for fault in accessibility_faults(page)]
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"/sweeps/{project['sweep']}")
    trials = page.get_by_test_id("trials")
    expect(trials.locator("tbody tr")).to_have_count(4)
    assert trials.evaluate("table => table.parentElement.scrollWidth") <= 390, "on a phone a trial is a card"
    faults += accessibility_faults(page)
    assert faults == [], "\n".join(faults)
