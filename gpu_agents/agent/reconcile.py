"""Reconcile desired and observed state into actions (pure).

Level-triggered: it compares states, not messages, so a lost or repeated heartbeat changes nothing.
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
    GONE = "gone"  # the current incarnation has exited; no action was decided yet
    ENDED = "ended"  # final


@dataclass(frozen=True, kw_only=True)
class Observation:
    """One job as this node observes it."""

    job_id: str
    attempt_id: str
    epoch: int
    kind: JobKind
    phase: Phase
    incarnation: int = 0
    grace_seconds: float = 15.0
    exit_code: int | None = None  # of the current incarnation, once it has exited
    cause: str = ""  # see records.ExitRecord
    result: JobResult | None = None  # the job's own result.json
    ready: bool = False  # the current incarnation became ready
    failed_starts: int = 0  # consecutive earlier incarnations that never became ready
    log_tail: str = ""  # the last lines of the current incarnation, once it has exited
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
    """Whether an attempt's inputs are ready on this node."""

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
    """Start the next incarnation of a job that crashed."""

    attempt: DesiredAttempt
    job: DesiredJob
    why: str
    failed_starts: int = 0  # in a row, so far


@dataclass(frozen=True)
class Reject:
    """Report this job as ended without starting it."""

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
    """Write the job's final state: no further incarnation starts."""

    job_id: str
    reason: EndReason
    message: str


@dataclass(frozen=True)
class Remove:
    job_id: str


Action = Prepare | Launch | Restart | Reject | Stop | Kill | End | Remove


@dataclass(frozen=True)
class NodeState:
    """The observed state of the node."""

    observations: Mapping[str, Observation]
    inputs: Mapping[str, Inputs] = field(default_factory=dict)  # by attempt id
    acknowledged: Collection[str] = ()


CRASH_REASONS: Mapping[JobKind, EndReason] = {
    JobKind.TRAINER: EndReason.TRAINER_CRASHED,
    JobKind.CONTROLLER: EndReason.CONTROLLER_CRASHED,
    JobKind.ROLLOUT: EndReason.ROLLOUT_CRASH_LOOP,
    JobKind.REWARD: EndReason.REWARD_SERVICE_CRASH_LOOP,
}


def reconcile(desired: Iterable[DesiredAttempt], state: NodeState, *, now: float) -> list[Action]:
    """Return the next actions, at most one per job. `now` is unix seconds."""
    actions: list[Action] = []
    named: set[str] = set()
    for attempt in desired:
        prepare = False
        for job in attempt.jobs:
            named.add(job.job_id)
            observation = state.observations.get(job.job_id)
            if observation is None:
                action = _start_job(attempt, job, state.inputs.get(attempt.attempt_id))
                if isinstance(action, Prepare):
                    prepare = True
                    continue
            elif observation.epoch < attempt.epoch and observation.phase is Phase.ALIVE:
                action = _terminate(observation, now=now)  # fenced: this process belongs to an older lease
            else:
                action = _advance(attempt, job, observation, now=now)
            if action is not None:
                actions.append(action)
        if prepare:
            actions.append(Prepare(attempt))
    for observation in state.observations.values():
        if observation.job_id not in named:
            action = _remove_unwanted(observation, state.acknowledged, now=now)
            if action is not None:
                actions.append(action)
    return actions


def _start_job(attempt: DesiredAttempt, job: DesiredJob, inputs: Inputs | None) -> Action | None:
    if job.stop:
        return Reject(attempt, job, EndReason.STOPPED_BY_USER, "stopped before it was started")
    if inputs is None:
        return Prepare(attempt)
    if inputs.state is Preparation.FAILED:
        return Reject(attempt, job, inputs.reason, inputs.message)
    return Launch(attempt, job) if inputs.state is Preparation.READY else None


def _advance(
    attempt: DesiredAttempt, job: DesiredJob, observation: Observation, *, now: float
) -> Action | None:
    if observation.phase is Phase.ALIVE:
        # The control plane may have shortened the grace period: a cancelled run needs no checkpoint.
        return (
            _terminate(observation, now=now, grace=min(job.grace_seconds, observation.grace_seconds))
            if job.stop
            else None
        )
    if observation.phase is Phase.ENDED:
        return None
    end = _own_end(observation)
    if end is not None:
        return end
    if job.stop or observation.stop_sent_at is not None:
        return End(
            observation.job_id,
            EndReason.STOPPED_BY_USER,
            f"ended while being stopped, {describe_exit(observation.exit_code)}",
        )
    recent = [at for at in observation.restarted_at if at > now - job.restart_window_seconds]
    failed = failed_starts(observation)
    # Slow failing starts never fill the window, so consecutive failures count as well.
    if len(recent) < job.restarts and failed <= job.restarts:
        return Restart(attempt, job, describe_exit(observation.exit_code), failed)
    message = f"{job.name} {describe_exit(observation.exit_code)} without a result"
    if job.restarts and len(recent) >= job.restarts:
        message += f", after {len(recent)} restarts in {job.restart_window_seconds:g} s"
    elif job.restarts:
        message += f": {failed} consecutive starts failed before the job became ready"
    if observation.log_tail:
        message += f". Its last lines:\n{observation.log_tail}"
    return End(observation.job_id, CRASH_REASONS[job.kind], message)


def failed_starts(observation: Observation) -> int:
    """Consecutive incarnations, including the current one, that never became ready."""
    return 0 if observation.ready else observation.failed_starts + 1


def _remove_unwanted(observation: Observation, acknowledged: Collection[str], *, now: float) -> Action | None:
    """End a job that is no longer desired: its attempt has ended, or continues elsewhere with a higher epoch."""
    if observation.phase is Phase.ALIVE:
        # The server would reject a checkpoint of it, so do not wait for one.
        return _terminate(observation, now=now, grace=min(UNWANTED_GRACE_SECONDS, observation.grace_seconds))
    if observation.phase is Phase.ENDED:
        return Remove(observation.job_id) if observation.job_id in acknowledged else None
    end = _own_end(observation)
    if end is not None:
        return end
    if observation.stop_sent_at is None:
        return End(
            observation.job_id,
            CRASH_REASONS[observation.kind],
            f"{describe_exit(observation.exit_code)} without a result",
        )
    return End(
        observation.job_id,
        EndReason.STOPPED_BY_USER,
        "ended because its attempt no longer belongs to this node",
    )


def _own_end(observation: Observation) -> End | None:
    """The end that the job's result or the node's own action explains.

    A job cannot know who stopped it, so its "stopped by user" yields to the node's cause.
    """
    result = observation.result
    if result is not None and result.reason is not EndReason.STOPPED_BY_USER:
        return End(observation.job_id, result.reason, result.message)
    if observation.cause == "orphaned":
        return End(
            observation.job_id,
            EndReason.ORPHANED,
            "the node had no contact with the control plane for too long",
        )
    if observation.shut_down:
        return End(observation.job_id, EndReason.NODE_LOST, "the node was shut down while the job ran")
    return End(observation.job_id, result.reason, result.message) if result is not None else None


def _terminate(observation: Observation, *, now: float, grace: float | None = None) -> Action | None:
    """Stop the job; kill it after the grace period."""
    grace = observation.grace_seconds if grace is None else grace
    if observation.stop_sent_at is None:
        return Stop(observation.job_id)
    if observation.kill_sent_at is None and now >= observation.stop_sent_at + grace:
        return Kill(observation.job_id)
    return None


def describe_exit(code: int | None) -> str:
    if code is None:
        return "ended with an unknown status"
    return f"was killed by signal {-code}" if code < 0 else f"exited with status {code}"
