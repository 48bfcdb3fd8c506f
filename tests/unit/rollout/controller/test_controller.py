"""SEMANTICS section 2: claims, late calls, repeats, fates. Each test drives one controller by hand."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gpu_agents.rollout.controller.claims import CLAIM_TTL_SECONDS
from gpu_agents.rollout.controller.controller import Controller
from gpu_agents.rollout.controller.evaluations import EvaluationPlan
from gpu_agents.rollout.controller.group_store import StaleClaim
from gpu_agents.rollout.controller.ledger import DropReason, Ledger, LedgerState
from gpu_agents.rollout.controller.prompt_order import one_source
from gpu_agents.rollout.controller.snapshot import InvalidSnapshot
from gpu_agents.rollout.controller.state import ControllerState
from gpu_agents.rollout.controller.versions import VersionConflict
from oolong.contracts.rollout import (
    AckRequest,
    ClaimedGroup,
    ClaimRequest,
    EndRequest,
    EvaluationResult,
    FailRequest,
    PartialTrajectory,
    ReleaseRequest,
    RenewRequest,
    StaleEngineRequest,
    SubmitRequest,
    TakeRequest,
    Trajectory,
)
from oolong.contracts.runtime_overrides import RuntimeOverrides
from tests.unit.rollout.simulation import (
    announcement,
    assert_ledger_is_true,
    finished_group,
    new_controller,
    prompt_of,
    rules,
)

ALICE, BOB = "rollout-0/0", "rollout-1/0"


@pytest.fixture
def controller() -> Controller:
    """B = 4, eta = 1, version 0 announced."""
    controller = new_controller(rules())
    controller.trainer.announce(announcement(0, "none"))
    return controller


def claim(
    controller: Controller, worker: str = ALICE, groups: int = 1, now: float = 0.0
) -> list[ClaimedGroup]:
    version = controller.state.versions.number
    request = ClaimRequest(worker_id=worker, engine_version=version, max_groups=groups)
    return controller.workers.claim(request, now=now).groups


def submit(
    controller: Controller, claimed: ClaimedGroup, worker: str = ALICE, now: float = 0.0, tokens: int = 3
) -> None:
    group = finished_group(claimed, [claimed.claim_version] * tokens)
    controller.workers.submit(
        SubmitRequest(worker_id=worker, claim_id=claimed.claim_id, group=group), now=now
    )


def take(controller: Controller, version: int = 0) -> list[str]:
    reply = controller.trainer.take(TakeRequest(version=version, groups=4), now=0.0)
    return [group.group_id for group in reply.groups]


def test_nothing_is_handed_out_before_the_first_version(controller: Controller) -> None:
    fresh = new_controller(rules())
    reply = fresh.workers.claim(ClaimRequest(worker_id=ALICE, engine_version=-1, max_groups=1), now=0.0)
    assert (reply.groups, reply.refusal) == ([], "paused")


def test_an_engine_behind_the_newest_version_gets_nothing_but_the_reason(controller: Controller) -> None:
    for claimed in claim(controller, groups=4):
        submit(controller, claimed)
    take(controller)
    controller.trainer.announce(announcement(1))
    reply = controller.workers.claim(ClaimRequest(worker_id=ALICE, engine_version=0, max_groups=1), now=0.0)
    assert (reply.groups, reply.refusal, reply.newest_version) == ([], "engine_behind", 1)


def test_the_gate_closes_after_eta_plus_1_batches(controller: Controller) -> None:
    assert len(claim(controller, groups=100)) == 8
    reply = controller.workers.claim(ClaimRequest(worker_id=ALICE, engine_version=0, max_groups=1), now=0.0)
    assert reply.refusal == "staleness"


def test_a_claim_that_is_not_renewed_goes_to_another_worker_and_its_submit_is_late(
    controller: Controller,
) -> None:
    [first] = claim(controller)
    controller.timers.tick(now=CLAIM_TTL_SECONDS + 1)
    [again] = claim(controller, BOB, now=CLAIM_TTL_SECONDS + 1)
    assert (again.group_id, again.claim_id != first.claim_id) == (first.group_id, True)
    with pytest.raises(StaleClaim):
        submit(controller, first)
    counts = controller.state.ledger.counts()
    assert (counts.late_submits, counts.running, counts.drawn) == (1, 1, 1)
    assert controller.state.tokens.counts().dropped == {"stale_claim": 3}
    submit(controller, again, BOB)
    assert_ledger_is_true(controller)


def test_a_claim_that_its_living_worker_does_not_name_any_more_is_lost(controller: Controller) -> None:
    first, second = claim(controller, groups=2)
    controller.workers.renew(RenewRequest(worker_id=ALICE, claim_ids=[second.claim_id]), now=20.0)
    controller.timers.tick(now=CLAIM_TTL_SECONDS + 1)
    assert [held.group_id for held in controller.state.groups.waiting] == [first.group_id]
    assert list(controller.state.groups.running) == [second.group_id]
    assert_ledger_is_true(controller)


def test_a_renewed_claim_lives_on_and_a_foreign_one_is_lost(controller: Controller) -> None:
    [claimed] = claim(controller)
    for second in range(5, 100, 5):
        reply = controller.workers.renew(
            RenewRequest(worker_id=ALICE, claim_ids=[claimed.claim_id]), now=float(second)
        )
        assert reply.lost == []
        controller.timers.tick(now=float(second))
    reply = controller.workers.renew(RenewRequest(worker_id=BOB, claim_ids=[claimed.claim_id]), now=100.0)
    assert reply.lost == [claimed.claim_id]


def test_group_wall_seconds_ends_a_claim_however_often_it_is_renewed() -> None:
    controller = new_controller(rules(group_timeout_seconds=20.0))
    controller.trainer.announce(announcement(0, "none"))
    [claimed] = claim(controller)
    controller.workers.renew(RenewRequest(worker_id=ALICE, claim_ids=[claimed.claim_id]), now=19.0)
    controller.timers.tick(now=21.0)
    assert controller.state.ledger.counts().errors == {"group_timeout_seconds": 1}
    assert controller.state.admission().groups == 8
    assert_ledger_is_true(controller)


def test_a_repeated_submit_changes_nothing(controller: Controller) -> None:
    [claimed] = claim(controller)
    submit(controller, claimed)
    submit(controller, claimed)
    assert controller.state.ledger.counts().buffered == 1
    assert controller.state.ledger.counts().late_submits == 0
    assert_ledger_is_true(controller)


def test_a_repeated_take_gives_the_same_batch_and_a_repeated_announcement_nothing(
    controller: Controller,
) -> None:
    for claimed in claim(controller, groups=4):
        submit(controller, claimed)
    batch = take(controller)
    assert take(controller) == batch
    assert controller.trainer.announce(announcement(1)) is not None
    assert controller.trainer.announce(announcement(1)) is None
    assert controller.state.ledger.counts().trained == 4


def test_a_reward_error_is_a_drop_whose_place_returns(controller: Controller) -> None:
    claimed = claim(controller, groups=8)
    assert controller.state.admission().groups == 0
    request = FailRequest(
        worker_id=ALICE,
        claim_id=claimed[0].claim_id,
        reason="reward_error",
        message="no",
        generated_tokens=11,
    )
    controller.workers.fail(request, now=0.0)
    controller.workers.fail(request, now=0.0)  # repeated: its reply was lost
    counts = controller.state.ledger.counts()
    assert (counts.dropped, counts.errors) == ({"error": 1}, {"reward_error": 1})
    assert controller.state.tokens.counts().dropped == {"error": 11}
    assert controller.state.admission().groups == 1
    assert_ledger_is_true(controller)


def test_a_group_given_back_keeps_its_tokens_and_is_claimed_first(controller: Controller) -> None:
    first, _second = claim(controller, groups=2)
    part = PartialTrajectory(
        index=0,
        finished=False,
        trajectory=Trajectory(
            token_ids=[1, 2],
            loss_mask=[1, 1],
            behavior_logprobs=[-1.0, -1.0],
            policy_versions=[0, 0],
            finish_reason="abort",
        ),
    )
    request = ReleaseRequest(worker_id=ALICE, claim_id=first.claim_id, members=[part])
    controller.workers.release(request, now=0.0)
    controller.workers.release(request, now=0.0)  # repeated: its reply was lost
    assert controller.state.tokens.counts().in_hand == 2
    [again] = claim(controller, BOB)
    assert (again.group_id, again.partial) == (first.group_id, [part])
    submit(controller, again, BOB, tokens=5)
    assert controller.state.tokens.counts().generated == 5
    assert_ledger_is_true(controller)


def partial(versions: list[int]) -> PartialTrajectory:
    trajectory = Trajectory(
        token_ids=[1] * len(versions), loss_mask=[1] * len(versions), behavior_logprobs=[-1.0] * len(versions),
        policy_versions=versions, finish_reason="abort",
    )  # fmt: skip
    return PartialTrajectory(index=0, finished=False, trajectory=trajectory)


def give_back(controller: Controller, claimed: ClaimedGroup, versions: list[int]) -> None:
    members = [partial(versions)] if versions else []
    request = ReleaseRequest(worker_id=ALICE, claim_id=claimed.claim_id, members=members)
    controller.workers.release(request, now=0.0)


def test_groups_given_back_in_any_order_are_claimed_in_theirs(controller: Controller) -> None:
    claimed = claim(controller, groups=3)
    for one in (claimed[1], claimed[2], claimed[0]):
        give_back(controller, one, [])
    again = claim(controller, BOB, groups=3)
    assert [one.group_id for one in again] == [one.group_id for one in claimed]


def test_a_group_given_back_waits_for_room_among_those_that_run(controller: Controller) -> None:
    first, _second = claim(controller, groups=2)
    give_back(controller, first, [])
    controller.apply_overrides(RuntimeOverrides(revision=1, max_concurrent_groups=1))
    reply = controller.workers.claim(ClaimRequest(worker_id=BOB, engine_version=0, max_groups=9), now=0.0)
    assert (reply.groups, reply.refusal) == ([], "concurrency")


def one_by_one(policy: str) -> tuple[Controller, ClaimedGroup]:
    """B = 1, eta = 1, at version 1: a group that has tokens of version 0, and waits for the second time."""
    controller = new_controller(rules(groups_per_step=1, policy=policy))
    controller.trainer.announce(announcement(0, "none"))
    old, second = claim(controller, groups=2)
    give_back(controller, old, [0, 0])
    submit(controller, second)
    assert controller.trainer.take(TakeRequest(version=0, groups=1), now=0.0).groups
    controller.trainer.announce(announcement(1))
    again, third = claim(controller, groups=2)
    assert again.group_id == old.group_id
    give_back(controller, again, [0, 0])
    submit(controller, third)
    return controller, old


def test_wait_waits_for_the_tokens_of_a_group_that_nobody_generates_now() -> None:
    controller, old = one_by_one("wait")
    for now in (2.0, 3.0):
        assert not controller.trainer.take(TakeRequest(version=1, groups=1), now=now).groups
    [again] = claim(controller, BOB)
    group = finished_group(again, [0, 0, 1])
    controller.workers.submit(SubmitRequest(worker_id=BOB, claim_id=again.claim_id, group=group), now=4.0)
    reply = controller.trainer.take(TakeRequest(version=1, groups=1), now=7.0)
    assert [taken.group_id for taken in reply.groups] == [old.group_id]
    assert reply.straggler_wait_seconds == controller.state.counters.straggler_wait_seconds == 5.0
    assert_ledger_is_true(controller)


def test_drop_cancels_what_was_given_back_and_counts_its_tokens_at_the_version_that_it_is_too_old_for() -> (
    None
):
    controller, _old = one_by_one("drop")
    assert controller.trainer.take(TakeRequest(version=1, groups=1), now=0.0).groups
    assert controller.state.groups.dropped.by_token == {}
    controller.trainer.announce(announcement(2))
    assert controller.state.groups.waiting == ()
    assert controller.state.groups.dropped.by_token == {"stale": {2: 2}}
    assert controller.state.tokens.counts().dropped == {"stale": 2}
    assert controller.state.groups.selection_bias.dropped_trajectories == 0, "it has no length yet"
    assert_ledger_is_true(controller)


def test_a_nonfinite_step_drops_its_batch_and_raises_no_version(controller: Controller) -> None:
    for claimed in claim(controller, groups=4):
        submit(controller, claimed)
    take(controller)
    controller.trainer.announce(announcement(0, "nonfinite"))
    counts = controller.state.ledger.counts()
    assert (counts.dropped, counts.trained, controller.state.versions.number) == ({"nonfinite": 4}, 0, 0)
    assert controller.state.admission().groups == 8
    assert_ledger_is_true(controller)


def test_a_batch_is_refused_at_another_version_than_the_announced_one(controller: Controller) -> None:
    with pytest.raises(VersionConflict, match="got version 1, expected 0"):
        take(controller, version=1)
    with pytest.raises(VersionConflict, match="no batch was taken"):
        controller.trainer.announce(announcement(1))


def test_drop_cancels_what_the_next_version_would_make_too_old() -> None:
    controller = new_controller(rules(max_staleness=0, policy="drop"))
    controller.trainer.announce(announcement(0, "none"))
    *batch, last = claim(controller, groups=4)
    request = FailRequest(worker_id=ALICE, claim_id=last.claim_id, reason="filtered", message="")
    controller.workers.fail(request, now=0.0)
    straggler = claim(controller)[0]
    for claimed in batch:
        submit(controller, claimed)
    reply = controller.trainer.take(TakeRequest(version=0, groups=3), now=0.0)
    assert len(reply.groups) == 3
    controller.trainer.announce(announcement(1))
    lost = controller.workers.renew(
        RenewRequest(worker_id=ALICE, claim_ids=[straggler.claim_id]), now=0.0
    ).lost
    assert lost == [straggler.claim_id]
    assert controller.state.ledger.counts().dropped == {"filtered": 1, "stale": 1}
    assert_ledger_is_true(controller)


def test_an_engine_that_leaves_gives_its_place_and_its_groups_up_at_once(controller: Controller) -> None:
    claimed = claim(controller, groups=2)
    controller.workers.load_claim(ALICE, now=0.0)
    controller.workers.deregister(ALICE)
    controller.workers.deregister(ALICE)
    assert (
        controller.state.engines.all(),
        controller.state.engines.left,
        controller.state.versions.loading,
    ) == ([], 1, 0)
    assert [c.group_id for c in claim(controller, BOB, groups=2, now=1.0)] == [c.group_id for c in claimed]
    assert_ledger_is_true(controller)


def test_a_jobs_next_incarnation_takes_over_what_the_dead_one_had(controller: Controller) -> None:
    claimed = claim(controller, "rollout-0/0", groups=2)
    assert claim(controller, "rollout-10/0")
    again = claim(controller, "rollout-0/1", groups=2, now=1.0)
    assert [c.group_id for c in again] == [c.group_id for c in claimed]
    assert {e.worker_id for e in controller.state.engines.all()} == {"rollout-10/0", "rollout-0/1"}
    with pytest.raises(StaleClaim):
        submit(controller, claimed[0], "rollout-0/0", now=2.0)
    assert_ledger_is_true(controller)


def test_a_silent_engine_is_no_part_of_the_run_and_may_come_back(controller: Controller) -> None:
    claim(controller)
    claim(controller, BOB)
    controller.workers.renew(RenewRequest(worker_id=BOB, claim_ids=[]), now=20.0)
    notes = controller.timers.tick(now=31.0)
    assert any("rollout-0/0 timed out: the run continues" in note for note in notes)
    assert [e.worker_id for e in controller.state.engines.all()] == [BOB]
    assert claim(controller, ALICE, now=40.0)
    assert controller.state.engines.joined == 3
    assert_ledger_is_true(controller)


def test_a_stale_engine_gets_no_claims_until_it_loads_a_newer_version(controller: Controller) -> None:
    controller.workers.acknowledge(AckRequest(worker_id=ALICE, version=0, ok=True), now=0.0)
    controller.trainer.mark_stale(StaleEngineRequest(worker_id=ALICE, version=0, max_difference=0.3), now=0.0)
    assert claim(controller) == []
    for claimed in claim(controller, BOB, groups=4):
        submit(controller, claimed, BOB)
    take(controller)
    controller.trainer.announce(announcement(1))
    controller.workers.acknowledge(AckRequest(worker_id=ALICE, version=1, ok=True), now=0.0)
    assert len(claim(controller)) == 1


def test_a_stale_engine_that_loads_the_same_version_again_is_stale_still(controller: Controller) -> None:
    controller.workers.acknowledge(AckRequest(worker_id=ALICE, version=0, ok=True), now=0.0)
    controller.trainer.mark_stale(StaleEngineRequest(worker_id=ALICE, version=0, max_difference=0.3), now=0.0)
    controller.workers.acknowledge(AckRequest(worker_id=ALICE, version=0, ok=True), now=0.0)
    assert claim(controller) == []


def test_a_run_whose_every_engine_is_stale_is_stuck_until_one_is_not(controller: Controller) -> None:
    assert controller.timers.all_stale_seconds(now=0.0) == 0.0
    controller.workers.acknowledge(AckRequest(worker_id=ALICE, version=0, ok=False), now=0.0)
    assert [controller.timers.all_stale_seconds(now=now) for now in (1.0, 11.0)] == [0.0, 10.0]
    controller.workers.acknowledge(AckRequest(worker_id=BOB, version=0, ok=True), now=12.0)
    assert controller.timers.all_stale_seconds(now=12.0) == 0.0


def test_an_outdated_report_does_not_make_an_engine_stale(controller: Controller) -> None:
    controller.workers.acknowledge(AckRequest(worker_id=ALICE, version=3, ok=True), now=0.0)
    assert not controller.trainer.mark_stale(
        StaleEngineRequest(worker_id=ALICE, version=2, max_difference=1.0), now=0.0
    ).stale


def test_a_failed_load_makes_the_engine_stale(controller: Controller) -> None:
    controller.workers.acknowledge(
        AckRequest(worker_id=ALICE, version=0, ok=False, message="truncated"), now=0.0
    )
    assert claim(controller) == []


def test_a_group_of_a_wrong_shape_is_refused(controller: Controller) -> None:
    [claimed] = claim(controller)
    group = finished_group(claimed, [])
    with pytest.raises(ValueError, match="four lists"):
        controller.workers.submit(
            SubmitRequest(worker_id=ALICE, claim_id=claimed.claim_id, group=group), now=0.0
        )
    whole = finished_group(claimed, [0, 0])
    unscored = replace(whole, trajectories=[replace(t, reward=None) for t in whole.trajectories])
    with pytest.raises(ValueError, match="trajectory 0 has no reward"):
        controller.workers.submit(
            SubmitRequest(worker_id=ALICE, claim_id=claimed.claim_id, group=unscored), now=0.0
        )
    assert controller.state.ledger.counts().running == 1


def test_at_the_end_unused_groups_are_dropped_and_everybody_is_notified(controller: Controller) -> None:
    running, buffered, *_ = claim(controller, groups=6)
    submit(controller, buffered)
    controller.trainer.end(EndRequest(reason="completed"))
    assert controller.state.ledger.counts().dropped == {"run_end": 6}
    assert_ledger_is_true(controller)
    reply = controller.workers.renew(RenewRequest(worker_id=ALICE, claim_ids=[running.claim_id]), now=1.0)
    assert reply.ended and reply.lost == [running.claim_id]
    assert controller.state.end_acked_by_all(now=1.0)


PLAN = EvaluationPlan(
    prompts=[prompt_of(0), prompt_of(1)], samples=1, temperature=1.0, at_start=True, at_end=True
)


def evaluated(task_id: str, worker: str = ALICE) -> EvaluationResult:
    return EvaluationResult(
        worker_id=worker, task_id=task_id, greedy_scores=[1.0, 0.0], sampled_scores=[[1.0], [1.0]],
        mean_tokens=4.0, seconds=1.0,
    )  # fmt: skip


def with_evaluation() -> Controller:
    controller = Controller(
        ControllerState(config=rules(), prompts=one_source(range(9)), prompt_of=prompt_of, evaluation=PLAN)
    )
    controller.trainer.announce(announcement(0, "none"))
    return controller


def test_the_first_engine_evaluates_before_it_gets_claims_and_the_other_does_not_wait() -> None:
    controller = with_evaluation()
    request = ClaimRequest(worker_id=ALICE, engine_version=0, max_groups=1)
    task = controller.workers.claim(request, now=0.0).evaluation
    assert task is not None and task.label == "start"
    assert len(claim(controller, BOB)) == 1
    assert controller.workers.finish_evaluation(evaluated(task.task_id), now=0.0) is not None
    assert len(claim(controller)) == 1
    assert controller.state.evaluations.scores["start"].greedy == 0.5
    assert controller.state.ledger.counts().drawn == 2


def test_an_evaluation_whose_worker_fell_silent_goes_to_another() -> None:
    controller = with_evaluation()
    claim(controller)
    assert claim(controller, BOB, now=1.0)
    controller.timers.tick(now=45.0)
    task = controller.workers.claim(
        ClaimRequest(worker_id=BOB, engine_version=0, max_groups=1), now=45.0
    ).evaluation
    assert task is not None


def test_an_engine_that_moved_on_gives_the_evaluation_up() -> None:
    controller = with_evaluation()
    assert controller.workers.claim(
        ClaimRequest(worker_id=ALICE, engine_version=0, max_groups=1), now=0.0
    ).evaluation
    for claimed in claim(controller, BOB, groups=4):
        submit(controller, claimed, BOB)
    take(controller)
    controller.trainer.announce(announcement(1))
    assert len(claim(controller)) == 1
    notes = controller.timers.tick(now=1.0)
    assert any("start was skipped" in note for note in notes)


def test_the_closing_evaluation_comes_between_the_last_batch_and_the_end() -> None:
    controller = with_evaluation()
    task = controller.workers.claim(
        ClaimRequest(worker_id=ALICE, engine_version=0, max_groups=1), now=0.0
    ).evaluation
    assert task is not None
    controller.workers.finish_evaluation(evaluated(task.task_id), now=0.0)
    controller.trainer.end(EndRequest(reason="completed"))
    assert not controller.state.ended
    closing = controller.workers.claim(
        ClaimRequest(worker_id=ALICE, engine_version=0, max_groups=1), now=1.0
    ).evaluation
    assert closing is not None and closing.label == "end"
    controller.workers.finish_evaluation(evaluated(closing.task_id), now=2.0)
    assert controller.state.ended


def test_a_stopped_run_is_not_evaluated_and_a_lost_evaluation_does_not_hold_the_end() -> None:
    controller = with_evaluation()
    controller.trainer.end(EndRequest(reason="stopped"))
    assert controller.state.ended
    other = with_evaluation()
    claim(other, now=0.0)
    other.trainer.end(EndRequest(reason="completed"))
    other.timers.tick(now=70.0)
    assert other.state.ended


def test_a_snapshot_of_another_run_is_refused(controller: Controller) -> None:
    snapshot = controller.trainer.snapshot(0)
    with pytest.raises(InvalidSnapshot, match="seed=1"):
        new_controller(rules(seed=2), restored=snapshot)


def test_a_resumed_controller_refuses_a_trainer_of_another_version(controller: Controller) -> None:
    restored = new_controller(rules(), restored=controller.trainer.snapshot(0))
    with pytest.raises(VersionConflict, match="must resume one checkpoint"):
        restored.trainer.announce(announcement(3, "none"))
    with pytest.raises(VersionConflict, match="resume_directory"):
        new_controller(rules()).trainer.announce(announcement(3, "none"))


def test_tokens_that_a_dead_attempt_made_after_its_snapshot_are_counted_as_lost(
    controller: Controller,
) -> None:
    for claimed in claim(controller, groups=2):
        submit(controller, claimed, tokens=5)
    snapshot = controller.trainer.snapshot(0)
    told = controller.state.tokens.generated + 40  # what the attempt said it had made when it died

    second = new_controller(rules(), restored=snapshot, tokens_generated_before=told)
    assert (second.state.tokens.generated, second.state.tokens.lost_to_recovery) == (told, 40)
    second.trainer.announce(announcement(0, "none"))
    submit(second, claim(second)[0], tokens=7)
    made = second.state.tokens.generated
    # It dies before a snapshot of its own: the third continues from the first one's, and loses both parts.
    third = new_controller(rules(), restored=snapshot, tokens_generated_before=made)
    assert third.state.tokens.lost_to_recovery == made - snapshot.tokens.generated
    # And its own snapshot hands the loss on.
    third.trainer.announce(announcement(0, "none"))
    heir = new_controller(rules(), restored=third.trainer.snapshot(0), tokens_generated_before=made)
    assert heir.state.tokens.lost_to_recovery == third.state.tokens.lost_to_recovery
    assert second.state.tokens.balances and third.state.tokens.balances and heir.state.tokens.balances


def test_an_attempt_that_starts_from_nothing_has_lost_all_that_was_made_before() -> None:
    fresh = new_controller(rules(), tokens_generated_before=123)
    assert (fresh.state.tokens.generated, fresh.state.tokens.lost_to_recovery) == (123, 123)
    assert fresh.state.tokens.balances


def test_a_ledger_that_lost_count_says_so_and_moves_nothing() -> None:
    ledger = Ledger()
    ledger.add_new()
    before = ledger.counts()
    for wrong in (
        lambda: ledger.move(LedgerState.BUFFERED, LedgerState.TAKEN),
        lambda: ledger.move(LedgerState.WAITING, LedgerState.RUNNING, 2),
        lambda: ledger.drop(LedgerState.RUNNING, DropReason.ERROR),
        lambda: ledger.train(1),
    ):
        with pytest.raises(RuntimeError, match="a move was not counted"):
            wrong()
    assert ledger.counts() == before and ledger.balances
