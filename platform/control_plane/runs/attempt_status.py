"""What an attempt's jobs mean for its run: pure functions over plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oolong.contracts.lifecycle import (
    OUTCOMES,
    RUN_TRANSITIONS,
    EndReason,
    JobKind,
    JobState,
    Retry,
    RunStatus,
)

WORKING = (RunStatus.STARTING, RunStatus.RUNNING)  # the states of its jobs decide what comes next
FREE_ATTEMPTS = 20  # platform-wide cap on attempts lost to faults that are not the user's

# What is shown beside the status, and what it means.
CONDITIONS = {
    "DEGRADED": "a critical alert is open",
    "NEEDS_ATTENTION": "it is paused for a fault until somebody has looked",
    "UNRESPONSIVE": "its node does not answer",
    "ENGINES_WAITING": "it wants more engines than are free",
    "GAP": "its last lines did not arrive",
}

_DIED = {
    JobKind.TRAINER: EndReason.TRAINER_CRASHED,
    JobKind.CONTROLLER: EndReason.CONTROLLER_CRASHED,
    JobKind.ROLLOUT: EndReason.ROLLOUT_CRASH_LOOP,
    JobKind.REWARD: EndReason.REWARD_SERVICE_CRASH_LOOP,
}
# When several jobs are down at once, the one that the others depend on names the cause.
_BLAME = (JobKind.TRAINER, JobKind.CONTROLLER, JobKind.ROLLOUT, JobKind.REWARD)


@dataclass(frozen=True)
class JobView:
    name: str
    kind: JobKind
    state: str  # pending, or a JobState
    reason: str = ""  # an EndReason once it has exited by its own decision or the agent's
    message: str = ""
    exit_code: int | None = None
    stop_asked: bool = False
    leaving: bool = False  # taken out of the run while it goes on: its end means nothing


@dataclass(frozen=True)
class Working:
    all_running: bool


@dataclass(frozen=True)
class Done:
    """The work is done: the jobs that decide have completed."""


@dataclass(frozen=True)
class Broken:
    job: str
    cause: EndReason
    message: str


def may_move(before: RunStatus, after: RunStatus) -> bool:
    return after in RUN_TRANSITIONS[before]


def deciding_kinds(run_kind: str) -> frozenset[JobKind]:
    """The jobs whose completion ends the run."""
    return {
        "rl": frozenset({JobKind.TRAINER, JobKind.CONTROLLER}),
        "sft": frozenset({JobKind.TRAINER}),
        "eval": frozenset({JobKind.CONTROLLER}),
        "reward_test": frozenset({JobKind.CONTROLLER}),
        "playground": frozenset({JobKind.ROLLOUT}),
    }[run_kind]


def judge(run_kind: str, jobs: Sequence[JobView]) -> Working | Done | Broken:
    """The first broken job in order of blame, else done when all deciding jobs completed, else working."""
    jobs = [job for job in jobs if not job.leaving]
    exited = [job for job in jobs if job.state == JobState.EXITED]
    broken = [job for job in exited if job.reason != EndReason.COMPLETED]
    if broken:
        job = min(broken, key=lambda candidate: _rank(candidate))
        return Broken(job.name, cause_of(job), _describe(job))
    deciding = deciding_kinds(run_kind)
    if all(job.state == JobState.EXITED for job in jobs if job.kind in deciding):
        return Done()
    return Working(all(job.state in (JobState.RUNNING, JobState.EXITED) for job in jobs))


def cause_of(job: JobView) -> EndReason:
    """Why an exited job that did not complete went down."""
    if job.reason == EndReason.STOPPED_BY_USER:
        # Nobody had asked the run to stop: its node was shut down or drained. It goes on from the checkpoint.
        return EndReason.ORPHANED
    if job.reason:
        return EndReason(job.reason)
    return _DIED[job.kind]


def retry_follows(cause: EndReason, *, lost_before: Sequence[str], max_attempts: int) -> bool:
    """Whether a new attempt follows. `lost_before`: the causes of the attempts before this one.

    Only causes that are the user's own count against `budget.max_attempts`.
    """
    same_class = [*(EndReason(reason) for reason in lost_before), cause]
    retry = OUTCOMES[cause].retry
    if retry == Retry.ALWAYS:
        return True
    if retry == Retry.LIMITED:
        return sum(OUTCOMES[reason].retry == Retry.LIMITED for reason in same_class) < max_attempts
    if retry == Retry.FREE:
        return sum(OUTCOMES[reason].retry == Retry.FREE for reason in same_class) < FREE_ATTEMPTS
    return False


def pause_before_retry(lost: int) -> float:
    """Seconds before attempt `lost` + 1 may start: none after the first loss, then 5, 10, … up to 60."""
    return 0.0 if lost <= 1 else min(60.0, 5.0 * 2 ** (lost - 2))


def _rank(job: JobView) -> tuple[int, int]:
    # A job that says why it ended explains more than one that merely died with it.
    return (0 if job.reason and job.reason != EndReason.STOPPED_BY_USER else 1, _BLAME.index(job.kind))


def _describe(job: JobView) -> str:
    if job.message:
        return f"{job.name}: {job.message}"
    if job.reason == EndReason.STOPPED_BY_USER:
        return f"{job.name} was ended by its node"
    if job.exit_code is None:
        return f"{job.name} is gone"
    if job.exit_code < 0:
        return f"{job.name} was killed by signal {-job.exit_code}"
    return f"{job.name} exited with code {job.exit_code} without saying why"
