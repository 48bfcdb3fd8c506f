"""What may change while a run continues, at the controller: the gate obeys at once, the batches when they can."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from gpu_agents.rollout.controller.batch_assembler import TrainedBatch
from gpu_agents.rollout.controller.controller import Controller
from gpu_agents.rollout.controller.evaluations import EvaluationPlan
from gpu_agents.rollout.controller.prompt_order import one_source
from gpu_agents.rollout.controller.state import ControllerState
from oolong.contracts.rollout import (
    ClaimRequest,
    PartialTrajectory,
    ReleaseRequest,
    SubmitRequest,
    TakeRequest,
)
from oolong.contracts.runtime_overrides import LIVE_FILE, LiveFile, RuntimeOverrides
from tests.unit.rollout.simulation import (
    announcement,
    assert_ledger_is_true,
    finished_group,
    new_controller,
    prompt_of,
    rules,
    through_bytes,
)

WORKER = "rollout-0/0"


def controller_at(version: int = 0, *, max_staleness: int, policy: str = "wait") -> Controller:
    controller = new_controller(rules(max_staleness=max_staleness, policy=policy))
    controller.trainer.announce(announcement(0, "none"))
    for next_version in range(1, version + 1):
        train_one(controller, next_version)
    return controller


def train_one(controller: Controller, version: int) -> TrainedBatch:
    """B groups made at the newest version, taken, trained."""
    made = controller.workers.claim(
        ClaimRequest(worker_id=WORKER, engine_version=version - 1, max_groups=4), now=0.0
    ).groups
    for claimed in made:
        group = finished_group(claimed, [version - 1] * 3)
        controller.workers.submit(
            SubmitRequest(worker_id=WORKER, claim_id=claimed.claim_id, group=group), now=0.0
        )
    assert take(controller)
    batch = controller.trainer.announce(announcement(version))
    assert batch is not None
    return batch


def take(controller: Controller) -> list[object]:
    version = controller.state.versions.number
    return list(
        controller.trainer.take(TakeRequest(version=version, groups=4, wait_seconds=0.0), now=0.0).groups
    )


def test_a_higher_bound_opens_the_gate_at_once() -> None:
    controller = controller_at(max_staleness=0)
    assert controller.state.admission().groups == 4
    (note,) = controller.apply_overrides(RuntimeOverrides(revision=1, max_staleness=2))
    assert controller.state.admission().groups == 12
    assert "max staleness is 2 from version 0" in note


def test_a_lower_bound_closes_the_gate_and_does_not_wait_for_ever_for_groups_of_the_higher_one() -> None:
    controller = controller_at(max_staleness=2)
    claimed = controller.workers.claim(
        ClaimRequest(worker_id=WORKER, engine_version=0, max_groups=12), now=0.0
    ).groups
    assert len(claimed) == 12
    controller.apply_overrides(RuntimeOverrides(revision=1, max_staleness=0))
    assert (controller.state.admission().groups, controller.state.admission().refusal) == (0, "staleness")
    for one in claimed:
        group = finished_group(one, [0, 0, 0])
        controller.workers.submit(
            SubmitRequest(worker_id=WORKER, claim_id=one.claim_id, group=group), now=0.0
        )
    lags = []
    for version in (1, 2, 3):
        assert take(controller), f"the batch of version {version} is held back for ever"
        batch = controller.trainer.announce(announcement(version))
        assert batch is not None
        lags.append((max(batch.staleness.by_trajectory), batch.bound))
    assert lags == [(0, 2), (1, 2), (2, 2)], "what was admitted under 2 is trained under 2"
    assert train_one(controller, 4).bound == 0
    assert controller.state.ledger.counts().dropped == {}


def test_an_attempt_that_resumes_under_a_lowered_bound_still_trains_what_was_admitted_under_the_higher_one() -> (
    None
):
    controller = controller_at(4, max_staleness=2)
    claimed = controller.workers.claim(
        ClaimRequest(worker_id=WORKER, engine_version=4, max_groups=12), now=0.0
    ).groups
    for one in claimed:
        group = finished_group(one, [4, 4, 4])
        controller.workers.submit(
            SubmitRequest(worker_id=WORKER, claim_id=one.claim_id, group=group), now=0.0
        )
    resumed = new_controller(rules(max_staleness=2, policy="wait"), restored=controller.trainer.snapshot(4))
    (note,) = resumed.apply_overrides(
        RuntimeOverrides(revision=1, max_staleness=0)
    )  # as the server does before it opens
    assert "from version 4 on" in note
    resumed.trainer.announce(announcement(4, "none"))
    for version in (5, 6, 7):
        assert take(resumed), f"the batch of version {version} is held back for ever"
        resumed.trainer.announce(announcement(version))
    assert resumed.state.ledger.counts().dropped == {}


@pytest.mark.parametrize("policy", ["wait", "drop", "keep"])
def test_a_bound_that_was_raised_and_lowered_again_before_a_new_attempt_stops_no_run(policy: str) -> None:
    """The spec says 1. The buffer was filled under 6, the run is back at 1, and a new attempt knows only that."""
    controller = controller_at(2, max_staleness=1, policy=policy)
    controller.apply_overrides(RuntimeOverrides(revision=1, max_staleness=6))
    for one in controller.workers.claim(
        ClaimRequest(worker_id=WORKER, engine_version=2, max_groups=24), now=0.0
    ).groups:
        group = finished_group(one, [2, 2, 2])
        controller.workers.submit(
            SubmitRequest(worker_id=WORKER, claim_id=one.claim_id, group=group), now=0.0
        )
    controller.apply_overrides(RuntimeOverrides(revision=2, max_staleness=1))
    image = through_bytes(controller.trainer.snapshot(2))
    resumed = new_controller(rules(max_staleness=1, policy=policy), restored=image)
    resumed.apply_overrides(RuntimeOverrides(revision=2, max_staleness=1))
    resumed.trainer.announce(announcement(2, "none"))
    assert (len(resumed.state.groups.buffered), resumed.state.admission().groups) == (24, 0)
    for version in range(3, 9):
        assert take(resumed), f"the batch of version {version} is held back for ever"
        resumed.trainer.announce(announcement(version))
    assert resumed.state.ledger.counts().dropped == {}
    assert resumed.state.consumed.exceeded == 0
    assert resumed.state.admission().groups == 8


def test_when_nothing_can_happen_any_more_the_groups_that_are_too_old_go_and_the_run_says_so() -> None:
    """Bounds that do not fit the buffer come about by no known way, so this test forges them."""
    controller = controller_at(2, max_staleness=1)
    controller.apply_overrides(RuntimeOverrides(revision=1, max_staleness=6))
    for one in controller.workers.claim(
        ClaimRequest(worker_id=WORKER, engine_version=2, max_groups=24), now=0.0
    ).groups:
        group = finished_group(one, [2, 2, 2])
        controller.workers.submit(
            SubmitRequest(worker_id=WORKER, claim_id=one.claim_id, group=group), now=0.0
        )
    controller.apply_overrides(RuntimeOverrides(revision=2, max_staleness=1))
    controller.state.take_notes()
    for held in controller.state.groups.buffered.values():
        held.max_staleness = 1
    assert controller.state.no_group_can_finish
    assert take(controller)
    (note,) = controller.state.take_notes()
    assert "no progress was possible at version 2" in note and "16 finished groups" in note
    assert controller.state.ledger.counts().dropped == {"stale": 16}
    assert controller.state.counters.forced_drops == 1
    assert_ledger_is_true(controller)
    controller.trainer.announce(announcement(3))
    assert (
        take(controller)
        and controller.trainer.announce(announcement(4))
        and controller.state.admission().groups == 8
    )
    assert controller.state.consumed.exceeded == 0


def test_a_straggler_is_waited_for_while_it_is_generated_or_can_be_claimed() -> None:
    controller = controller_at(max_staleness=1)
    claimed = controller.workers.claim(
        ClaimRequest(worker_id=WORKER, engine_version=0, max_groups=8), now=0.0
    ).groups
    straggler, *others = claimed
    for one in others[:4]:
        group = finished_group(one, [0])
        controller.workers.submit(
            SubmitRequest(worker_id=WORKER, claim_id=one.claim_id, group=group), now=0.0
        )
    assert take(controller)
    controller.trainer.announce(announcement(1))
    fresh = controller.workers.claim(
        ClaimRequest(worker_id=WORKER, engine_version=1, max_groups=4), now=0.0
    ).groups
    for one in [*others[4:], *fresh]:
        group = finished_group(one, [1 if one in fresh else 0])
        controller.workers.submit(
            SubmitRequest(worker_id=WORKER, claim_id=one.claim_id, group=group), now=0.0
        )
    assert not take(controller) and not controller.state.no_group_can_finish
    begun = finished_group(straggler, [0]).trajectories[0]
    member = PartialTrajectory(index=0, finished=False, trajectory=begun)
    controller.workers.release(
        ReleaseRequest(worker_id=WORKER, claim_id=straggler.claim_id, members=[member]), now=0.0
    )
    assert not take(controller) and not controller.state.no_group_can_finish
    assert controller.state.ledger.counts().dropped == {} and controller.state.counters.forced_drops == 0
    (again,) = controller.workers.claim(
        ClaimRequest(worker_id=WORKER, engine_version=1, max_groups=1), now=0.0
    ).groups
    group = finished_group(again, [0, 1])
    controller.workers.submit(SubmitRequest(worker_id=WORKER, claim_id=again.claim_id, group=group), now=0.0)
    assert straggler.group_id in {held["group_id"] for held in msgspec.to_builtins(take(controller))}


def test_concurrency_changes_and_a_change_to_the_same_says_nothing() -> None:
    controller = controller_at(max_staleness=4)
    (note,) = controller.apply_overrides(RuntimeOverrides(revision=1, max_concurrent_groups=3))
    assert controller.state.admission().groups == 3 and "at most 3 groups" in note
    assert controller.apply_overrides(RuntimeOverrides(revision=2, max_concurrent_groups=3)) == []


def test_a_request_for_an_evaluation_without_a_plan_says_why_not() -> None:
    assert "no evaluation section" in controller_at(max_staleness=1).evaluate_now(1)


def test_an_evaluation_that_is_asked_for_takes_the_only_engine_and_says_what_that_costs() -> None:
    plan = EvaluationPlan(prompts=[prompt_of(0)], samples=0, temperature=1.0, at_start=False, at_end=False)
    controller = Controller(
        ControllerState(
            config=rules(max_staleness=1), prompts=one_source(range(9)), prompt_of=prompt_of, evaluation=plan
        )
    )
    controller.trainer.announce(announcement(0, "none"))
    train_one(controller, 1)
    said = controller.evaluate_now(1)
    assert "version 1 is evaluated as asked-1" in said and "the only engine" in said
    assert "in progress" in controller.evaluate_now(2)
    claim = controller.workers.claim(ClaimRequest(worker_id=WORKER, engine_version=1, max_groups=4), now=0.0)
    assert claim.evaluation is not None and (claim.evaluation.version, claim.groups) == (1, [])


def test_a_job_sees_each_change_once_and_takes_earlier_requests_as_granted(tmp_path: Path) -> None:
    def write(**fields: object) -> None:
        (tmp_path / LIVE_FILE).write_bytes(msgspec.json.encode(RuntimeOverrides(**fields)))  # type: ignore[arg-type]

    assert LiveFile(tmp_path).settings == RuntimeOverrides()
    write(revision=3, max_staleness=2, checkpoint_requests=5)
    live = LiveFile(tmp_path)
    assert (live.settings.max_staleness, live.before.checkpoint_requests) == (2, 5)
    assert not live.poll()
    write(revision=4, max_staleness=2, checkpoint_requests=6)
    assert live.poll()
    assert live.settings.checkpoint_requests - live.before.checkpoint_requests == 1
    assert not live.poll()


def test_a_damaged_file_is_an_error_and_no_silent_default(tmp_path: Path) -> None:
    (tmp_path / LIVE_FILE).write_bytes(b"{")
    with pytest.raises(msgspec.DecodeError):
        LiveFile(tmp_path)
