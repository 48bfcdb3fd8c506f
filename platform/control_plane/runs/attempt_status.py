"""Derives the status of an attempt from its jobs: pure functions."""

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

WORKING = (RunStatus.STARTING, RunStatus.RUNNING)  # statuses in which the jobs' states decide the next one
FREE_ATTEMPTS = 20  # limit of attempts lost to faults that are not the user's

# Condition → meaning; shown next to the status.
CONDITIONS = {
    "DEGRADED": "a critical alert is open",
    "NEEDS_ATTENTION": "it was paused because of an error",
    "UNRESPONSIVE": "its node does not respond",
    "NODE_DRAINING": "its node is drained, and it may stay there until the deadline",
    "ENGINES_WAITING": "it wants more engines than are free",
    "ENGINES_UNRESPONSIVE": "another node, with some of its engines, does not respond",
    "GAP": "its last telemetry did not arrive",
}

_CRASH_REASON = {
    JobKind.TRAINER: EndReason.TRAINER_CRASHED,
    JobKind.CONTROLLER: EndReason.CONTROLLER_CRASHED,
    JobKind.ROLLOUT: EndReason.ROLLOUT_CRASH_LOOP,
    JobKind.REWARD: EndReason.REWARD_SERVICE_CRASH_LOOP,
}
# When several jobs have failed, the first of these kinds gives the cause: the others depend on it.
_BLAME_ORDER = (JobKind.TRAINER, JobKind.CONTROLLER, JobKind.ROLLOUT, JobKind.REWARD)


@dataclass(frozen=True)
class JobSnapshot:
    name: str
    kind: JobKind
    state: str  # pending, or a JobState
    reason: str = ""  # an EndReason given by the job or the agent
    message: str = ""
    exit_code: int | None = None
    leaving: bool = False  # stopping while the run continues, or a remote engine: its exit does not matter


@dataclass(frozen=True)
class Working:
    all_running: bool


@dataclass(frozen=True)
class Done:
    """All deciding jobs have completed."""


@dataclass(frozen=True)
class Failed:
    job: str
    cause: EndReason
    message: str


def may_transition(before: RunStatus, after: RunStatus) -> bool:
    return after in RUN_TRANSITIONS[before]


def deciding_kinds(run_kind: str) -> frozenset[JobKind]:
    """The kinds of jobs whose completion completes the run."""
    return {
        "rl": frozenset({JobKind.TRAINER, JobKind.CONTROLLER}),
        "sft": frozenset({JobKind.TRAINER}),
        "dpo": frozenset({JobKind.TRAINER}),
        "eval": frozenset({JobKind.CONTROLLER}),
        "reward_test": frozenset({JobKind.CONTROLLER}),
        "playground": frozenset({JobKind.ROLLOUT}),
    }[run_kind]


def derive(run_kind: str, jobs: Sequence[JobSnapshot]) -> Working | Done | Failed:
    """Failed with the job to blame, Done when all deciding jobs have completed, or Working."""
    jobs = [job for job in jobs if not job.leaving]
    exited = [job for job in jobs if job.state == JobState.EXITED]
    failed = [job for job in exited if job.reason != EndReason.COMPLETED]
    if failed:
        job = min(failed, key=lambda candidate: _blame_rank(candidate))
        return Failed(job.name, failure_cause(job), _describe(job))
    deciding = deciding_kinds(run_kind)
    if all(job.state == JobState.EXITED for job in jobs if job.kind in deciding):
        return Done()
    return Working(all(job.state in (JobState.RUNNING, JobState.EXITED) for job in jobs))


def failure_cause(job: JobSnapshot) -> EndReason:
    """The end reason of a job that exited without completing."""
    if job.reason == EndReason.STOPPED_BY_USER:
        # The node stopped the job, not the run: it shut down or is drained. The run resumes from its checkpoint.
        return EndReason.ORPHANED
    if job.reason:
        return EndReason(job.reason)
    return _CRASH_REASON[job.kind]


def retry_follows(cause: EndReason, *, lost_before: Sequence[str], max_attempts: int) -> bool:
    """Whether a new attempt follows. `lost_before` are the causes of earlier attempts.

    Only the user's own faults count against `budget.max_attempts`.
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


def retry_delay(lost: int) -> float:
    """Seconds before attempt `lost` + 1 may start: 0 after the first loss, then 5, 10, … up to 60."""
    return 0.0 if lost <= 1 else min(60.0, 5.0 * 2 ** (lost - 2))


def _blame_rank(job: JobSnapshot) -> tuple[int, int]:
    # A job with a reason explains more than one that crashed as a consequence.
    return (0 if job.reason and job.reason != EndReason.STOPPED_BY_USER else 1, _BLAME_ORDER.index(job.kind))


def _describe(job: JobSnapshot) -> str:
    if job.message:
        return f"{job.name}: {job.message}"
    if job.reason == EndReason.STOPPED_BY_USER:
        return f"{job.name} was stopped by its node"
    if job.exit_code is None:
        return f"{job.name} disappeared"
    if job.exit_code < 0:
        return f"{job.name} was killed by signal {-job.exit_code}"
    return f"{job.name} exited with code {job.exit_code} without a reason"
