"""The page that starts runs: what a run begins with, form and YAML, the rail with errors, drafts and clones."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.support.browser import accessibility_faults
from tests.support.control_plane import ControlPlane
from tests.tools.synthetic_dashboard import submit_runs

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def waiting_run(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A dataset, a base model and three runs that wait, because no node has joined."""
    return submit_runs(plane, tmp_path_factory.mktemp("models"))


def field(page: Page, pointer: str) -> Locator:
    return page.locator(f"[data-field='{pointer}']")


def test_an_error_is_at_its_field_and_in_the_rail_and_a_valid_spec_starts(
    page: Page, log_in: Callable[[], None], waiting_run: str
) -> None:
    log_in()
    page.goto("/runs/new?start=data&preset=grpo")
    start, status = page.get_by_test_id("start"), page.get_by_test_id("validation")
    expect(status).to_have_text("Valid")
    expect(page.get_by_test_id("plan")).to_contain_text("2 slots")
    expect(page.get_by_test_id("plan")).to_contain_text("no run of this shape has succeeded")
    field(page, "/name").fill("from the page")
    field(page, "/rollout/group_size").fill("1")
    error = page.get_by_test_id("errors").locator("[data-pointer='/rollout/group_size']")
    expect(error).to_contain_text("group_size >= 2")
    expect(field(page, "/rollout/group_size")).to_have_attribute("aria-invalid", "true")
    expect(start).to_have_attribute("aria-disabled", "true")
    expect(page.get_by_text("1 error to fix first.")).to_be_visible()
    start.click(force=True)  # it is disabled, and leads to the error
    expect(field(page, "/rollout/group_size")).to_be_focused()
    assert page.url.partition("?")[0].endswith("/runs/new")
    page.keyboard.press("Control+a")
    page.keyboard.type("4")
    expect(status).to_have_text("Valid")
    start.click()
    page.wait_for_url("**/runs/run_*")
    expect(page.get_by_role("heading", level=1)).to_have_text("from the page")


def test_form_and_yaml_show_one_spec_and_errors_stand_at_their_line(
    page: Page, log_in: Callable[[], None], waiting_run: str
) -> None:
    log_in()
    page.goto("/runs/new?start=data&preset=grpo")
    field(page, "/name").fill("both ways")
    page.get_by_text("YAML", exact=True).click()
    text = page.get_by_test_id("spec-text")
    expect(text).to_have_value(re.compile("^kind: rl\nname: both ways\n"))
    written = text.input_value().replace("name: both ways", "name: both ways # a comment")

    text.fill(written.replace("kind: rl", "kind: rl\nunheard_of: 1", 1))
    expect(page.locator("[data-error-line='2']")).to_contain_text("unknown key 'unheard_of'")
    expect(page.get_by_test_id("errors")).to_contain_text("Line 2: Unheard of")
    text.fill(written + "rollout: [1, 2\n")
    last = written.count("\n") + 1
    expect(page.get_by_test_id("validation")).to_have_text("Syntax error")
    expect(page.locator("[data-error='true']").first).to_be_visible()
    page.get_by_text("Form", exact=True).click()
    expect(page.get_by_text("The YAML has a syntax error on line")).to_be_visible()
    page.get_by_test_id("start").click(force=True)
    expect(text).to_be_focused()
    assert page.evaluate("document.activeElement.selectionStart") > 0 and last > 10

    text.fill(written)
    page.get_by_text("Form", exact=True).click()
    field(page, "/staleness/max").fill("2")
    page.get_by_label("Find a field").fill("top_p")
    expect(field(page, "/rollout/top_p")).to_be_visible()
    expect(field(page, "/name")).to_have_count(0)
    page.reload()  # the view is in the address, the text is not
    page.goto("/runs/new?start=data&preset=grpo&view=yaml")
    expect(text).to_have_value(re.compile("kind: rl"))


def test_a_comment_survives_a_change_in_the_form(
    page: Page, log_in: Callable[[], None], waiting_run: str
) -> None:
    log_in()
    page.goto("/runs/new?start=data&preset=grpo&view=yaml")
    text = page.get_by_test_id("spec-text")
    text.fill(text.input_value().replace("kind: rl", "kind: rl # why", 1))
    page.get_by_text("Form", exact=True).click()
    field(page, "/staleness/max").fill("3")
    page.get_by_text("YAML", exact=True).click()
    expect(text).to_have_value(re.compile(r"^kind: rl # why\n[\s\S]*staleness:\n  max: 3\n"))


def test_a_search_finds_an_algorithm_and_the_choice_can_be_undone(
    page: Page, log_in: Callable[[], None], waiting_run: str
) -> None:
    log_in()
    page.goto("/runs/new")
    expect(page.get_by_role("radio", name=re.compile("^Demo"))).to_be_checked()
    page.get_by_role("radio", name=re.compile("^Demo")).focus()
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_role("radio", name=re.compile("^Your data"))).to_be_checked()
    expect(page).to_have_url(re.compile("start=data"))
    preset = page.get_by_test_id("preset")
    field(page, "/rollout/group_size").fill("6")
    preset.click()
    preset.fill("adapters frozen")
    page.get_by_role("option", name=re.compile("^GRPO with LoRA")).click()
    expect(field(page, "/rollout/group_size")).not_to_have_value("6")
    expect(field(page, "/model/base_model")).to_have_value("letter-sum-tiny")
    page.get_by_role("button", name="Undo").click()
    expect(field(page, "/rollout/group_size")).to_have_value("6")
    expect(preset).to_have_value("GRPO")


def test_the_copied_texts_have_the_address_and_the_spec_of_the_page(
    page: Page, log_in: Callable[[], None], plane: ControlPlane, waiting_run: str
) -> None:
    log_in()
    page.goto("/runs/new?start=data&preset=grpo")
    field(page, "/name").fill("elsewhere")
    page.get_by_test_id("copy-as").click()
    text = page.get_by_test_id("copy-text")
    expect(text).to_contain_text(f"export OOLONG_URL={plane.url}")
    expect(text).to_contain_text("name: elsewhere")
    page.get_by_text("curl", exact=True).click()
    expect(text).to_contain_text('"name": "elsewhere"')
    body = text.inner_text().split("<<'SPEC'\n")[1].split("\nSPEC")[0]
    with plane.client(plane.token()) as api:
        assert api.post("/runs", json=json.loads(body)).status_code == 201
    assert accessibility_faults(page) == []


def test_a_draft_is_saved_changed_and_submitted(
    page: Page, log_in: Callable[[], None], plane: ControlPlane, waiting_run: str
) -> None:
    log_in()
    page.goto("/runs/new?start=data&preset=grpo")
    field(page, "/name").fill("for later")
    page.get_by_test_id("save-draft").click()
    page.wait_for_url("**/runs/new?draft=run_*")
    expect(page.get_by_role("heading", level=1)).to_have_text("Edit a draft")
    field(page, "/trainer/total_train_steps").fill("7")
    page.get_by_test_id("save-draft").click()
    expect(page.get_by_text("Draft for later is saved").last).to_be_visible()
    draft = page.url.partition("draft=")[2]
    with plane.client(plane.token()) as api:
        stored: Any = api.get(f"/runs/{draft}").json()
    assert stored["status"] == "DRAFT" and stored["spec"]["trainer"]["total_train_steps"] == 7
    page.reload()
    expect(field(page, "/trainer/total_train_steps")).to_have_value("7")
    expect(page.get_by_test_id("validation")).to_have_text("Valid")
    page.get_by_test_id("start").click()
    page.wait_for_url(f"**/runs/{draft}")


def test_another_run_like_one_begins_with_its_spec_as_it_was_submitted(
    page: Page, log_in: Callable[[], None], plane: ControlPlane, waiting_run: str
) -> None:
    log_in()
    page.goto(f"/runs/new?from={waiting_run}&view=yaml")
    text = page.get_by_test_id("spec-text")
    expect(text).to_have_value(re.compile("^kind: rl\nname: synthetic, long-again\n"))
    assert "version: letter-sum@latest" in text.input_value() and text.input_value().count("\n") < 20
    page.get_by_text("Form", exact=True).click()
    field(page, "/staleness/max").fill("2")
    expect(page.get_by_test_id("validation")).to_have_text("Valid")
    page.get_by_test_id("start").click()
    page.wait_for_url(re.compile(r"/runs/run_\w+$"))
    with plane.client(plane.token()) as api:
        made: Any = api.get(f"/runs/{page.url.rpartition('/')[2]}").json()
    assert (made["parent"]["id"], made["parent"]["relation"]) == (waiting_run, "clone")
    assert made["spec"]["staleness"]["max"] == 2 and made["submitted_spec"]["staleness"] == {"max": 2}
