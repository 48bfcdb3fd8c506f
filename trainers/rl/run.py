"""The train loop. Read it top to bottom: every rank runs it, rank 0 alone has a `Front`."""

from __future__ import annotations

from pathlib import Path

import torch

from oolong.contracts.attempt import AttemptFile, JobFile, JobResult
from oolong.contracts.lifecycle import EndReason
from oolong.contracts.run_spec import RunSpec
from oolong.contracts.user_source import SourceKind
from trainers import checkpoint
from trainers.algorithms.losses import Objective
from trainers.algorithms.user_loss import load_user_loss
from trainers.models.critic import load_critic
from trainers.models.policy import DTYPES, Policy, load_policy
from trainers.models.selfcheck import check_packing, say_packing_check
from trainers.models.shard import full_tensors, shard_as_asked
from trainers.ranks import Ranks
from trainers.rl.account import Account
from trainers.rl.critic import CriticLearner
from trainers.rl.front import Front, Order
from trainers.rl.learner import Learner
from trainers.signals import stop_on_signals
from trainers.stopwatch import Stopwatch

NONFINITE_LIMIT = 3  # steps in a row


def run(attempt: AttemptFile, job: JobFile, job_directory: Path, ranks: Ranks) -> JobResult:
    """Train until the run's steps are done, a stop is wanted, or nothing finite comes out any more."""
    stop = stop_on_signals()
    spec = attempt.run_spec
    dtype = DTYPES[spec.trainer.compute_type]
    torch.manual_seed(spec.seed)
    loss = attempt.source_files.get(SourceKind.LOSS)
    learner = make_learner(
        Path(attempt.model_directory),
        spec,
        ranks,
        objective=None if loss is None else load_user_loss(Path(loss), spec.algorithm.options),
    )
    version, parent, account = _resume(attempt, learner, ranks)
    say_packing_check(check_packing(learner.policy, exact=dtype == torch.float32), ranks)

    front: Front | None = None
    if ranks.first:
        front = Front(
            attempt, job, job_directory,
            spec=spec, first_version=version, account=account, stop=stop, device=ranks.device, dtype=dtype,
        )  # fmt: skip
        front.record_progress("boot", version, "weights loaded")
        if attempt.resume_directory is not None:
            front.check_ledger(version)
    writer = checkpoint.CheckpointWriter(
        attempt.checkpoints_directory,
        ranks=ranks,
        model_directory=Path(attempt.model_directory),
        keep_last=spec.checkpoint.keep_last,
    )
    watch = Stopwatch()
    _publish(version, learner, front, dtype=dtype, first=True, watch=watch)
    watch.lap("wait_batch")

    total, failures, stopped = spec.trainer.total_train_steps, 0, False
    begun: int | None = (
        None  # step of the newest checkpoint that was begun; it is written behind the next steps
    )
    newest: checkpoint.Committed | None = None
    while version < total:
        order: Order = ranks.deal(
            front.next_orders(version, ranks=ranks.size, watch=watch) if front else None
        )
        if order.plan is None:
            stopped = True
            break
        learner.peak_learning_rate = order.learning_rate or spec.trainer.learning_rate
        outcome = learner.train(order.plan, watch)
        if not outcome.finite:
            failures += 1
            account.nonfinite_skips += 1
            if front is not None:
                front.announce_nonfinite(version)
            if failures == NONFINITE_LIMIT:
                break
            continue
        failures = 0
        version += 1
        _publish(version, learner, front, dtype=dtype, first=False, watch=watch)
        watch.enter("prepare")
        metrics = front.account_batch(outcome.metrics) if front is not None else {}
        due = order.checkpoint or version % spec.checkpoint.every_steps == 0
        if due and version < total:
            watch.enter("checkpoint")
            newest = _told(front, writer.finish()) or newest
            _begin_checkpoint(writer, version, attempt, learner, front, account, parent)
            begun = version
        newest = _told(front, writer.committed()) or newest
        if front is not None:
            seconds = watch.lap("prepare")
            front.record_step(version, metrics, seconds, at=watch.lapped_at)

    if failures == NONFINITE_LIMIT:
        _told(front, writer.close())
        if front is not None:
            front.close(version, "failed")
        return JobResult(
            reason=EndReason.NONFINITE_LOSS,
            message=f"{failures} steps in a row after version {version} gave a non-finite loss or gradient at "
            f"trainer.learning_rate={learner.peak_learning_rate:g}",
        )
    if begun != version:
        _told(front, writer.finish())
        _begin_checkpoint(writer, version, attempt, learner, front, account, parent)
    newest = writer.close() or newest
    if front is not None:
        assert newest is not None and newest.step == version
        front.record_checkpoint(newest, final=True)
        front.close(version, "stopped" if stopped else "completed")
    if stopped:
        return JobResult(
            reason=EndReason.STOPPED_BY_USER, message=f"stopped after train step {version} of {total}"
        )
    return JobResult(reason=EndReason.COMPLETED, message=f"{total} train steps")


def make_learner(
    model_directory: Path, spec: RunSpec, ranks: Ranks, *, objective: Objective | None = None
) -> Learner:
    """The policy, and what the algorithm wants beside it: all models begin as the run's initial weights."""

    def policy() -> Policy:
        return shard_as_asked(load_policy(model_directory), ranks.mesh, spec.trainer)

    critic = None
    if spec.algorithm.critic is not None:
        value_model = shard_as_asked(load_critic(model_directory), ranks.mesh, spec.trainer)
        critic = CriticLearner(value_model, spec.algorithm.critic, spec.trainer, ranks)
    return Learner(
        policy(),
        spec,
        ranks,
        reference=policy().requires_grad_(False) if spec.algorithm.kl is not None else None,
        critic=critic,
        objective=objective,
    )


def _resume(attempt: AttemptFile, learner: Learner, ranks: Ranks) -> tuple[int, str | None, Account]:
    """(policy version, sha256 of the checkpoint gone on from, account so far); a fresh start is version 0."""
    if attempt.resume_directory is None:
        return 0, None, Account(seed=attempt.run_spec.seed)
    directory = Path(attempt.resume_directory)
    record, sha256 = ranks.tell(checkpoint.verify(directory) if ranks.first else None)
    if record.kind != "rl":
        raise checkpoint.NoValidCheckpoint(
            f"{directory} is a checkpoint of kind {record.kind!r}, not of an rl run"
        )
    checkpoint.load_state(
        directory,
        policy=learner.policy,
        optimizer=learner.optimizer,
        critic=learner.trained_critic,
        ranks=ranks,
    )
    checkpoint.restore_random_state(record.random_state)
    account = Account(
        seed=record.seed,
        first_rewards=list(record.first_rewards),
        last_rewards=list(record.last_rewards),
        tokens_trained=record.tokens_trained,
        nonfinite_skips=record.nonfinite_skips,
    )
    return record.step, sha256, account


def _publish(
    version: int, learner: Learner, front: Front | None, *, dtype: torch.dtype, first: bool, watch: Stopwatch
) -> None:
    watch.enter("gather")
    tensors = full_tensors(learner.policy, dtype=dtype, keep=front is not None)
    if front is not None:
        front.publish(version, tensors, first=first, watch=watch)


def _told(front: Front | None, committed: checkpoint.Committed | None) -> checkpoint.Committed | None:
    """What was committed meanwhile, after the control plane has been told of it."""
    if front is not None and committed is not None:
        front.record_checkpoint(committed, final=False)
    return committed


def _begin_checkpoint(
    writer: checkpoint.CheckpointWriter,
    version: int,
    attempt: AttemptFile,
    learner: Learner,
    front: Front | None,
    account: Account,
    parent: str | None,
) -> None:
    """At the boundary after `version` was announced and before the next take."""
    writer.begin(
        checkpoint.TrainerRecord(
            kind="rl",
            step=version,
            seed=account.seed,
            random_state=checkpoint.random_state(),
            nonfinite_skips=account.nonfinite_skips,
            run_id=attempt.run_id,
            attempt_id=attempt.attempt_id,
            epoch=attempt.epoch,
            parent=parent,
            first_rewards=account.first_rewards,
            last_rewards=account.last_rewards,
            tokens_trained=account.tokens_trained,
        ),
        policy=learner.policy,
        optimizer=learner.optimizer,
        critic=learner.trained_critic,
        snapshot=front.controller.snapshot(version) if front is not None else None,
        weights=front.published_file if front is not None else None,
    )
