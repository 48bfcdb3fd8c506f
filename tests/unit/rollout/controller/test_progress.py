"""Milestones of an attempt, and the seconds for which it stands still in each way that there is."""

from __future__ import annotations

import pytest

from gpu_agents.rollout.controller.controller import Controller
from gpu_agents.rollout.controller.progress import AttemptProgress
from oolong.contracts.rollout import AckRequest, ClaimRequest, SubmitRequest, TakeRequest
from tests.unit.rollout.simulation import announcement, finished_group, new_controller, rules

WORKER = "rollout-0/0"


@pytest.fixture
def controller() -> Controller:
    return new_controller(rules(groups_per_step=2, max_staleness=0))


def acknowledge(controller: Controller, version: int) -> None:
    controller.workers.acknowledge(AckRequest(worker_id=WORKER, version=version, ok=True), now=0.0)


def generate(controller: Controller, groups: int, *, version: int = 0) -> None:
    claimed = controller.workers.claim(
        ClaimRequest(worker_id=WORKER, engine_version=version, max_groups=groups), now=0.0
    ).groups
    for one in claimed:
        group = finished_group(one, [version])
        controller.workers.submit(
            SubmitRequest(worker_id=WORKER, claim_id=one.claim_id, group=group), now=0.0
        )


def standstills(progress: AttemptProgress, controller: Controller, *, now: float) -> dict[str, float]:
    progress.update(controller.state, now=now)
    return {name: seconds for name, seconds in progress.stall_metrics(now=now).items() if seconds}


def test_each_milestone_has_the_time_at_which_it_was_first_reached(controller: Controller) -> None:
    progress = AttemptProgress()
    progress.update(controller.state, now=1.0)
    assert progress.milestones == {}
    controller.trainer.announce(announcement(0, "none"))
    progress.update(controller.state, now=2.0)
    acknowledge(controller, 0)
    progress.update(controller.state, now=3.0)
    generate(controller, 1)
    progress.update(controller.state, now=4.0)
    generate(controller, 1)
    controller.trainer.take(TakeRequest(version=0, groups=2), now=0.0)
    progress.update(controller.state, now=5.0)
    controller.trainer.announce(announcement(1))
    progress.update(controller.state, now=6.0)
    progress.update(controller.state, now=7.0)
    assert progress.milestones == {
        "trainer_ready": 2.0, "engine_serves": 3.0, "first_group": 4.0, "first_rollout": 5.0, "first_batch": 5.0,
        "first_step": 6.0,
    }  # fmt: skip


def test_a_batch_that_nobody_takes_is_a_standstill_until_it_is_taken(controller: Controller) -> None:
    progress = AttemptProgress()
    controller.trainer.announce(announcement(0, "none"))
    acknowledge(controller, 0)
    generate(controller, 2)
    assert standstills(progress, controller, now=10.0) == {}
    assert standstills(progress, controller, now=70.0) == {"buffer/batch_unclaimed_seconds": 60.0}
    controller.trainer.take(TakeRequest(version=0, groups=2), now=0.0)
    assert standstills(progress, controller, now=80.0) == {}


def test_a_closed_gate_with_nothing_running_is_a_standstill(controller: Controller) -> None:
    """The ledger holds groups that are nowhere, which no known way brings about; so the gate never opens."""
    progress = AttemptProgress()
    controller.trainer.announce(announcement(0, "none"))
    acknowledge(controller, 0)
    assert standstills(progress, controller, now=10.0) == {}, "the gate is open"
    controller.state.ledger.trained += 2
    assert controller.state.no_group_can_finish
    standstills(progress, controller, now=20.0)
    assert standstills(progress, controller, now=200.0) == {"gate/stalled_seconds": 180.0}


def test_weights_that_no_engine_has_loaded_are_a_standstill_once_one_had_served(
    controller: Controller,
) -> None:
    progress = AttemptProgress()
    controller.trainer.announce(announcement(0, "none"))
    assert standstills(progress, controller, now=10.0) == {}, "the engine boots: that has its own checklist"
    acknowledge(controller, 0)
    generate(controller, 2)
    controller.trainer.take(TakeRequest(version=0, groups=2), now=0.0)
    controller.trainer.announce(announcement(1))
    standstills(progress, controller, now=20.0)
    assert standstills(progress, controller, now=320.0) == {"weight_sync/unloaded_seconds": 300.0}
    acknowledge(controller, 1)
    assert standstills(progress, controller, now=330.0) == {}


def test_a_run_that_ends_stands_still_in_no_way(controller: Controller) -> None:
    progress = AttemptProgress()
    controller.trainer.announce(announcement(0, "none"))
    acknowledge(controller, 0)
    generate(controller, 2)
    standstills(progress, controller, now=10.0)
    controller.state.ending = "completed"
    assert standstills(progress, controller, now=500.0) == {}
