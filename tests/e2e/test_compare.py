"""Comparing runs in the browser: from the run list to charts, baseline and spec differences, with live data."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.support.browser import accessibility_faults
from tests.support.control_plane import ControlPlane
from tests.support.scripted_node import ScriptedNode
from tests.tools.synthetic_dashboard import submit_runs

pytestmark = [pytest.mark.browser, pytest.mark.slow]

STEPS = 24
MISSING = "run_01jy0000000000000000000099"
LONG = 5_000
# More steps than the page asks for at once: the whole comes in buckets, a part of it in single steps.
LONG_SERIES = f"""
from datetime import timedelta
from control_plane.telemetry.models import MetricPoint, MetricSeries
series = MetricSeries.objects.get(run__name="asynchronous", name="reward/mean")
last = MetricPoint.objects.filter(series=series).latest("x")
MetricPoint.objects.bulk_create(
    MetricPoint(series=series, x=x, value=0.9 + x % 7 / 100, at=last.at + timedelta(seconds=x))
    for x in range(last.x + 1, {LONG} + 1)
)
"""


@dataclass(frozen=True)
class Runs:
    sync: str
    asynchronous: str
    live: str


def submit(client: Any, name: str, *, max_staleness: int) -> str:
    spec = {
        "kind": "rl", "name": name, "model": {"base_model": "letter-sum-tiny"},
        "dataset": {"version": "letter-sum@latest"}, "trainer": {"total_train_steps": STEPS},
        "reward": {"options": {"extract": "boxed_at_end"}}, "placement": {"priority": 900},
        "staleness": {"max": max_staleness}, "notes": "SYNTHETIC: played by a scripted node",
    }  # fmt: skip
    return str(client.post("/runs", json={"spec": spec}).raise_for_status().json()["id"])


@pytest.fixture(scope="module")
def runs(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """Two ended runs whose specs differ only in max staleness, and one that stays active."""
    node = ScriptedNode(plane.url, plane.manage("join_token").splitlines()[-1], slots=12, step_seconds=0.05)
    node.start()
    try:
        live = submit_runs(plane, tmp_path_factory.mktemp("models"), long_steps=100_000)
        with plane.client(plane.token()) as client:
            found = Runs(
                sync=submit(client, "synchronous", max_staleness=0),
                asynchronous=submit(client, "asynchronous", max_staleness=4),
                live=live,
            )
            ended: set[str] = set()
            while not {found.sync, found.asynchronous} <= ended:
                time.sleep(0.2)  # the API limits the rate of requests
                listed = client.get("/runs", params={"status": "SUCCEEDED"}).json()["data"]
                ended = {run["id"] for run in listed}
        yield found
    finally:
        node.close()


def chart(page: Page, metric: str) -> Locator:
    return page.locator(f"[data-chart='{metric}']")


def result(page: Page, run: str, column: str) -> Locator:
    return page.locator(f"[data-testid=results] [data-run={run}] [data-column={column}]")


def test_selected_runs_of_the_list_are_compared_and_named_synchronous_and_asynchronous(
    page: Page, log_in: Callable[[], None], runs: Runs
) -> None:
    log_in()
    page.get_by_label("Select synchronous").check()
    page.get_by_label("Select asynchronous").check()
    page.get_by_role("link", name="Compare", exact=True).click()
    expect(page.get_by_role("heading", level=1, name="Compare runs")).to_be_visible()
    expect(page.get_by_test_id("difference")).to_have_text(
        "The same spec, synchronous in “synchronous” and asynchronous in “asynchronous”: only max staleness η differs."
    )
    expect(chart(page, "policy/entropy")).to_have_attribute("data-points", str(2 * STEPS))
    expect(page.locator("[data-testid=config-diff] [data-path]")).to_have_count(1)
    expect(page.locator("[data-path='staleness.max']")).to_contain_text(re.compile("max.*(04|40)"))


def test_the_baseline_axis_and_metrics_are_in_the_address_and_survive_a_reload(
    page: Page, log_in: Callable[[], None], runs: Runs
) -> None:
    log_in()
    page.goto(f"/runs/compare?runs={runs.sync},{runs.asynchronous}")
    expect(result(page, runs.asynchronous, "staleness")).to_contain_text("+")
    page.get_by_label("Use asynchronous as the baseline").click()
    expect(result(page, runs.sync, "staleness")).to_contain_text("−")
    for axis in ("Policy version", "Tokens", "GPU-hours", "Time"):
        page.get_by_role("radiogroup").get_by_text(axis, exact=True).click()
        expect(chart(page, "reward/mean").locator("[data-zoom]")).to_be_visible()
    page.get_by_placeholder(re.compile(r"Search \d+ metrics")).fill("grad_norm")
    page.get_by_role("option", name="optim/grad_norm").click()
    expect(chart(page, "optim/grad_norm").locator("canvas")).to_be_visible()
    expect(page).to_have_url(
        re.compile(f"baseline={runs.asynchronous}.*axis=time.*metrics=optim%2Fgrad_norm")
    )
    page.reload()
    expect(chart(page, "optim/grad_norm").locator("canvas")).to_be_visible()
    expect(page.locator("[data-chart]")).to_have_count(1)
    expect(result(page, runs.sync, "staleness")).to_contain_text("−")


def test_one_card_reads_all_runs_at_the_crosshair_and_every_chart_shows_the_crosshair(
    page: Page, log_in: Callable[[], None], runs: Runs
) -> None:
    log_in()
    page.goto(f"/runs/compare?runs={runs.sync},{runs.asynchronous}&metrics=policy/entropy,optim/grad_norm")
    expect(chart(page, "policy/entropy")).to_have_attribute("data-points", str(2 * STEPS))
    expect(chart(page, "optim/grad_norm")).to_have_attribute("data-points", str(2 * STEPS))
    chart(page, "policy/entropy").locator(".u-over").hover()
    card = page.get_by_test_id("readout")
    expect(card).to_have_count(1)
    expect(card.locator("[data-value]")).to_have_count(2)
    expect(card).to_contain_text(re.compile(r"step \d+.*(a?synchronous.*0\.\d+){2}"))
    line = chart(page, "optim/grad_norm").locator(".u-cursor-x").element_handle()
    page.wait_for_function("line => new DOMMatrix(getComputedStyle(line).transform).m41 > 20", arg=line)


def test_a_zoom_is_that_of_all_charts_and_shows_each_step_of_a_long_run(
    page: Page, plane: ControlPlane, log_in: Callable[[], None], runs: Runs
) -> None:
    plane.manage("shell", "-c", LONG_SERIES)
    log_in()
    address = f"/runs/compare?runs={runs.asynchronous}&metrics=reward/mean,loss/policy"
    points = "Number(document.querySelector(\"[data-chart='reward/mean']\")?.dataset.points ?? 0)"
    page.goto(address)
    page.wait_for_function(f"() => {points} > 1000")
    whole = int(page.evaluate(f"() => {points}"))
    assert whole < LONG / 2
    width = math.ceil(LONG / 1500)
    page.goto(f"{address}&zoom=4000..4100")
    expect(chart(page, "loss/policy").locator("[data-zoom='4000 4100']")).to_be_visible()
    page.wait_for_function(f"least => {points} > least", arg=whole + 100 - 100 / width - width)
    chart(page, "loss/policy").locator(".u-over").dblclick()
    expect(chart(page, "reward/mean").locator("[data-zoom='']")).to_be_visible()
    page.wait_for_function(f"whole => {points} === whole", arg=whole)


def test_a_live_run_grows_on_the_page_and_a_run_that_does_not_exist_is_named(
    page: Page, log_in: Callable[[], None], runs: Runs
) -> None:
    log_in()
    page.goto(f"/runs/compare?runs={runs.sync},{MISSING},{runs.live}")
    expect(page.locator(f"[data-missing={MISSING}]")).to_contain_text("no run")
    points = "Number(document.querySelector(\"[data-chart='reward/mean']\")?.dataset.points ?? 0)"
    page.wait_for_function(f"() => {points} > {STEPS}")
    page.wait_for_function(f"least => {points} > least", arg=page.evaluate(f"() => {points}"))
    page.get_by_role("button", name="Remove it").click()
    expect(page.locator(f"[data-missing={MISSING}]")).to_have_count(0)
    expect(page).to_have_url(re.compile(f"{runs.sync}%2C%2C{runs.live}"))  # the place of its color stays


def test_the_page_has_no_accessibility_faults_in_either_theme(
    page: Page, log_in: Callable[[], None], runs: Runs
) -> None:
    log_in()
    page.emulate_media(reduced_motion="reduce")
    page.goto(f"/runs/compare?runs={runs.sync},{runs.asynchronous}&zoom=4..20")
    expect(chart(page, "reward/mean").locator("canvas")).to_be_visible()
    for scheme in ("light", "dark"):
        page.evaluate("scheme => document.documentElement.dataset.mantineColorScheme = scheme", scheme)
        faults = accessibility_faults(page)
        assert faults == [], f"{scheme}: " + "\n".join(faults)
    page.set_viewport_size({"width": 390, "height": 844})
    for table in (page.get_by_test_id("results"), page.get_by_test_id("config-diff")):
        assert table.evaluate("table => table.parentElement.scrollWidth") <= 390, "on a phone a run is a card"
    assert accessibility_faults(page) == []
