"""The run list with a thousand runs: sorting, choosing columns, selecting, and what a phone shows."""

from __future__ import annotations

import gzip
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, Response, expect

from tests.support.control_plane import ControlPlane
from tests.support.scripted_node import ScriptedNode
from tests.tools.synthetic_dashboard import submit_runs

pytestmark = [pytest.mark.browser, pytest.mark.slow]

COPIES = 1000
MOST_BYTES = 250_000  # of gzip, as a browser without brotli loads
SCROLLED_TO = """name => {
  const table = document.querySelector("[data-testid=runs]");
  table.parentElement.scrollTo(0, table.parentElement.scrollHeight);
  return [...table.querySelectorAll("[data-run] a")].some(link => link.textContent === name);
}"""
COPY_RUNS = f"""
from copy import copy
from control_plane.core.infra import ids
from control_plane.runs.models import Run
run = Run.objects.get(name="synthetic, short")
def copied(number, **changes):
    one = copy(run)
    one.pk, one.name, one.reward_mean, one._state.adding = ids.run_id(), f"copy {{number:04}}", number / {COPIES}, True
    for name, value in changes.items():
        setattr(one, name, value)
    return one
Run.objects.bulk_create(copied(number) for number in range({COPIES} - 2))
Run.objects.bulk_create([
    copied({COPIES} - 2, status="FAILED", reason="reward_error_rate",
           reason_message="60 % of rewards failed: KeyError"),
    copied({COPIES} - 1, status="PAUSED", reason="reward_error_rate", reason_message="the reward failed at row 7",
           conditions=["NEEDS_ATTENTION"], ended_at=None),
])
"""


@pytest.fixture(scope="module")
def runs(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """An ended run with a reward curve, a thousand copies without one, an active run and a waiting one."""
    node = ScriptedNode(plane.url, plane.manage("join_token").splitlines()[-1], step_seconds=0.05)
    node.start()
    try:
        long = submit_runs(plane, tmp_path_factory.mktemp("models"), long_steps=100_000)
        with plane.client(plane.token()) as client:
            ended: list[str] = []
            while not ended:
                time.sleep(0.2)  # the API limits the rate of requests
                listed = client.get("/runs", params={"name": "short", "status": "SUCCEEDED"}).json()["data"]
                ended = [run["id"] for run in listed]
            assert long not in ended
        plane.manage("shell", "-c", COPY_RUNS)
        yield
    finally:
        node.close()


def names(page: Page) -> list[str]:
    return page.locator("[data-testid=runs] [data-run] a").all_inner_texts()


def test_a_thousand_runs_are_loaded_on_the_way_and_few_are_in_the_page(
    page: Page, log_in: Callable[[], None], runs: None
) -> None:
    log_in()
    page.goto("/runs?sort=name")
    expect(page.get_by_role("link", name="copy 0000", exact=True)).to_be_visible()
    assert page.locator("[data-run]").count() < 100
    last = page.get_by_role("link", name="synthetic, waits", exact=True)
    page.wait_for_function(SCROLLED_TO, arg="synthetic, waits", polling=100)
    expect(last).to_be_visible()
    assert page.locator("[data-run]").count() < 100
    expect(page.get_by_role("toolbar")).to_contain_text(f"{COPIES + 3} runs")


def test_the_order_and_the_filter_are_in_the_address(
    page: Page, log_in: Callable[[], None], runs: None
) -> None:
    log_in()
    page.get_by_role("button", name="Reward", exact=True).click()
    expect(page).to_have_url(re.compile("sort=-reward"))
    expect(page.locator("[data-run] a").first).to_have_text(re.compile(f"copy {COPIES - 1:04}|synthetic"))
    page.get_by_label("Search by name").fill("copy 000")
    expect(page.get_by_role("toolbar")).to_contain_text("10 runs")
    page.reload()
    expect(page.get_by_role("toolbar")).to_contain_text("10 runs")
    assert names(page)[:2] == ["copy 0009", "copy 0008"]
    expect(page.get_by_role("columnheader", name="Reward", exact=True)).to_have_attribute(
        "aria-sort", "descending"
    )


def test_a_failed_and_a_paused_run_say_why_and_an_ended_one_shows_its_curve(
    page: Page, log_in: Callable[[], None], runs: None
) -> None:
    log_in()
    page.goto("/runs?condition=NEEDS_ATTENTION,DEGRADED,UNRESPONSIVE")
    expect(page.locator("[data-run]")).to_have_count(1)
    expect(page.locator("[data-run]")).to_contain_text("the reward failed at row 7")
    expect(page.locator("[data-run]")).to_contain_text("Paused by error")
    page.goto("/runs?status=FAILED")
    expect(page.locator("[data-run]")).to_contain_text("60 % of rewards failed: KeyError")
    page.goto("/runs?name=synthetic")
    expect(page.get_by_role("img", name=re.compile("Reward from .* to .* at step 12"))).to_be_visible()


def test_selected_runs_are_tagged_together(page: Page, log_in: Callable[[], None], runs: None) -> None:
    log_in()
    page.goto("/runs?name=copy 001&sort=name")
    page.get_by_label("Select copy 0010").check()
    page.get_by_label("Select copy 0013").click(modifiers=["Shift"])
    expect(page.get_by_test_id("selected")).to_have_text("4 selected")
    expect(page.get_by_test_id("bulk-stop")).to_be_disabled()  # they have ended
    page.get_by_test_id("bulk-tag").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.get_by_role("button", name="Cancel").focus()
    page.keyboard.press("Escape")  # closes the dialog alone
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_test_id("selected")).to_have_text("4 selected")
    page.get_by_test_id("bulk-tag").click()
    page.get_by_test_id("add-tags").fill("to-read")
    page.keyboard.press("Enter")
    page.get_by_test_id("confirm-bulk-tag").click()
    expect(page.get_by_text("4 runs tagged")).to_be_visible()
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_test_id("bulk-tag")).to_be_focused()
    page.goto("/runs?tag=to-read")
    expect(page.locator("[data-run]")).to_have_count(4)
    page.get_by_label("Remove filter: tag to-read").click()
    expect(page).to_have_url(re.compile("/runs$"))


def test_the_help_of_a_field_has_at_least_12_pixels(
    page: Page, log_in: Callable[[], None], runs: None
) -> None:
    log_in()
    page.goto("/runs?name=copy 001&sort=name")
    page.get_by_label("Select copy 0010").check()
    page.get_by_test_id("bulk-tag").click()
    expect(page.get_by_text("Press Enter after each tag.")).to_have_css("font-size", "12px")


def test_the_filters_of_an_empty_list_are_cleared_at_once(
    page: Page, log_in: Callable[[], None], runs: None
) -> None:
    log_in()
    page.goto("/runs?text=nothing-like-this&status=FAILED")
    page.get_by_role("link", name="Clear filters").click()
    expect(page.locator("[data-run]").first).to_be_visible()
    expect(page).to_have_url(re.compile("/runs$"))


def test_a_viewer_is_offered_no_change(
    page: Page, plane: ControlPlane, log_in: Callable[[], None], runs: None
) -> None:
    as_role = (
        "from control_plane.accounts.models import Membership, TeamMembership; "
        "[rows.objects.update(role={!r}) for rows in (Membership, TeamMembership)]"
    )
    log_in()
    expect(page.get_by_role("link", name="Start a run")).to_have_count(2)
    plane.manage("shell", "-c", as_role.format("viewer"))
    try:
        page.goto("/runs?name=copy 001&sort=name")
        page.get_by_label("Select copy 0010").check()
        expect(page.get_by_role("toolbar").get_by_text("Read-only access")).to_have_attribute(
            "title", re.compile("viewer")
        )
        expect(page.get_by_test_id("bulk-stop")).to_have_count(0)
        expect(page.get_by_test_id("bulk-tag")).to_have_count(0)
        expect(page.get_by_role("link", name="Start a run")).to_have_count(0)
    finally:
        plane.manage("shell", "-c", as_role.format("admin"))


def test_columns_are_chosen_and_stay(page: Page, log_in: Callable[[], None], runs: None) -> None:
    log_in()
    expect(page.get_by_role("columnheader", name="Priority")).to_have_count(0)
    page.get_by_role("button", name="Columns").click()
    page.get_by_role("menuitemcheckbox", name="Priority").click()
    page.keyboard.press("Escape")
    expect(page.get_by_role("columnheader", name="Priority")).to_be_visible()
    page.reload()
    expect(page.get_by_role("columnheader", name="Priority")).to_be_visible()


def test_keys_move_open_and_select(page: Page, log_in: Callable[[], None], runs: None) -> None:
    log_in()
    page.goto("/runs?name=copy 002&sort=name")
    expect(page.get_by_role("link", name="copy 0020", exact=True)).to_be_visible()
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(page.get_by_role("link", name="copy 0021", exact=True)).to_be_focused()
    page.keyboard.press("x")
    expect(page.get_by_label("Select copy 0021")).to_be_checked()
    page.keyboard.press("Escape")
    expect(page.get_by_label("Select copy 0021")).not_to_be_checked()
    page.keyboard.press("k")
    expect(page.get_by_role("link", name="copy 0020", exact=True)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1, name="copy 0020")).to_be_visible()


def test_the_keys_are_listed_and_the_focus_returns(
    page: Page, log_in: Callable[[], None], runs: None
) -> None:
    log_in()
    page.goto("/runs?name=copy 002&sort=name")
    expect(page.get_by_role("link", name="copy 0020", exact=True)).to_be_visible()
    page.keyboard.press("j")
    expect(page.get_by_role("link", name="copy 0020", exact=True)).to_be_focused()
    page.keyboard.press("Shift+?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_contain_text("Select the run")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("link", name="copy 0020", exact=True)).to_be_focused()


def test_the_names_stay_in_view_while_the_columns_scroll_sideways(
    page: Page, log_in: Callable[[], None], runs: None
) -> None:
    page.set_viewport_size({"width": 1024, "height": 800})
    log_in()
    page.goto("/runs?sort=name")
    name = page.get_by_role("link", name="copy 0000", exact=True)
    expect(name).to_be_visible()
    page.evaluate("document.fonts.ready")
    before = name.bounding_box()
    created = page.get_by_role("columnheader", name="Created")
    expect(created).not_to_be_in_viewport()
    page.locator("div:has(> [data-testid=runs])").evaluate("element => element.scrollTo(1000, 0)")
    expect(created).to_be_in_viewport()
    after = name.bounding_box()
    assert before is not None and after is not None and abs(after["x"] - before["x"]) < 1


def test_a_phone_shows_cards_without_sideways_scroll(
    page: Page, log_in: Callable[[], None], runs: None
) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    log_in()
    expect(page.locator("ul[data-testid=runs] > li").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize(("path", "shows"), [("/runs", "[data-run]"), ("/runs/new", "[data-testid=start]")])
def test_the_page_loads_at_most_250_kilobytes_of_scripts_and_styles(
    page: Page, log_in: Callable[[], None], runs: None, path: str, shows: str
) -> None:
    log_in()
    loaded: list[Response] = []
    page.on("response", lambda response: loaded.append(response))
    page.goto(path)
    expect(page.locator(shows).first).to_be_visible()
    page.wait_for_load_state("networkidle")
    sizes = {
        response.url: len(gzip.compress(response.body()))
        for response in loaded
        if response.url.partition("?")[0].endswith((".js", ".css"))
    }
    assert len(sizes) > 2 and 50_000 < sum(sizes.values()) <= MOST_BYTES, sizes


def test_every_component_in_the_scripts_has_its_styles(built_dashboard: Path) -> None:
    """Mantine's styles are imported one by one, and one that is forgotten would only be seen."""
    styles = built_dashboard.parent / "node_modules" / "@mantine" / "core" / "styles.css"
    known = set(re.findall(r"\.(m_[0-9a-f]+)", styles.read_text()))
    assets = built_dashboard / "assets"
    used = {name for file in assets.glob("*.js") for name in re.findall(r"m_[0-9a-f]+", file.read_text())}
    styled = {
        name for file in assets.glob("*.css") for name in re.findall(r"\.(m_[0-9a-f]+)", file.read_text())
    }
    assert len(used & known) > 100
    assert used & known <= styled, f"import the styles with these classes in webui: {(used & known) - styled}"
