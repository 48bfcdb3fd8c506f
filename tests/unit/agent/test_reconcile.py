"""The agent's decision, as a table of situations."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpu_agents.agent.reconcile import (
    CRASH_REASONS,
    Action,
    End,
    Inputs,
    Kill,
    Launch,
    NodeState,
    Observation,
    Phase,
    Preparation,
    Prepare,
    Reject,
    Remove,
    Restart,
    Stop,
    reconcile,
)
from oolong.contracts.agent import Artifact, DesiredAttempt, DesiredJob
from oolong.contracts.attempt import JobResult
from oolong.contracts.lifecycle import EndReason, JobKind

NOW = 1_000_000.0
READY = {"att_1": Inputs(Preparation.READY)}


def job(
    name: str = "rollout-0", *, kind: JobKind = JobKind.ROLLOUT, restarts: int = 3, stop: bool = False
) -> DesiredJob:
    return DesiredJob(
        job_id=f"job_{name}", name=name, kind=kind, index=0, slots=[], restarts=restarts, stop=stop
    )


def attempt(*jobs: DesiredJob, epoch: int = 1) -> DesiredAttempt:
    artifact = Artifact(sha256="0" * 64, bytes=1, kind="dataset")
    return DesiredAttempt(
        run_id="run_1", attempt_id="att_1", attempt_number=1, epoch=epoch, spec={}, dataset=artifact, evaluation=None,
        model=None, model_path="/models/tiny", resume=None, ports={}, token="t", jobs=list(jobs),
    )  # fmt: skip


def observation(
    name: str = "rollout-0", phase: Phase = Phase.ALIVE, *, kind: JobKind = JobKind.ROLLOUT, epoch: int = 1
) -> Observation:
    return Observation(job_id=f"job_{name}", attempt_id="att_1", epoch=epoch, kind=kind, phase=phase)


def decide(
    *desired: DesiredAttempt,
    observations: list[Observation] | None = None,
    inputs: object = READY,
    acknowledged: tuple[str, ...] = (),
) -> list[Action]:
    state = NodeState({item.job_id: item for item in observations or []}, inputs, acknowledged)  # type: ignore[arg-type]
    return reconcile(desired, state, now=NOW)


def test_a_new_attempt_is_prepared_once_before_its_jobs_start() -> None:
    wanted = attempt(job("controller"), job("trainer"))
    assert decide(wanted, inputs={}) == [Prepare(wanted)]
    assert decide(wanted, inputs={"att_1": Inputs(Preparation.RUNNING)}) == []
    assert decide(wanted) == [Launch(wanted, wanted.jobs[0]), Launch(wanted, wanted.jobs[1])]


def test_a_failed_preparation_ends_every_job_with_its_message() -> None:
    wanted = attempt(job())
    failed = {"att_1": Inputs(Preparation.FAILED, EndReason.PREPARATION_FAILED, "port 5 is taken")}
    assert decide(wanted, inputs=failed) == [
        Reject(wanted, wanted.jobs[0], EndReason.PREPARATION_FAILED, "port 5 is taken")
    ]


def test_a_job_that_is_to_stop_and_never_started_is_reported_as_stopped() -> None:
    wanted = attempt(job(stop=True))
    (action,) = decide(wanted, inputs={})
    assert isinstance(action, Reject) and action.reason is EndReason.STOPPED_BY_USER


def test_what_runs_as_desired_is_left_alone() -> None:
    assert decide(attempt(job()), observations=[observation()]) == []


def test_a_stop_asks_once_then_kills_after_the_grace_period() -> None:
    wanted = attempt(job(stop=True))
    alive = observation()
    assert decide(wanted, observations=[alive]) == [Stop(alive.job_id)]
    asked = dataclasses.replace(alive, stop_sent_at=NOW - 14.0)
    assert decide(wanted, observations=[asked]) == []
    overdue = dataclasses.replace(alive, stop_sent_at=NOW - 15.0)
    assert decide(wanted, observations=[overdue]) == [Kill(alive.job_id)]
    assert decide(wanted, observations=[dataclasses.replace(overdue, kill_sent_at=NOW)]) == []


def test_a_dead_engine_worker_is_restarted_until_the_window_is_used_up() -> None:
    wanted = attempt(job())
    dead = dataclasses.replace(observation(phase=Phase.GONE), exit_code=-9)
    assert decide(wanted, observations=[dead]) == [
        Restart(wanted, wanted.jobs[0], "was killed by signal 9", 1)
    ]
    twice = dataclasses.replace(dead, restarted_at=(NOW - 500, NOW - 10))
    assert isinstance(decide(wanted, observations=[twice])[0], Restart)
    thrice = dataclasses.replace(dead, restarted_at=(NOW - 500, NOW - 10, NOW - 5))
    (action,) = decide(wanted, observations=[thrice])
    assert action == End(dead.job_id, EndReason.ROLLOUT_CRASH_LOOP, action.message)
    assert action.message == "rollout-0 was killed by signal 9 without a result, after 3 restarts in 600 s"
    older = dataclasses.replace(dead, restarted_at=(NOW - 601, NOW - 10, NOW - 5))
    assert isinstance(decide(wanted, observations=[older])[0], Restart)


@pytest.mark.parametrize("kind", [JobKind.ROLLOUT, JobKind.REWARD])
def test_a_job_that_never_serves_is_given_up_however_far_apart_its_starts_are(kind: JobKind) -> None:
    """One start in five minutes: the window of ten minutes never holds three restarts."""
    wanted = attempt(job(kind=kind))
    dead = dataclasses.replace(
        observation(phase=Phase.GONE, kind=kind), exit_code=1, restarted_at=(NOW - 300,)
    )
    third = dataclasses.replace(dead, failed_starts=2)
    assert decide(wanted, observations=[third]) == [
        Restart(wanted, wanted.jobs[0], "exited with status 1", failed_starts=3)
    ]
    fourth = dataclasses.replace(dead, failed_starts=3, log_tail="CUDA error: out of memory")
    (action,) = decide(wanted, observations=[fourth])
    assert action == End(dead.job_id, CRASH_REASONS[kind], action.message)
    assert "4 consecutive starts failed" in action.message
    assert action.message.endswith("Its last lines:\nCUDA error: out of memory")


def test_a_start_that_served_ends_the_count_of_failed_ones() -> None:
    wanted = attempt(job())
    dead = dataclasses.replace(observation(phase=Phase.GONE), exit_code=1, failed_starts=3, ready=True)
    assert decide(wanted, observations=[dead]) == [
        Restart(wanted, wanted.jobs[0], "exited with status 1", failed_starts=0)
    ]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [(JobKind.TRAINER, EndReason.TRAINER_CRASHED), (JobKind.CONTROLLER, EndReason.CONTROLLER_CRASHED)],
)
def test_a_trainer_or_controller_is_never_restarted_in_place(kind: JobKind, reason: EndReason) -> None:
    wanted = attempt(job("it", kind=kind, restarts=0))
    dead = dataclasses.replace(observation("it", Phase.GONE, kind=kind), exit_code=1)
    (action,) = decide(wanted, observations=[dead])
    assert action == End("job_it", reason, "it exited with status 1 without a result")


@pytest.mark.parametrize("restarts", [0, 3])
def test_a_jobs_own_result_is_final_whatever_its_exit_status(restarts: int) -> None:
    wanted = attempt(job(restarts=restarts))
    result = JobResult(reason=EndReason.NONFINITE_LOSS, message="step 4")
    dead = dataclasses.replace(observation(phase=Phase.GONE), exit_code=0, result=result)
    assert decide(wanted, observations=[dead]) == [End(dead.job_id, EndReason.NONFINITE_LOSS, "step 4")]


def test_a_stopped_job_is_not_restarted_however_it_died() -> None:
    wanted = attempt(job(stop=True))
    dead = dataclasses.replace(observation(phase=Phase.GONE), exit_code=-9, stop_sent_at=NOW - 20)
    (action,) = decide(wanted, observations=[dead])
    assert isinstance(action, End) and action.reason is EndReason.STOPPED_BY_USER


def test_an_orphaned_job_is_not_taken_for_stopped_by_a_user() -> None:
    result = JobResult(reason=EndReason.STOPPED_BY_USER)
    dead = dataclasses.replace(observation(phase=Phase.GONE), exit_code=0, cause="orphaned", result=result)
    (action,) = decide(attempt(job()), observations=[dead])
    assert isinstance(action, End) and action.reason is EndReason.ORPHANED


def test_a_node_that_was_shut_down_does_not_say_that_the_user_stopped_the_run() -> None:
    result = JobResult(reason=EndReason.STOPPED_BY_USER)
    dead = dataclasses.replace(observation(phase=Phase.GONE), exit_code=0, result=result, shut_down=True)
    (action,) = decide(attempt(job()), observations=[dead])
    assert isinstance(action, End) and action.reason is EndReason.NODE_LOST


def test_a_job_that_completed_during_the_shutdown_has_completed() -> None:
    result = JobResult(reason=EndReason.COMPLETED)
    dead = dataclasses.replace(observation(phase=Phase.GONE), exit_code=0, result=result, shut_down=True)
    assert decide(attempt(job()), observations=[dead]) == [End(dead.job_id, EndReason.COMPLETED, "")]


def test_a_job_whose_attempt_is_not_named_any_more_is_ended_then_forgotten_when_acknowledged() -> None:
    alive = observation()
    assert decide(observations=[alive]) == [Stop(alive.job_id)]
    assert decide(observations=[dataclasses.replace(alive, stop_sent_at=NOW - 99)]) == [Kill(alive.job_id)]
    gone = dataclasses.replace(observation(phase=Phase.GONE), exit_code=-9, stop_sent_at=NOW - 99)
    (ended,) = decide(observations=[gone])
    assert isinstance(ended, End)
    final = observation(phase=Phase.ENDED)
    assert decide(observations=[final]) == []
    assert decide(observations=[final], acknowledged=(final.job_id,)) == [Remove(final.job_id)]


def test_an_acknowledged_job_stays_while_its_attempt_is_desired() -> None:
    """Otherwise the next heartbeat's answer would start it again."""
    final = observation(phase=Phase.ENDED)
    assert decide(attempt(job()), observations=[final], acknowledged=(final.job_id,)) == []


def test_a_process_of_an_older_epoch_is_fenced() -> None:
    alive = observation(epoch=1)
    assert decide(attempt(job(), epoch=2), observations=[alive]) == [Stop(alive.job_id)]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no fault
@given(
    phase=st.sampled_from(Phase),
    stop=st.booleans(),
    named=st.booleans(),
    asked=st.none() | st.floats(0, NOW),
    killed=st.booleans(),
    restarts=st.lists(st.floats(NOW - 1000, NOW), max_size=5),
    result=st.none() | st.sampled_from(EndReason),
    acknowledged=st.booleans(),
)
def test_never_two_actions_for_one_job_and_never_a_restart_of_what_is_unwanted(
    phase: Phase, stop: bool, named: bool, asked: float | None, killed: bool, restarts: list[float],
    result: EndReason | None, acknowledged: bool,
) -> None:  # fmt: skip
    seen = dataclasses.replace(
        observation(phase=phase),
        exit_code=1,
        stop_sent_at=asked,
        kill_sent_at=NOW if killed else None,
        restarted_at=tuple(restarts),
        result=JobResult(reason=result) if result else None,
    )
    wanted = [attempt(job(stop=stop))] if named else []
    actions = decide(*wanted, observations=[seen], acknowledged=(seen.job_id,) if acknowledged else ())
    assert len(actions) <= 1
    for action in actions:
        assert not isinstance(action, Launch | Prepare | Reject)
        if isinstance(action, Restart):
            assert named and not stop and result is None and phase is Phase.GONE
        if isinstance(action, Remove):
            assert not named and acknowledged and phase is Phase.ENDED
        if phase is Phase.ENDED:
            assert isinstance(action, Remove)


def test_a_grace_that_was_shortened_counts_at_once_and_what_is_unwanted_waits_for_no_checkpoint() -> None:
    trainer = dataclasses.replace(observation(), grace_seconds=180.0, stop_sent_at=NOW - 6.0)
    cancelled = attempt(msgspec.structs.replace(job(stop=True), grace_seconds=5.0))
    assert decide(cancelled, observations=[trainer]) == [Kill(trainer.job_id)]
    unhurried = attempt(msgspec.structs.replace(job(stop=True), grace_seconds=180.0))
    assert decide(unhurried, observations=[trainer]) == []
    fenced = dataclasses.replace(trainer, stop_sent_at=NOW - 15.0)
    assert reconcile([], NodeState({fenced.job_id: fenced}), now=NOW) == [Kill(fenced.job_id)]
