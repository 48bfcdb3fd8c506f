"""What a run says of its staleness: configured, realized, and what to do where they differ."""

from __future__ import annotations

from typing import Any

import pytest

from control_plane.runs.models import Run

REALIZED = {
    "staleness/mean": 2.5,
    "staleness/max": 5.0,
    "staleness/bound": 2.0,
    "staleness/exceeded_groups": 12.0,
}


def test_nothing_is_said_while_the_bound_holds(alice: Any) -> None:
    run = alice.run(staleness={"max": 2})
    Run.objects.filter(pk=run["id"]).update(metrics={**REALIZED, "staleness/exceeded_groups": 0.0})
    shown = alice.see(run["id"])["staleness"]
    assert (shown["max"], shown["on_straggler"], shown["realized_max"], shown["message"]) == (
        2,
        "keep",
        5,
        "",
    )


@pytest.mark.parametrize(("live", "bound"), [({}, 2), ({"revision": 1, "max_staleness": 3}, 3)])
def test_an_exceeded_bound_is_said_with_its_count_and_the_way_out(alice: Any, live: Any, bound: int) -> None:
    run = alice.run(staleness={"max": 2}, trainer={"groups_per_step": 4})
    Run.objects.filter(pk=run["id"]).update(metrics=REALIZED, policy_version=10, live=live)
    shown = alice.see(run["id"])["staleness"]
    assert (shown["max"], shown["exceeded_groups"], shown["trained_groups"]) == (bound, 12, 40)
    assert shown["message"].startswith("12 of 40 trained groups (30%) were older than max staleness")
    assert "mean 2.5, oldest 5, bound 2" in shown["message"]
    assert "staleness.on_straggler to wait" in shown["message"]


def test_a_warm_start_has_no_staleness(alice: Any) -> None:
    run = alice.run()
    Run.objects.filter(pk=run["id"]).update(kind="sft")
    assert alice.see(run["id"])["staleness"] is None
