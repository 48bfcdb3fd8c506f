"""The home page of a project with runs: what runs, what needs attention, and the pool."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.support.control_plane import ControlPlane
from tests.support.scripted_node import ScriptedNode
from tests.tools.synthetic_dashboard import submit_runs

pytestmark = [pytest.mark.browser, pytest.mark.slow]

MOST_REQUESTS = 16  # to the API, in a project with more runs than the page shows
MORE_RUNS = """
from copy import copy
from datetime import timedelta
from django.utils import timezone
from control_plane.core.infra import ids
from control_plane.runs.models import Run
run = Run.objects.get(name="synthetic, short")
def copied(name, **changes):
    one = copy(run)
    one.pk, one.name, one._state.adding = ids.run_id(), name, True
    for field, value in changes.items():
        setattr(one, field, value)
    return one
Run.objects.bulk_create([
    copied("broken", status="FAILED", ended_at=timezone.now(), reason="reward_error_rate",
           reason_message="60 % of rewards failed: KeyError"),
    copied("broken long ago", status="FAILED", ended_at=timezone.now() - timedelta(days=8),
           reason="reward_error_rate", reason_message="60 % of rewards failed: KeyError"),
    copied("needs somebody", status="PAUSED", reason="reward_error_rate",
           reason_message="the reward failed at row 7", conditions=["NEEDS_ATTENTION"], ended_at=None),
    *[copied(f"ended {number}") for number in range(30)],
])
"""


@pytest.fixture(scope="module")
def long_run(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A run that is active, one that waits, one that failed, one paused by an error, and many that ended."""
    node = ScriptedNode(plane.url, plane.manage("join_token").splitlines()[-1], slots=3, step_seconds=0.4)
    node.start()
    try:
        long = submit_runs(plane, tmp_path_factory.mktemp("models"), long_steps=100_000)
        with plane.client(plane.token()) as client:
            while not client.get("/runs", params={"name": "short", "status": "SUCCEEDED"}).json()["data"]:
                time.sleep(0.2)  # the API limits the rate of requests
        plane.manage("shell", "-c", MORE_RUNS)
        yield long
    finally:
        node.close()


@pytest.fixture
def home(page: Page, log_in: Callable[[], None], long_run: str) -> Page:
    log_in()
    page.get_by_role("link", name="Home", exact=True).click()
    expect(page.get_by_role("heading", level=1, name="Home")).to_be_visible()
    return page


def test_it_shows_what_runs_and_the_figures_are_live(home: Page, long_run: str) -> None:
    item = home.get_by_test_id("running").locator(f"[data-run={long_run}]")
    expect(item).to_contain_text("synthetic, long")
    expect(item.locator("[data-status=RUNNING]")).to_be_visible()
    expect(item).to_contain_text(re.compile(r"Staleness\s*[\d.]+ / 4"))
    expect(item.get_by_role("img", name=re.compile("Reward from"))).to_be_visible()
    before = item.get_by_text(re.compile(r"^\d+ / 100000$")).inner_text()
    expect(item).not_to_contain_text(before)  # the stream brings the next steps


def test_it_lists_what_needs_attention_with_the_reason(home: Page) -> None:
    items = home.get_by_test_id("attention").locator("li")
    expect(items).to_have_count(3)
    expect(items.nth(0)).to_contain_text(
        re.compile("Paused by error.*needs somebody.*failed at row 7", re.DOTALL)
    )
    expect(items.nth(1)).to_contain_text(re.compile("Failed.*broken.*60 % of rewards failed", re.DOTALL))
    expect(items.nth(2)).to_contain_text(re.compile("Queued.*synthetic, waits.*#1 in the queue", re.DOTALL))
    expect(home.get_by_text("broken long ago")).to_have_count(0)
    items.nth(1).get_by_role("link", name="broken").click()
    expect(home.get_by_role("heading", level=1, name="broken")).to_be_visible()


def test_it_shows_the_pool_and_links_to_it(home: Page) -> None:
    expect(home.get_by_test_id("pool")).to_contain_text("2 busy, 1 free, of 3 slots")
    expect(home.get_by_test_id("pool")).to_contain_text("1 in the queue")
    home.locator("#content").get_by_role("link", name="Pool", exact=True).click()
    expect(home.get_by_role("heading", level=1, name="Pool")).to_be_visible()


def test_the_commands_name_the_server_and_the_newest_run(home: Page, plane: ControlPlane) -> None:
    home.get_by_text("From the command line").click()
    expect(home.get_by_test_id("cli")).to_contain_text(f"export OOLONG_URL={plane.url}")
    expect(home.get_by_test_id("cli")).to_contain_text(re.compile("oolong run watch run_"))


def test_its_requests_stay_few(page: Page, log_in: Callable[[], None], long_run: str) -> None:
    log_in()
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url) if "/api/" in request.url else None)
    page.goto("/")
    expect(page.get_by_test_id("attention")).to_be_visible()
    expect(page.get_by_test_id("pool")).to_be_visible()
    expect(page.get_by_test_id("running").get_by_role("img")).to_be_visible()
    assert len(requests) <= MOST_REQUESTS, requests
    limits = [int(limit) for url in requests if "/runs?" in url for limit in re.findall(r"limit=(\d+)", url)]
    assert len(limits) >= 5 and max(limits) <= 6, requests


def test_a_phone_shows_it_without_sideways_scroll(
    page: Page, log_in: Callable[[], None], long_run: str
) -> None:
    log_in()
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto("/")
    expect(page.get_by_test_id("attention")).to_be_visible()
    expect(page.get_by_test_id("pool")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_viewer_is_offered_no_start(home: Page, plane: ControlPlane) -> None:
    as_role = (
        "from control_plane.accounts.models import Membership, TeamMembership; "
        "[rows.objects.update(role={!r}) for rows in (Membership, TeamMembership)]"
    )
    expect(home.get_by_role("link", name="Start a run")).to_have_count(2)
    plane.manage("shell", "-c", as_role.format("viewer"))
    try:
        home.reload()
        expect(home.get_by_text("Your role in this project is viewer")).to_be_visible()
        expect(home.get_by_role("link", name="Start a run")).to_have_count(0)
    finally:
        plane.manage("shell", "-c", as_role.format("admin"))
