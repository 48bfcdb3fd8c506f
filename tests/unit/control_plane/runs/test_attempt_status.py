"""What jobs mean for their run, and the table of moves."""

from __future__ import annotations

import re
from importlib import import_module
from itertools import product
from typing import Any

import pytest

from control_plane import runs
from control_plane.core.infra import clock
from control_plane.runs.attempt_status import (
    FREE_ATTEMPTS,
    Done,
    Failed,
    JobSnapshot,
    Working,
    derive,
    retry_delay,
    retry_follows,
)
from control_plane.runs.events import InvalidTransition, transition_run
from control_plane.runs.models import Run, RunEvent
from oolong.contracts.lifecycle import (
    ENDED,
    OUTCOMES,
    RUN_TRANSITIONS,
    EndReason,
    JobKind,
    JobState,
    Retry,
    RunStatus,
)


def job(name: str, state: str = JobState.RUNNING, reason: str = "", **more: Any) -> JobSnapshot:
    return JobSnapshot(name=name, kind=JobKind(name.split("-")[0]), state=state, reason=reason, **more)


def rl(**states: Any) -> list[JobSnapshot]:
    jobs = {"controller": {}, "reward": {}, "rollout_0": {}, "rollout_1": {}, "trainer": {}}
    return [
        job(name.replace("_", "-"), **{**settings, **states.get(name, {})}) for name, settings in jobs.items()
    ]


EXITED = {"state": JobState.EXITED}
COMPLETED = {**EXITED, "reason": EndReason.COMPLETED}


def test_every_move_of_the_table_is_allowed_and_every_other_refused(alice: Any) -> None:
    run = Run.objects.get(pk=alice.run()["id"])
    for before, after in product(RunStatus, RunStatus):
        Run.objects.filter(pk=run.pk).update(status=before, reason="")
        run.refresh_from_db()
        events = RunEvent.objects.filter(run=run, kind="status").count()
        if after in RUN_TRANSITIONS[before]:
            assert transition_run(run, after, now=clock.now())
            assert Run.objects.get(pk=run.pk).status == after
            assert RunEvent.objects.filter(run=run, kind="status").count() == events + 1
        else:
            with pytest.raises(InvalidTransition, match=f"{before} → {after}"):
                transition_run(run, after, now=clock.now())
            assert Run.objects.get(pk=run.pk).status == before
            assert RunEvent.objects.filter(run=run, kind="status").count() == events


def test_a_move_from_a_status_that_somebody_changed_does_nothing(alice: Any) -> None:
    run = Run.objects.get(pk=alice.run()["id"])
    Run.objects.filter(pk=run.pk).update(status=RunStatus.STOPPED)
    assert not transition_run(run, RunStatus.STARTING, now=clock.now())
    assert Run.objects.get(pk=run.pk).status == RunStatus.STOPPED


def test_the_page_of_the_state_machine_has_every_move_and_names_who_makes_it() -> None:
    moves = set()
    for line in (runs.__doc__ or "").splitlines():
        if found := re.fullmatch(r" {4}([A-Z, ]+) → ([A-Z, ]+?) {2,}(\w+)\.(\w+): .+", line):
            moves |= set(product(found[1].split(", "), found[2].split(", ")))
            assert hasattr(import_module(f"control_plane.runs.{found[3]}"), found[4]), line
    assert moves == {(before, after) for before in RunStatus for after in RUN_TRANSITIONS[before]}


def test_an_ended_run_never_moves() -> None:
    assert all(not RUN_TRANSITIONS[status] for status in ENDED)


def test_an_attempt_works_until_every_job_runs() -> None:
    assert derive("rl", rl(trainer={"state": JobState.PREPARING})) == Working(all_running=False)
    assert derive("rl", rl(reward={"state": "pending"})) == Working(all_running=False)
    assert derive("rl", rl()) == Working(all_running=True)


def test_a_run_is_done_when_trainer_and_controller_completed() -> None:
    assert derive("rl", rl(trainer=COMPLETED)) == Working(all_running=True)
    assert derive("rl", rl(trainer=COMPLETED, controller=COMPLETED)) == Done()
    assert derive("sft", [job("trainer", **COMPLETED)]) == Done()


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("trainer", EndReason.TRAINER_CRASHED),
        ("controller", EndReason.CONTROLLER_CRASHED),
        ("rollout_1", EndReason.ROLLOUT_CRASH_LOOP),
        ("reward", EndReason.REWARD_SERVICE_CRASH_LOOP),
    ],
)
def test_a_job_that_died_names_its_cause(name: str, cause: EndReason) -> None:
    status = derive("rl", rl(**{name: {**EXITED, "exit_code": -9}}))
    assert isinstance(status, Failed)
    assert status.cause == cause
    assert "killed by signal 9" in status.message


def test_a_job_that_says_why_it_ended_is_believed() -> None:
    status = derive("rl", rl(trainer={**EXITED, "reason": EndReason.NONFINITE_LOSS, "message": "step 7"}))
    assert status == Failed("trainer", EndReason.NONFINITE_LOSS, "trainer: step 7")


def test_the_job_that_explains_outranks_those_that_died_with_it() -> None:
    jobs = rl(trainer={**EXITED, "exit_code": 1}, rollout_0={**EXITED, "reason": EndReason.MODEL_INVALID})
    status = derive("rl", jobs)
    assert isinstance(status, Failed)
    assert status.cause == EndReason.MODEL_INVALID


def test_a_job_ended_by_its_node_without_being_asked_is_no_fault_of_the_user() -> None:
    status = derive("rl", rl(trainer={**EXITED, "reason": EndReason.STOPPED_BY_USER}))
    assert isinstance(status, Failed)
    assert OUTCOMES[status.cause].retry == Retry.FREE


def test_only_the_users_own_faults_count_against_max_attempts() -> None:
    user, infra = EndReason.TRAINER_CRASHED, EndReason.NODE_LOST
    assert retry_follows(user, lost_before=[infra] * 5, max_attempts=2)
    assert not retry_follows(user, lost_before=[infra, user], max_attempts=2)
    assert retry_follows(infra, lost_before=[user] * 5, max_attempts=1)
    assert not retry_follows(infra, lost_before=[infra] * (FREE_ATTEMPTS - 1), max_attempts=1)


@pytest.mark.parametrize("cause", [cause for cause in EndReason if OUTCOMES[cause].retry == Retry.NEVER])
def test_some_causes_are_never_tried_again(cause: EndReason) -> None:
    assert not retry_follows(cause, lost_before=[], max_attempts=100)


def test_the_pause_before_a_retry_grows_to_a_minute() -> None:
    assert [retry_delay(lost) for lost in (0, 1, 2, 3, 9)] == [0, 0, 5, 10, 60]
