"""Statuses, moves and end reasons of runs, attempts and jobs. One table maps a cause to its outcome."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class RunStatus(StrEnum):
    DRAFT = "DRAFT"  # may still be edited; it was not submitted
    QUEUED = "QUEUED"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    RECOVERING = "RECOVERING"  # the attempt is lost, another one is being prepared
    PAUSING = "PAUSING"  # a checkpoint is taken, then the slots are released
    PAUSED = "PAUSED"  # holds no slot; continues from its checkpoint when it is resumed
    STOPPING = "STOPPING"  # the user asked for it; a checkpoint is taken first
    FINALIZING = "FINALIZING"  # work done; the last lines and the checkpoint are on their way
    SUCCEEDED = "SUCCEEDED"
    STOPPED = "STOPPED"
    FAILED = "FAILED"


ENDED = frozenset({RunStatus.SUCCEEDED, RunStatus.STOPPED, RunStatus.FAILED})

RUN_TRANSITIONS: dict[RunStatus, frozenset[RunStatus]] = {
    RunStatus.DRAFT: frozenset({RunStatus.QUEUED}),
    RunStatus.QUEUED: frozenset({RunStatus.STARTING, RunStatus.PAUSED, RunStatus.STOPPED, RunStatus.FAILED}),
    RunStatus.STARTING: frozenset({RunStatus.RUNNING, RunStatus.RECOVERING, RunStatus.PAUSING, RunStatus.STOPPING, RunStatus.STOPPED, RunStatus.FINALIZING}),
    RunStatus.RUNNING: frozenset({RunStatus.FINALIZING, RunStatus.RECOVERING, RunStatus.PAUSING, RunStatus.STOPPING, RunStatus.STOPPED}),
    RunStatus.RECOVERING: frozenset({RunStatus.QUEUED, RunStatus.PAUSING, RunStatus.STOPPED, RunStatus.STOPPING, RunStatus.FAILED}),
    RunStatus.PAUSING: frozenset({RunStatus.PAUSED, RunStatus.FINALIZING, RunStatus.STOPPING, RunStatus.STOPPED}),
    RunStatus.PAUSED: frozenset({RunStatus.QUEUED, RunStatus.STOPPED}),
    RunStatus.STOPPING: frozenset({RunStatus.STOPPED}),
    RunStatus.FINALIZING: frozenset({RunStatus.SUCCEEDED, RunStatus.STOPPED, RunStatus.RECOVERING, RunStatus.FAILED}),
    RunStatus.SUCCEEDED: frozenset(),
    RunStatus.STOPPED: frozenset(),
    RunStatus.FAILED: frozenset(),
}  # fmt: skip


class AttemptStatus(StrEnum):
    SCHEDULED = "SCHEDULED"  # leases granted, the agent has not yet reported every job running
    RUNNING = "RUNNING"
    ENDING = "ENDING"  # jobs are being stopped, or their last lines are being shipped
    ENDED = "ENDED"


class JobState(StrEnum):
    """What an agent observes of a job."""

    PREPARING = "preparing"  # artifacts are being fetched
    RUNNING = "running"
    EXITED = "exited"  # final; restarts in place, if any were due, are used up or not wanted


class JobKind(StrEnum):
    CONTROLLER = "controller"
    REWARD = "reward"
    ROLLOUT = "rollout"
    TRAINER = "trainer"


class Fault(StrEnum):
    """Whose fault an end was. Infra and platform faults never use up a user's attempts."""

    NONE = "none"
    USER = "user"
    CONFIG = "config"
    DATA = "data"
    REWARD = "reward"
    INFRA = "infra"
    PLATFORM = "platform"


class Retry(StrEnum):
    NEVER = "never"
    LIMITED = "limited"  # counts against budget.max_attempts
    FREE = "free"  # does not count; bounded by a platform-wide cap only
    ALWAYS = "always"  # counts for nothing: the pool or its admins ended the attempt


class EndReason(StrEnum):
    COMPLETED = "completed"
    STOPPED_BY_USER = "stopped_by_user"
    PAUSED_BY_USER = "paused_by_user"  # of an attempt: the run itself has not ended
    CANCELLED_WHILE_QUEUED = "cancelled_while_queued"
    CANCELLED_BY_USER = "cancelled_by_user"  # ended without a last checkpoint
    FORCED_BY_OPERATOR = (
        "forced_by_operator"  # ended at once; its slots are kept until its jobs are known dead
    )
    TRAINER_CRASHED = "trainer_crashed"
    CONTROLLER_CRASHED = "controller_crashed"
    ROLLOUT_CRASH_LOOP = "rollout_crash_loop"
    REWARD_SERVICE_CRASH_LOOP = "reward_service_crash_loop"
    NODE_LOST = "node_lost"
    NODE_REVOKED = "node_revoked"  # whoever manages the pool took the node out of it
    ORPHANED = "orphaned"  # the node heard nothing from the control plane for orphan_ttl
    PREPARATION_FAILED = "preparation_failed"  # an artifact could not be fetched or did not verify
    NONFINITE_LOSS = "nonfinite_loss"
    SFT_TARGET_NOT_REACHED = "sft_target_not_reached"
    NO_VALID_CHECKPOINT = "no_valid_checkpoint"  # a resume was asked for and nothing valid was there
    DATASET_INVALID = "dataset_invalid"
    MODEL_INVALID = "model_invalid"
    REWARD_ERRORS = "reward_errors"
    REWARD_ERROR_RATE = "reward_error_rate"  # the run rests until somebody has looked
    ALL_FILTERED = "all_filtered"  # rollout.filter left no group for a batch
    WORKFLOW_ERRORS = "workflow_errors"
    WALL_TIME_EXCEEDED = "wall_time_exceeded"
    BUDGET_EXHAUSTED = "budget_exhausted"  # the month's budget of its team or project is used up
    PREEMPTED = "preempted"  # a run in the queue or a reservation needed its slots, or its node was drained
    SECRET_MISSING = "secret_missing"  # a job was to start, and a secret that it is to have was deleted or is not for it any more
    CONFIG_REJECTED = "config_rejected"  # a job found the spec impossible (say, prompts over the limit)


@dataclass(frozen=True)
class Outcome:
    status: RunStatus  # the run's status when no retry follows
    fault: Fault
    retry: Retry
    advice: str  # one sentence: what the reader can do


OUTCOMES: dict[EndReason, Outcome] = {
    EndReason.COMPLETED: Outcome(RunStatus.SUCCEEDED, Fault.NONE, Retry.NEVER, ""),
    EndReason.STOPPED_BY_USER: Outcome(RunStatus.STOPPED, Fault.NONE, Retry.NEVER, "To continue, start a new run from its last checkpoint."),
    EndReason.PAUSED_BY_USER: Outcome(RunStatus.PAUSED, Fault.NONE, Retry.NEVER, "Resume the run. It continues from its last checkpoint."),
    EndReason.CANCELLED_WHILE_QUEUED: Outcome(RunStatus.STOPPED, Fault.NONE, Retry.NEVER, ""),
    EndReason.CANCELLED_BY_USER: Outcome(RunStatus.STOPPED, Fault.NONE, Retry.NEVER, "The run ended without a final checkpoint. A retry continues from the newest earlier one, if there is one."),
    EndReason.FORCED_BY_OPERATOR: Outcome(RunStatus.STOPPED, Fault.NONE, Retry.NEVER, "The run ended immediately. Its slots become free when its node reports that its jobs are gone."),
    EndReason.TRAINER_CRASHED: Outcome(RunStatus.FAILED, Fault.USER, Retry.LIMITED, "Read the trainer's last log lines. Out of memory is the usual cause: lower trainer.microbatch_tokens."),
    EndReason.CONTROLLER_CRASHED: Outcome(RunStatus.FAILED, Fault.PLATFORM, Retry.FREE, "Read the controller's last log lines and report them."),
    EndReason.ROLLOUT_CRASH_LOOP: Outcome(RunStatus.FAILED, Fault.USER, Retry.LIMITED, "Read the rollout job's last log lines. The engine may be out of memory."),
    EndReason.REWARD_SERVICE_CRASH_LOOP: Outcome(RunStatus.FAILED, Fault.REWARD, Retry.LIMITED, "Read the reward service's last log lines."),
    EndReason.NODE_LOST: Outcome(RunStatus.FAILED, Fault.INFRA, Retry.FREE, "The node stopped responding. The run continues on another node from its last stored checkpoint."),
    EndReason.NODE_REVOKED: Outcome(RunStatus.FAILED, Fault.NONE, Retry.ALWAYS, "The node was removed from its pool. The run continues on another node from its last stored checkpoint."),
    EndReason.ORPHANED: Outcome(RunStatus.FAILED, Fault.INFRA, Retry.FREE, "The node lost contact with the control plane for too long and stopped its jobs."),
    EndReason.PREPARATION_FAILED: Outcome(RunStatus.FAILED, Fault.INFRA, Retry.FREE, "The node could not fetch an input. The event names it."),
    EndReason.NONFINITE_LOSS: Outcome(RunStatus.FAILED, Fault.CONFIG, Retry.NEVER, "Three steps in a row gave a non-finite loss or gradient: lower trainer.learning_rate."),
    EndReason.SFT_TARGET_NOT_REACHED: Outcome(RunStatus.FAILED, Fault.CONFIG, Retry.NEVER, "Raise sft.steps, or try another seed."),
    EndReason.NO_VALID_CHECKPOINT: Outcome(RunStatus.FAILED, Fault.INFRA, Retry.NEVER, "No committed checkpoint passes verification. Start a new run."),
    EndReason.DATASET_INVALID: Outcome(RunStatus.FAILED, Fault.DATA, Retry.NEVER, "The event names the row and the reason."),
    EndReason.MODEL_INVALID: Outcome(RunStatus.FAILED, Fault.DATA, Retry.NEVER, "The event names the file or tensor."),
    EndReason.ALL_FILTERED: Outcome(RunStatus.FAILED, Fault.CONFIG, Retry.NEVER, "Every group was filtered, because all prompts are too easy or too hard for the model. Widen rollout.filter, choose other rows, or use a warm start."),
    EndReason.REWARD_ERRORS: Outcome(RunStatus.FAILED, Fault.REWARD, Retry.NEVER, "No completion gets a score; the event says why. Fix the reward function or the rows, and start again from the last checkpoint."),
    EndReason.REWARD_ERROR_RATE: Outcome(RunStatus.PAUSED, Fault.REWARD, Retry.NEVER, "Too many completions got no score; the event says why. A reward error never counts as 0. Resume the run if the cause is gone. Otherwise fork it with a fixed reward or fixed rows, or with a higher reward.max_error_rate."),
    EndReason.WORKFLOW_ERRORS: Outcome(RunStatus.FAILED, Fault.CONFIG, Retry.NEVER, "Every group's workflow failed; the event says how the last one did."),
    EndReason.WALL_TIME_EXCEEDED: Outcome(RunStatus.STOPPED, Fault.USER, Retry.NEVER, "The run reached budget.max_wall_seconds. Start again from the last checkpoint."),
    EndReason.BUDGET_EXHAUSTED: Outcome(RunStatus.PAUSED, Fault.NONE, Retry.NEVER, "The month's budget is used up. Resume the run: it waits in the queue until the budget allows it to continue from its checkpoint. A playground or reward test ends: start it again."),
    EndReason.PREEMPTED: Outcome(RunStatus.STOPPED, Fault.NONE, Retry.ALWAYS, "A run in the queue or a reservation needed the slots, or the node was drained. A playground or reward test ends: start it again when slots are free. Any other run continues from its checkpoint when slots are free."),
    EndReason.SECRET_MISSING: Outcome(RunStatus.FAILED, Fault.CONFIG, Retry.NEVER, "The event names the secret. After an admin sets it again, a retry continues from the last checkpoint."),
    EndReason.CONFIG_REJECTED: Outcome(RunStatus.FAILED, Fault.CONFIG, Retry.NEVER, "The event names the field."),
}  # fmt: skip
