"""Pages with real services and a fake node that sends synthetic telemetry (tests/support/scripted_node.py)."""

from __future__ import annotations

import csv
import re
import struct
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, ViewportSize, expect

from local_stack.paths import checkout_paths
from tests.support.browser import PointsOfSockets, accessibility_faults
from tests.support.control_plane import ROOT, ControlPlane
from tests.support.scripted_node import ScriptedNode
from tests.tools.synthetic_dashboard import submit_runs

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PAGES = {
    "/": "Home",
    "/runs": "Runs",
    "/runs/new": "Start a run",
    "/runs/compare": "Compare runs",
    "/sweeps": "Sweeps",
    "/sweeps/new": "New sweep",
    "/datasets": "Datasets",
    "/datasets/new": "Upload a dataset",
    "/models": "Base models",
    "/checkpoints": "Checkpoints",
    "/playground": "Playground",
    "/functions": "Functions",
    "/functions/new": "New function",
    "/functions/tests/new": "Test a reward",
    "/pool": "Pool",
    "/usage": "Usage",
    "/usage?days=1&stack=team&by=run": "Usage",
    "/team": "Team",
    "/team?tab=invitations": "Team",
    "/team?tab=service-accounts": "Team",
    "/team?tab=secrets": "Team",
    "/team?tab=webhooks": "Team",
    "/team?tab=audit": "Team",
    "/account": "Account",
    "/admin": "Admin",
    "/admin?tab=teams": "Admin",
    "/admin?tab=health": "Admin",
}
SCREENSHOTS = checkout_paths(ROOT).var / "test-results" / "pages"
DESKTOP: ViewportSize = {"width": 1440, "height": 1000}
TWO_FRAMES = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
SIDEWAYS_TABLES = """() => [...document.querySelectorAll("main table")]
  .filter(table => table.parentElement.scrollWidth > table.parentElement.clientWidth).length"""
PHONE: ViewportSize = {"width": 390, "height": 844}
TABS = ["timeline", "trajectories", "logs", "events", "jobs", "checkpoints", "results", "spec"]


@pytest.fixture(scope="module")
def long_run(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A run that is active for longer than these tests. Another run has ended, and a third waits."""
    node = ScriptedNode(plane.url, plane.manage("join_token").splitlines()[-1], step_seconds=0.4)
    node.start()
    try:
        yield submit_runs(plane, tmp_path_factory.mktemp("models"), long_steps=100_000)
    finally:
        node.close()


def point_count(page: Page) -> int:
    return int(page.locator("[data-chart=reward]").get_attribute("data-points") or 0)


def wait_for_points(page: Page, more_than: int) -> None:
    page.wait_for_function(
        "least => Number(document.querySelector('[data-chart=reward]')?.dataset.points ?? 0) > least",
        arg=more_than,
    )


def zoomed_plot(page: Page) -> Locator:
    """The plot of the reward, after a drag across a part of it."""
    plot = page.locator("[data-chart=reward] [role=img]")
    while not drag_across(page, plot):  # the page above it still grew
        pass
    expect(plot).to_have_attribute("data-zoom", re.compile(r"^[\d.]+ [\d.]+$"))
    return plot


def drag_across(page: Page, plot: Locator) -> bool:
    """Drag across a part of the plot. Returns whether the plot saw it: what it selects then has a width."""
    box = plot.locator(".u-over").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 60, steps=5)
    page.evaluate(TWO_FRAMES)
    is_seen = bool(plot.locator(".u-select").evaluate("element => element.offsetWidth > 0"))
    page.mouse.up()
    return is_seen


def test_a_page_opens_at_its_top(page: Page, log_in: Callable[[], None], long_run: str) -> None:
    log_in()
    page.set_viewport_size({"width": 1440, "height": 240})  # even the list is longer
    page.locator(f"a[href='/runs/{long_run}']").first.click()
    wait_for_points(page, 2)
    page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    page.wait_for_function("() => window.scrollY > 50")
    page.get_by_role("link", name="Runs", exact=True).click()
    expect(page.get_by_role("heading", level=1, name="Runs")).to_be_visible()
    page.wait_for_function("() => document.body.scrollHeight > innerHeight")
    assert page.evaluate("window.scrollY") == 0


def test_every_page_opens(page: Page, log_in: Callable[[], None], long_run: str) -> None:
    log_in()
    for path, heading in PAGES.items():
        page.goto(path)
        expect(page.get_by_role("heading", level=1, name=heading)).to_be_visible()
        expect(page).to_have_title(f"{heading} · Oolong")
        expect(page.get_by_role("alert")).to_have_count(0)
    page.goto(f"/runs/{long_run}")
    expect(page).to_have_title(re.compile(".+, running · Oolong"))
    wait_for_points(page, 2)
    for tab in TABS:
        page.goto(f"/runs/{long_run}?tab={tab}")
        expect(page.get_by_role("tab", selected=True)).to_have_text(tab.capitalize())
        expect(page.get_by_role("tabpanel")).not_to_contain_text("Loading")
        expect(page.get_by_role("alert")).to_have_count(0)


def test_no_page_has_accessibility_faults_in_either_theme_or_is_wider_than_a_phone(
    page: Page, log_in: Callable[[], None], long_run: str
) -> None:
    """Leaves a screenshot of each page in both themes and on a phone in `SCREENSHOTS`."""
    log_in()
    page.emulate_media(reduced_motion="reduce")
    faults: dict[str, list[str]] = {}
    for path in [*PAGES, *(f"/runs/{long_run}?tab={tab}" for tab in ("live", *TABS))]:
        name = re.sub(r"\W+", "-", path.replace(long_run, "run")).strip("-") or "home"
        page.goto(path)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.get_by_text("Loading", exact=True)).to_have_count(0)
        for scheme in ("light", "dark"):
            page.evaluate("scheme => document.documentElement.dataset.mantineColorScheme = scheme", scheme)
            faults[f"{scheme} {path}"] = accessibility_faults(page)
            page.screenshot(path=SCREENSHOTS / f"{name}-{scheme}.jpg", type="jpeg")
        page.set_viewport_size(PHONE)
        page.screenshot(path=SCREENSHOTS / f"{name}-phone.jpg", type="jpeg")
        width = page.evaluate("document.documentElement.scrollWidth")
        if width > PHONE["width"]:
            faults[f"phone {path}"] = [f"{width} px wide"]
        if path.startswith((f"/runs/{long_run}", "/sweeps")) and page.evaluate(SIDEWAYS_TABLES) > 0:
            faults[f"phone {path}, its tables"] = ["scroll sideways instead of being cards"]
        page.set_viewport_size(DESKTOP)
    page.keyboard.press("Control+k")
    expect(page.get_by_role("listbox", name="Results").get_by_role("option").first).to_be_visible()
    faults["the palette"] = accessibility_faults(page)
    found = [f"{place}: {fault}" for place, all_of_it in faults.items() for fault in all_of_it]
    assert found == [], "\n".join(found)


def test_an_outage_of_the_control_plane_is_shown_and_no_point_is_missing_afterward(
    page: Page, plane: ControlPlane, log_in: Callable[[], None], long_run: str
) -> None:
    log_in()
    page.goto(f"/runs/{long_run}")
    wait_for_points(page, 5)
    plane.kill_part("web")
    # "Reconnecting" for ten seconds, then "Stale since", until the web process is back.
    expect(page.get_by_test_id("connection")).to_have_text(re.compile("^ ?(Reconnecting|Stale since .+)$"))
    before = point_count(page)
    plane.start_part("web")
    plane.wait_for_web()
    expect(page.get_by_test_id("connection")).to_have_text("Live")
    wait_for_points(page, before + 3)
    # Every step reports its policy version: without gaps and repeats there are as many points as the last version.
    page.wait_for_function(
        """selector => {
            const line = document.querySelector(selector);
            return line !== null && Number(line.dataset.points) === Number(line.dataset.last);
        }""",
        arg="[data-chart=policy-version] [data-line^='policy/version']",
    )


def test_the_run_page_shows_staleness_against_its_bound_and_a_ledger_that_adds_up(
    page: Page, log_in: Callable[[], None], long_run: str
) -> None:
    log_in()
    page.goto(f"/runs/{long_run}")
    wait_for_points(page, 3)
    expect(page.get_by_test_id("staleness-histogram")).to_contain_text("over η = 4")
    expect(page.get_by_test_id("ledger").get_by_label("The rows add up to the total")).to_have_count(2)
    expect(page.get_by_test_id("ledger").get_by_label("The rows do not add up to the total")).to_have_count(0)
    page.get_by_text("Time", exact=True).click()
    expect(page).to_have_url(re.compile("axis=time"))
    wait_for_points(page, 3)


def test_the_queue_shows_why_a_run_waits(page: Page, log_in: Callable[[], None], long_run: str) -> None:
    log_in()
    page.goto("/pool")
    expect(page.get_by_test_id("queue")).to_contain_text("synthetic, waits")
    expect(page.get_by_test_id("queue")).to_contain_text("slots")
    page.get_by_role("button", name="Actions on scripted-node").click()
    page.get_by_role("menuitem", name=re.compile("^Cordon")).click()
    expect(page.get_by_test_id("nodes").locator("[data-status=CORDONED]")).to_be_visible()
    page.get_by_role("button", name="Actions on scripted-node").click()
    page.get_by_role("menuitem", name=re.compile("^Uncordon")).click()
    expect(page.get_by_test_id("nodes").locator("[data-status=READY]")).to_be_visible()


def test_keyboard_shortcuts_open_pages(page: Page, log_in: Callable[[], None]) -> None:
    page.clock.install()
    log_in()
    page.clock.pause_at(
        datetime.now() + timedelta(hours=1)
    )  # the second key must follow soon after the first
    page.keyboard.press("g")
    page.keyboard.press("p")
    page.clock.resume()
    expect(page.get_by_role("heading", level=1, name="Pool")).to_be_visible()


def test_the_palette_finds_pages_runs_and_datasets(
    page: Page, log_in: Callable[[], None], long_run: str
) -> None:
    log_in()
    page.goto("/pool")
    expect(page.get_by_role("heading", level=1, name="Pool")).to_be_visible()
    search = page.get_by_role("button", name="Search Ctrl K")
    search.focus()
    page.keyboard.press("Control+k")
    field = page.get_by_role("dialog", name="Search").get_by_role("combobox")
    expect(field).to_be_focused()
    options = page.get_by_role("listbox", name="Results").get_by_role("option")
    expect(options.first).to_have_attribute("aria-selected", "true")
    expect(page.get_by_role("group", name="Newest runs").get_by_role("option")).to_have_count(3)
    page.keyboard.press("ArrowDown")
    second = options.nth(1)
    expect(second).to_have_attribute("aria-selected", "true")
    expect(field).to_have_attribute("aria-activedescendant", str(second.get_attribute("id")))
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(search).to_be_focused()

    search.click()
    field.fill("letter")
    expect(page.get_by_role("group", name="Datasets").get_by_role("option")).to_contain_text("letter-sum@1")
    field.fill("no such thing")
    expect(page.get_by_role("status").filter(has_text="No results")).to_be_visible()
    field.fill("synthetic, lo")
    # Its checkpoints are found too, below it.
    expect(page.get_by_role("group", name="Runs").get_by_role("option")).to_have_count(1)
    expect(options.first).to_contain_text("Running")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1, name="synthetic, long")).to_be_visible()
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_shortcuts_are_off_while_somebody_types(
    page: Page, log_in: Callable[[], None], long_run: str
) -> None:
    log_in()
    field = page.get_by_label("Search by name")
    page.get_by_role("link", name="synthetic, long").first.focus()
    page.keyboard.press("/")
    expect(field).to_be_focused()
    expect(field).to_have_value("")
    page.keyboard.type("gp?/")
    expect(field).to_have_value("gp?/")
    page.keyboard.press("Control+k")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("heading", level=1, name="Runs")).to_be_visible()
    page.goto("/datasets")
    expect(page.get_by_role("heading", level=1, name="Datasets")).to_be_visible()
    page.keyboard.press("/")  # a page without a search field of its own
    expect(page.get_by_role("dialog", name="Search")).to_be_visible()


def test_the_code_of_the_palette_is_loaded_when_it_opens(page: Page, log_in: Callable[[], None]) -> None:
    loaded: list[str] = []
    page.on("request", lambda request: loaded.append(request.url))
    log_in()
    assert not any("palette" in url for url in loaded)
    page.get_by_role("button", name="Search Ctrl K").click()
    expect(page.get_by_role("dialog", name="Search")).to_be_visible()
    assert any("palette" in url for url in loaded)


def test_a_wrong_password_is_rejected_with_a_reason(page: Page) -> None:
    page.goto("/runs")
    page.get_by_label("Username").fill("admin")
    page.locator("input[name=password]").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_be_visible()
    assert "/login" in page.url


def test_the_api_docs_work_under_the_content_security_policy(page: Page) -> None:
    page.goto("/api/v1/docs")
    expect(page.get_by_role("heading", name="Oolong")).to_be_visible()
    page.locator("#operations-tag-accounts").click()
    expect(page.locator("#operations-accounts-me")).to_be_attached()


def test_the_account_menu_switches_the_project(
    page: Page, log_in: Callable[[], None], plane: ControlPlane, long_run: str
) -> None:
    with plane.client(plane.token("projects")) as api:
        me = api.get("/me").json()
        api.post("/projects", json={"name": "second"}).raise_for_status()
    log_in()
    page.get_by_role("button", name=f"{me['team']['name']} / {me['project']['name']}").click()
    page.get_by_role("menuitem", name=f"{me['team']['name']} / second").click()
    expect(page.get_by_role("button", name=f"{me['team']['name']} / second")).to_be_visible()
    expect(page.locator(f"a[href='/runs/{long_run}']")).to_have_count(0)
    page.reload()
    expect(page.get_by_role("button", name=f"{me['team']['name']} / second")).to_be_visible()


def test_help_opens_the_documentation_of_the_page(page: Page, log_in: Callable[[], None]) -> None:
    log_in()
    page.goto("/datasets")
    with page.expect_popup() as opened:
        page.get_by_role("link", name="Help").click()
    expect(opened.value.get_by_role("heading", level=1)).to_contain_text("dataset")
    opened.value.get_by_role("link", name="Staleness", exact=True).click()
    expect(opened.value.get_by_role("heading", level=1, name="Staleness")).to_be_visible()


def test_the_color_scheme_persists(page: Page, log_in: Callable[[], None]) -> None:
    log_in()
    page.get_by_role("button", name="Color scheme").click()
    page.get_by_role("menuitem", name="Dark").click()
    expect(page.locator("html")).to_have_attribute("data-mantine-color-scheme", "dark")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-mantine-color-scheme", "dark")


def test_the_dashboard_loads_nothing_from_other_sites(built_dashboard: Path) -> None:
    """The built page contains no external URL."""
    index = (built_dashboard / "index.html").read_text()
    assert "http://" not in index and "https://" not in index


def test_a_zoom_stays_while_new_points_come_and_a_double_click_resets_it(
    page: Page, log_in: Callable[[], None], long_run: str
) -> None:
    log_in()
    page.goto(f"/runs/{long_run}")
    wait_for_points(page, 4)
    plot = zoomed_plot(page)
    zoom = plot.get_attribute("data-zoom")
    other = page.locator("[data-chart=staleness] [role=img]")
    expect(other).to_have_attribute("data-zoom", str(zoom))  # all charts show the same part
    wait_for_points(page, point_count(page))
    expect(plot).to_have_attribute("data-zoom", str(zoom))
    plot.locator(".u-over").dblclick()
    expect(plot).to_have_attribute("data-zoom", "")


def test_a_zoom_into_steps_is_none_into_time(page: Page, log_in: Callable[[], None], long_run: str) -> None:
    log_in()
    page.goto(f"/runs/{long_run}")
    wait_for_points(page, 4)
    plot = zoomed_plot(page)
    page.get_by_role("radiogroup").get_by_text("Time", exact=True).first.click()
    expect(plot).to_have_attribute("data-zoom", "")


def test_a_chart_is_saved_as_an_image_and_has_a_logarithmic_scale(
    page: Page, log_in: Callable[[], None], long_run: str
) -> None:
    log_in()
    page.goto(f"/runs/{long_run}")
    wait_for_points(page, 2)
    with page.expect_download() as download:
        page.get_by_label("Save Reward as PNG").click()
    assert download.value.suggested_filename == "reward.png"
    image = download.value.path().read_bytes()
    assert image[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", image[16:24])
    canvas = page.locator("[data-chart=reward] canvas").evaluate("canvas => [canvas.width, canvas.height]")
    assert width == canvas[0] and height > canvas[1]  # the title and the names of the lines are above
    switch = page.get_by_label("Logarithmic scale for Gradient norm")
    switch.click()
    expect(switch).to_have_attribute("aria-pressed", "true")


def test_after_a_stop_the_chart_matches_the_api(
    page: Page, plane: ControlPlane, log_in: Callable[[], None], long_run: str
) -> None:
    """Stops the run that the tests above use, so it runs last."""
    sockets = PointsOfSockets(page, f"run:{long_run}")
    log_in()
    page.goto(f"/runs/{long_run}")
    while sockets.count() < 3:  # a frame holds one or more steps
        wait_for_points(page, point_count(page))
    sockets.check_order()
    page.get_by_test_id("stop").click()
    page.get_by_test_id("confirm-stop").click()
    expect(page.locator("header [data-status=STOPPED]")).to_be_visible()
    with plane.client(plane.token()) as client:
        reply = client.get(f"/runs/{long_run}/metrics?names=reward/mean&axis=step&max_points=20000").json()
    (series,) = reply["series"]
    reward = page.locator("[data-chart=reward]")
    expect(reward).to_have_attribute("data-points", str(len(series["x"])))
    shown = reward.locator("[data-line^='reward/mean']").get_attribute("data-last")
    assert float(shown or "nan") == series["value"][-1]

    with page.expect_download() as download:
        page.get_by_label("Save Reward as CSV").click()
    assert download.value.suggested_filename == "reward.csv"
    rows = list(csv.reader(download.value.path().read_text().splitlines()))
    assert rows[0] == ["step", "mean"]
    assert [(float(x), float(y)) for x, y in rows[1:]] == list(zip(series["x"], series["value"], strict=True))
