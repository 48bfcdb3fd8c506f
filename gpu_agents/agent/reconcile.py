"""The agent's decision: from what is desired and what is observed to what is to be done. Pure.

Level-triggered: it looks at states, never at messages, so deciding twice from the same picture gives the same
answer, and a lost or repeated heartbeat changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from oolong.contracts.agent import DesiredAttempt, DesiredJob
from oolong.contracts.attempt import JobResult
from oolong.contracts.lifecycle import EndReason, JobKind

UNWANTED_GRACE_SECONDS = 15.0


class Phase(StrEnum):
    ALIVE = "alive"
    GONE = "gone"  # the current incarnation has ended; nothing has been decided about it
    ENDED = "ended"  # final


@dataclass(frozen=True, kw_only=True)
class Sight:
    """One job as this node sees it."""

    job_id: str
    attempt_id: str
    epoch: int
    kind: JobKind
    phase: Phase
    incarnation: int = 0
    grace_seconds: float = 15.0
    exit_code: int | None = None  # of the current incarnation, when it is gone
    cause: str = ""  # who ended it, see records.ExitRecord
    verdict: JobResult | None = None  # the job's own result.json
    ready: bool = False  # the current incarnation has served
    failed_starts: int = 0  # incarnations before this one that ended without having served, in a row
    log_tail: str = ""  # the last lines of the current incarnation, when it is gone
    restarted_at: tuple[float, ...] = ()  # unix seconds
    stop_sent_at: float | None = None
    kill_sent_at: float | None = None
    shut_down: bool = False  # ended because the node was shut down


class Preparation(StrEnum):
    RUNNING = "running"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True)
class Inputs:
    """How far the inputs of an attempt are on this node."""

    state: Preparation
    reason: EndReason = EndReason.PREPARATION_FAILED
    message: str = ""  # why it failed


@dataclass(frozen=True)
class Prepare:
    attempt: DesiredAttempt


@dataclass(frozen=True)
class Launch:
    attempt: DesiredAttempt
    job: DesiredJob


@dataclass(frozen=True)
class Restart:
    """Start the next incarnation of a job that died."""

    attempt: DesiredAttempt
    job: DesiredJob
    why: str
    failed_starts: int = 0  # in a row, so far


@dataclass(frozen=True)
class Decline:
    """Never start this job; report it as ended for this reason."""

    attempt: DesiredAttempt
    job: DesiredJob
    reason: EndReason
    message: str


@dataclass(frozen=True)
class Stop:
    job_id: str


@dataclass(frozen=True)
class Kill:
    job_id: str


@dataclass(frozen=True)
class End:
    """Nothing more will be started for this job: write its final report."""

    job_id: str
    reason: EndReason
    message: str


@dataclass(frozen=True)
class Forget:
    job_id: str


Action = Prepare | Launch | Restart | Decline | Stop | Kill | End | Forget


@dataclass(frozen=True)
class Picture:
    """Everything the decision looks at."""

    sights: Mapping[str, Sight]
    inputs: Mapping[str, Inputs] = field(default_factory=dict)  # by attempt id
    acknowledged: Collection[str] = ()


DIED: Mapping[JobKind, EndReason] = {
    JobKind.TRAINER: EndReason.TRAINER_CRASHED,
    JobKind.CONTROLLER: EndReason.CONTROLLER_CRASHED,
    JobKind.ROLLOUT: EndReason.ROLLOUT_CRASH_LOOP,
    JobKind.REWARD: EndReason.REWARD_SERVICE_CRASH_LOOP,
}


def reconcile(desired: Iterable[DesiredAttempt], picture: Picture, *, now: float) -> list[Action]:
    """What to do next, at most one thing per job. `now` is unix seconds."""
    actions: list[Action] = []
    named: set[str] = set()
    for attempt in desired:
        prepare = False
        for job in attempt.jobs:
            named.add(job.job_id)
            sight = picture.sights.get(job.job_id)
            if sight is None:
                action = _begin(attempt, job, picture.inputs.get(attempt.attempt_id))
                if isinstance(action, Prepare):
                    prepare = True
                    continue
            elif sight.epoch < attempt.epoch and sight.phase is Phase.ALIVE:
                action = _finish(sight, now=now)  # fenced: this process belongs to an older grant
            else:
                action = _continue(attempt, job, sight, now=now)
            if action is not None:
                actions.append(action)
        if prepare:
            actions.append(Prepare(attempt))
    for sight in picture.sights.values():
        if sight.job_id not in named:
            action = _dismiss(sight, picture.acknowledged, now=now)
            if action is not None:
                actions.append(action)
    return actions


def _begin(attempt: DesiredAttempt, job: DesiredJob, inputs: Inputs | None) -> Action | None:
    if job.stop:
        return Decline(attempt, job, EndReason.STOPPED_BY_USER, "stopped before it was started")
    if inputs is None:
        return Prepare(attempt)
    if inputs.state is Preparation.FAILED:
        return Decline(attempt, job, inputs.reason, inputs.message)
    return Launch(attempt, job) if inputs.state is Preparation.READY else None


def _continue(attempt: DesiredAttempt, job: DesiredJob, sight: Sight, *, now: float) -> Action | None:
    if sight.phase is Phase.ALIVE:
        # The control plane may have shortened the grace since the job began: a cancelled run waits for no checkpoint.
        return (
            _finish(sight, now=now, grace=min(job.grace_seconds, sight.grace_seconds)) if job.stop else None
        )
    if sight.phase is Phase.ENDED:
        return None
    end = _known_end(sight)
    if end is not None:
        return end
    if job.stop or sight.stop_sent_at is not None:
        return End(
            sight.job_id, EndReason.STOPPED_BY_USER, f"ended while being stopped, {how(sight.exit_code)}"
        )
    recent = [at for at in sight.restarted_at if at > now - job.restart_window_seconds]
    failed = failed_starts(sight)
    # Starts that take long and fail never fill the window: as many in a row are enough, however long they took.
    if len(recent) < job.restarts and failed <= job.restarts:
        return Restart(attempt, job, how(sight.exit_code), failed)
    message = f"{job.name} {how(sight.exit_code)} without a verdict of its own"
    if job.restarts and len(recent) >= job.restarts:
        message += f", after {len(recent)} restarts in {job.restart_window_seconds:g} s"
    elif job.restarts:
        message += f": {failed} starts in a row failed, and it never served in between"
    if sight.log_tail:
        message += f". Its last lines:\n{sight.log_tail}"
    return End(sight.job_id, DIED[job.kind], message)


def failed_starts(sight: Sight) -> int:
    """Incarnations in a row, the current one included, that ended without having served."""
    return 0 if sight.ready else sight.failed_starts + 1


def _dismiss(sight: Sight, acknowledged: Collection[str], *, now: float) -> Action | None:
    """A job that is not desired here any more: its attempt has ended or went on elsewhere under a higher epoch."""
    if sight.phase is Phase.ALIVE:
        # Its attempt is over: a checkpoint of it would be refused, so nothing is gained by waiting for one.
        return _finish(sight, now=now, grace=min(UNWANTED_GRACE_SECONDS, sight.grace_seconds))
    if sight.phase is Phase.ENDED:
        return Forget(sight.job_id) if sight.job_id in acknowledged else None
    end = _known_end(sight)
    if end is not None:
        return end
    if sight.stop_sent_at is None:
        return End(sight.job_id, DIED[sight.kind], f"{how(sight.exit_code)} without a verdict of its own")
    return End(
        sight.job_id,
        EndReason.STOPPED_BY_USER,
        "ended because its attempt is not wanted on this node any more",
    )


def _known_end(sight: Sight) -> End | None:
    """The end of a job that said itself why, or that this node ended for a reason of its own.

    A job that is asked to stop cannot know who asked: its "stopped by user" gives way to what the node knows.
    """
    verdict = sight.verdict
    if verdict is not None and verdict.reason is not EndReason.STOPPED_BY_USER:
        return End(sight.job_id, verdict.reason, verdict.message)
    if sight.cause == "orphaned":
        return End(
            sight.job_id, EndReason.ORPHANED, "the node had no contact with the control plane for too long"
        )
    if sight.shut_down:
        return End(sight.job_id, EndReason.NODE_LOST, "the node was shut down while the job ran")
    return End(sight.job_id, verdict.reason, verdict.message) if verdict is not None else None


def _finish(sight: Sight, *, now: float, grace: float | None = None) -> Action | None:
    """Ask first, insist after the grace period."""
    grace = sight.grace_seconds if grace is None else grace
    if sight.stop_sent_at is None:
        return Stop(sight.job_id)
    if sight.kill_sent_at is None and now >= sight.stop_sent_at + grace:
        return Kill(sight.job_id)
    return None


def how(code: int | None) -> str:
    if code is None:
        return "ended unseen"
    return f"was killed by signal {-code}" if code < 0 else f"exited with status {code}"
