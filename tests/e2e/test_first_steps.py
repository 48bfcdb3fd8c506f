"""The home page of an empty project leads to its first run. The tests build on each other."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, Request, expect

from oolong.client import Client
from tests.support import model_files
from tests.support.control_plane import ControlPlane

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_the_sample_dataset_is_made_with_one_click(page: Page, log_in: Callable[[], None]) -> None:
    log_in()
    page.goto("/")
    steps = page.get_by_test_id("first-steps")
    expect(steps).to_contain_text("The demo run needs the sample dataset.")
    expect(steps.locator("[data-done=true]")).to_have_count(0)
    expect(page.get_by_test_id("cli")).to_contain_text("# of team / default, from the page Account")
    page.get_by_test_id("sample-dataset").click()
    expect(steps.locator("[data-step='A dataset'][data-done=true]")).to_contain_text("letter-sum")
    expect(page.get_by_test_id("sample-dataset")).to_have_count(0)
    expect(steps).to_contain_text("The demo run needs a base model.")
    page.goto("/datasets")
    page.get_by_role("link", name="letter-sum").click()
    expect(page.locator("#content")).to_contain_text("24,768")  # rows


def test_with_a_base_model_the_demo_run_starts_with_one_click(
    page: Page, plane: ControlPlane, log_in: Callable[[], None], tmp_path: Path
) -> None:
    log_in()
    page.goto("/")
    with Client(plane.url, plane.token()) as oolong:
        oolong.models.upload(model_files.write(tmp_path / "model"), name="tiny")
    expect(page.locator("[data-step='A base model'][data-done=true]")).to_contain_text("tiny")
    page.get_by_test_id("demo-run").click()
    expect(page.get_by_role("heading", level=1, name="demo")).to_be_visible()
    with plane.client(plane.token()) as client:
        (run,) = client.get("/runs").json()["data"]
    assert (run["kind"], run["dataset"]["ref"], run["model"]["name"]) == ("sft", "letter-sum@1", "tiny")
    page.goto("/")
    expect(page.get_by_test_id("attention")).to_contain_text("demo")  # it waits: the pool has no slots
    expect(page.get_by_test_id("first-steps")).to_have_count(0)


def test_an_upload_goes_on_after_a_reload_with_the_parts_that_are_missing(
    page: Page, log_in: Callable[[], None], tmp_path: Path
) -> None:
    rows = [{"question": f"{n} " * 2500, "answer": str(n)} for n in range(1000)]
    file = tmp_path / "long.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert file.stat().st_size > 8 * 1024**2, "a second part"
    log_in()
    page.goto("/datasets/new")
    page.route(re.compile(r"/parts/1$"), lambda route: None)  # the second part never arrives
    with page.expect_response(re.compile(r"/parts/0$")):
        page.get_by_test_id("file").set_input_files(file)
    page.reload()
    expect(page.get_by_test_id("resume-upload")).to_contain_text("long.jsonl is not complete: 8.4 MB of")
    page.unroute_all()
    sent: list[str] = []

    def note(request: Request) -> None:
        if request.method == "PUT":
            sent.append(request.url.rpartition("/")[2])

    page.on("request", note)
    with page.expect_response(re.compile(r"/complete$")) as completed:
        page.get_by_test_id("file").set_input_files(file)
    assert sent == ["1"]
    assert completed.value.json()["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    page.get_by_test_id("store").click()
    expect(page.get_by_role("heading", level=1, name="long")).to_be_visible()
    expect(page.locator("#content")).to_contain_text("1,000")  # rows
