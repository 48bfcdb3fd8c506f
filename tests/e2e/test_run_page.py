"""The page of one run: trajectories, a failure, logs, figures and its size. A scripted node sends the telemetry."""

from __future__ import annotations

import gzip
import re
import time
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, Response, expect

from tests.support.browser import accessibility_faults
from tests.support.control_plane import ControlPlane
from tests.support.scripted_node import ScriptedNode
from tests.support.waiting import wait_until
from tests.tools.synthetic_dashboard import submit_runs

pytestmark = [pytest.mark.browser, pytest.mark.slow]

MOST_BYTES = 300_000  # of gzip, as a browser without brotli loads
PAUSE_BY_REWARD = """
from control_plane.runs.models import Run
Run.objects.filter(name="synthetic, short").update(
    status="PAUSED", reason="reward_error_rate", reason_message="60 % of rewards failed: KeyError: 'answer'",
    fault="reward", conditions=["NEEDS_ATTENTION"], ended_at=None)
"""


@pytest.fixture(scope="module")
def long_run(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A run that is active for longer than these tests."""
    node = ScriptedNode(plane.url, plane.manage("join_token").splitlines()[-1], step_seconds=0.2)
    node.start()
    try:
        yield submit_runs(plane, tmp_path_factory.mktemp("models"), long_steps=100_000)
    finally:
        node.close()


def test_a_trajectory_has_an_address_and_its_group_beside_it(
    page: Page, log_in: Callable[[], None], long_run: str
) -> None:
    log_in()
    page.goto(f"/runs/{long_run}?tab=trajectories&because=lowest_reward")
    page.get_by_test_id("sample").first.click()
    expect(page).to_have_url(re.compile(r"trajectory=\d+"))
    expect(page.get_by_test_id("group-summary")).to_contain_text(re.compile("of 8 sampled: .*lowest reward"))
    address = page.url
    identity = page.get_by_test_id("reader").get_attribute("data-trajectory")
    page.get_by_label("Search", exact=True).fill("no such text")
    expect(page.get_by_text("No matching trajectories")).to_be_visible()
    expect(page).to_have_url(re.compile("q=no"))
    expect(page.get_by_test_id("reader")).to_have_attribute("data-trajectory", str(identity))
    page.goto(address)
    expect(page.get_by_test_id("reader")).to_have_attribute("data-trajectory", str(identity))

    # A whole group: arrow keys go to its neighbors, and the tokens have exact values in both colorings.
    page.goto(f"/runs/{long_run}?tab=trajectories&because=group&finish_reason=stop")
    page.get_by_test_id("sample").first.click()
    expect(page.get_by_test_id("member")).to_have_count(8)
    expect(page.get_by_test_id("group-summary")).to_contain_text("all 8 of the group")
    before = page.get_by_test_id("reader").get_attribute("data-trajectory")
    page.get_by_role("radio", checked=True).and_(page.get_by_test_id("member")).focus()
    page.keyboard.press("ArrowUp")
    expect(page.get_by_test_id("reader")).not_to_have_attribute("data-trajectory", str(before))
    page.get_by_role("radiogroup", name="Color of the tokens").get_by_text("Probability").click()
    page.locator("[data-i='2']").hover()
    expect(page.get_by_test_id("token-readout")).to_contain_text(
        re.compile(r"Token 3 of \d+ .* log-probability")
    )
    page.emulate_media(reduced_motion="reduce")
    for scheme in ("light", "dark"):
        page.evaluate("scheme => document.documentElement.dataset.mantineColorScheme = scheme", scheme)
        assert accessibility_faults(page) == []


def test_logs_are_searched_by_the_server_and_open_at_the_found_line(
    page: Page, log_in: Callable[[], None], long_run: str
) -> None:
    log_in()
    page.goto(f"/runs/{long_run}?tab=logs")
    page.get_by_label("Search the whole log").fill("step 2 reward")
    expect(page).to_have_url(re.compile("find=step"))
    found = page.get_by_test_id("found").get_by_role("button", name=re.compile("step 2 reward"))
    found.click()
    expect(page.locator("[data-target=true]")).to_contain_text("step 2 reward")
    expect(page.get_by_label("Follow")).not_to_be_checked()
    assert accessibility_faults(page) == []
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    assert "step 1 reward" in download.value.path().read_text()


def test_figures_are_one_line_beside_other_tabs(
    page: Page, log_in: Callable[[], None], long_run: str
) -> None:
    log_in()
    page.goto(f"/runs/{long_run}?tab=events")
    figures = page.get_by_test_id("key-metrics")
    expect(figures).to_have_attribute("data-compact", "true")
    box = figures.bounding_box()
    assert box is not None and box["height"] <= 40
    page.get_by_role("tab", name="Live").click()
    expect(figures).to_have_attribute("data-compact", "false")
    page.get_by_label("Search all metrics").fill("grad_norm")
    expect(page.locator("[data-chart=grad-norm]")).to_be_visible()
    expect(page.locator("[data-chart=entropy]")).to_have_count(0)
    expect(page.get_by_test_id("funnel").get_by_role("listitem")).to_have_count(5)


def test_the_page_loads_at_most_300_kilobytes_of_scripts_and_styles(
    page: Page, log_in: Callable[[], None], long_run: str
) -> None:
    log_in()
    loaded: list[Response] = []
    page.on("response", lambda response: loaded.append(response))
    page.goto(f"/runs/{long_run}")
    expect(page.locator("[data-chart=reward] canvas")).to_be_visible()
    sizes = {
        response.url: len(gzip.compress(response.body()))
        for response in loaded
        if response.url.partition("?")[0].endswith((".js", ".css"))
    }
    assert len(sizes) > 2 and 50_000 < sum(sizes.values()) <= MOST_BYTES, sizes


def test_a_run_paused_by_its_reward_opens_on_the_cause(
    page: Page, plane: ControlPlane, log_in: Callable[[], None], long_run: str
) -> None:
    with plane.client(plane.token()) as client:
        short = client.get("/runs", params={"name": "short"}).json()["data"][0]["id"]

        def has_ended() -> bool:
            time.sleep(0.2)  # the API limits the rate of requests
            return bool(client.get(f"/runs/{short}").json()["status"] == "SUCCEEDED")

        wait_until(has_ended, "the short run has ended")
    plane.manage("shell", "-c", PAUSE_BY_REWARD)
    log_in()
    page.goto(f"/runs/{short}")
    failure = page.get_by_test_id("failure")
    expect(failure).to_contain_text("Paused by an error: reward error rate")
    expect(failure).to_contain_text("The reward function")
    expect(failure.get_by_test_id("traceback")).to_contain_text("KeyError: 'answer'")
    expect(failure.get_by_test_id("last-lines")).to_contain_text("the group is dropped")
    expect(failure.get_by_test_id("fork")).to_have_attribute(
        "href", re.compile(f"from={short}&checkpoint=ckpt")
    )
    clock = page.locator("[data-metric=Elapsed] dd").first
    stopped = clock.inner_text()
    page.emulate_media(reduced_motion="reduce")
    for scheme in ("light", "dark"):
        page.evaluate("scheme => document.documentElement.dataset.mantineColorScheme = scheme", scheme)
        assert accessibility_faults(page) == []
    assert clock.inner_text() == stopped
    page.get_by_role("tab", name="Jobs").click()
    expect(page.get_by_test_id("failure-brief")).to_contain_text("reward error rate")
