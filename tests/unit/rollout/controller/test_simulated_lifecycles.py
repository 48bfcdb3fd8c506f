"""No run stands still: live changes, engine crashes, pauses and resumes, under every straggler policy."""

from __future__ import annotations

import pytest

from gpu_agents.rollout.controller.controller import Controller
from tests.unit.rollout.simulated_lifecycle import check, play


@pytest.mark.parametrize("policy", ["keep", "drop", "wait"])
def test_a_disturbed_run_reaches_its_last_step(policy: str) -> None:
    attempts = sum(check(policy, seed).attempts for seed in range(40))
    assert attempts > 80, "hardly a run was resumed"


def test_a_run_whose_groups_lost_their_bounds_drops_them_and_reaches_its_last_step() -> None:
    """A resumed controller that knows only the bound in force now, as after a damaged snapshot."""

    def forget_bounds(controller: Controller) -> None:
        for held in [*controller.state.groups.waiting, *controller.state.groups.buffered.values()]:
            held.max_staleness = controller.state.config.gate.max_staleness

    told = [play("wait", seed, at_restart=forget_bounds) for seed in range(60)]
    stood_still = [run for run in told if run.standstills]
    assert stood_still, "no seed provokes the standstill: the test shows nothing"
    assert all(run.dropped["stale"] for run in stood_still)
