"""The RL train loop. Every rank runs it; only rank 0 has a `Rank0Coordinator`."""

from __future__ import annotations

from pathlib import Path

import torch

from oolong.contracts.attempt import AttemptFile, JobFile, JobResult
from oolong.contracts.lifecycle import EndReason
from oolong.contracts.run_spec import RunSpec
from oolong.contracts.user_code import SourceKind
from trainers import checkpoint
from trainers.algorithms.losses import Objective
from trainers.algorithms.user_loss import load_user_loss
from trainers.distributed.context import DistributedContext
from trainers.distributed.fsdp import (
    apply_fsdp,
    gather_adapters,
    gather_full_tensors,
    load_sharded_policy,
)
from trainers.models.critic import load_critic
from trainers.models.lora import BasePolicy, engine_tensors
from trainers.models.packing_check import check_packing, print_packing_check
from trainers.models.policy import DTYPES
from trainers.phase_timer import PhaseTimer
from trainers.rl.critic_learner import CriticLearner
from trainers.rl.learner import Learner
from trainers.rl.rank0_coordinator import Rank0Coordinator, StepCommand
from trainers.rl.run_summary import RunSummary
from trainers.stop_signals import stop_event_on_signals

MAX_CONSECUTIVE_NONFINITE = 3


def train(attempt: AttemptFile, job: JobFile, job_directory: Path, context: DistributedContext) -> JobResult:
    """Train until all steps are done, a stop signal arrives, or too many consecutive steps are not finite."""
    stop = stop_event_on_signals()
    spec = attempt.run_spec
    dtype = DTYPES[spec.trainer.compute_type]
    torch.manual_seed(spec.seed)
    loss = attempt.source_files.get(SourceKind.LOSS)
    learner = make_learner(
        Path(attempt.model_directory),
        spec,
        context,
        objective=None if loss is None else load_user_loss(Path(loss), spec.algorithm.options),
    )
    version, parent, summary = _resume(attempt, learner, context)
    packing_check = check_packing(learner.policy, exact=dtype == torch.float32)

    rank0: Rank0Coordinator | None = None
    if context.is_rank0:
        print_packing_check(packing_check)
        rank0 = Rank0Coordinator(
            attempt, job, job_directory,
            spec=spec, first_version=version, summary=summary, stop=stop, device=context.device, dtype=dtype,
        )  # fmt: skip
        rank0.record_progress("boot", version, "weights loaded")
        if attempt.resume_directory is not None:
            rank0.check_ledger(version)
    writer = checkpoint.CheckpointWriter(
        attempt.checkpoints_directory,
        context=context,
        model_directory=Path(attempt.model_directory),
        adapter_base=attempt.adapter_base,
        keep_last=spec.checkpoint.keep_last,
    )
    timer = PhaseTimer()
    _publish(version, learner, rank0, dtype=dtype, first=True, timer=timer)
    timer.flush("wait_batch")
    if rank0 is not None:
        rank0.record_timeline(version, timer)

    total, failures, stopped = spec.trainer.total_train_steps, 0, False
    begun: int | None = None  # step of the newest checkpoint begun, which is written while training continues
    newest: checkpoint.CommittedCheckpoint | None = None
    while version < total:
        command: StepCommand = context.scatter(
            rank0.next_commands(version, num_ranks=context.world_size, timer=timer) if rank0 else None
        )
        if command.plan is None:
            stopped = True
            break
        learner.peak_learning_rate = command.learning_rate or spec.trainer.learning_rate
        outcome = learner.train(command.plan, timer, record=command.record)
        if not outcome.finite:
            failures += 1
            summary.skipped_steps += 1
            if rank0 is not None:
                rank0.announce_nonfinite(version)
            if failures == MAX_CONSECUTIVE_NONFINITE:
                break
            continue
        failures = 0
        version += 1
        recorded = context.gather(outcome.recorded) if command.record else None
        if rank0 is not None:
            rank0.keep_tokens([one for of_rank in recorded or [] for one in of_rank])
        _publish(version, learner, rank0, dtype=dtype, first=False, timer=timer)
        timer.start("prepare")
        metrics = rank0.collect_metrics(outcome.metrics) if rank0 is not None else {}
        due = command.checkpoint or version % spec.checkpoint.every_steps == 0
        if due and version < total:
            timer.start("checkpoint")
            newest = _report_checkpoint(rank0, writer.wait()) or newest
            _begin_checkpoint(writer, version, attempt, learner, rank0, summary, parent)
            begun = version
        newest = _report_checkpoint(rank0, writer.poll()) or newest
        if rank0 is not None:
            seconds = timer.flush("prepare")
            rank0.record_step(version, metrics, seconds, at=timer.flushed_at)
            rank0.record_timeline(version, timer)

    if failures == MAX_CONSECUTIVE_NONFINITE:
        _report_checkpoint(rank0, writer.close())
        if rank0 is not None:
            rank0.close(version, "failed")
        return JobResult(
            reason=EndReason.NONFINITE_LOSS,
            message=f"{failures} consecutive steps after version {version} had a non-finite loss or gradient at "
            f"trainer.learning_rate={learner.peak_learning_rate:g}",
        )
    if begun != version:
        _report_checkpoint(rank0, writer.wait())
        _begin_checkpoint(writer, version, attempt, learner, rank0, summary, parent)
    newest = writer.close() or newest
    if rank0 is not None:
        assert newest is not None and newest.step == version
        rank0.record_checkpoint(newest, final=True)
        rank0.close(version, "stopped" if stopped else "completed")
    if stopped:
        return JobResult(
            reason=EndReason.STOPPED_BY_USER, message=f"stopped after train step {version} of {total}"
        )
    return JobResult(reason=EndReason.COMPLETED, message=f"{total} train steps")


def make_learner(
    model_directory: Path, spec: RunSpec, context: DistributedContext, *, objective: Objective | None = None
) -> Learner:
    """Load the policy and, if configured, reference policy and critic, all from the run's initial weights."""
    policy = load_sharded_policy(model_directory, spec, context, seed=spec.seed)
    critic, reference = None, None
    if spec.algorithm.critic is not None:
        value_model = apply_fsdp(load_critic(model_directory), context.mesh, spec.trainer)
        critic = CriticLearner(value_model, spec.algorithm.critic, spec.trainer, context)
    if spec.algorithm.kl is not None:
        reference = (
            BasePolicy(policy)
            if spec.model.lora is not None
            else load_sharded_policy(model_directory, spec, context, seed=spec.seed).requires_grad_(False)
        )
    return Learner(
        policy,
        spec,
        context,
        reference=reference,
        critic=critic,
        objective=objective,
    )


def _resume(
    attempt: AttemptFile, learner: Learner, context: DistributedContext
) -> tuple[int, str | None, RunSummary]:
    """Return (policy version, sha256 of the parent checkpoint, run summary so far); without a resume, version 0."""
    if attempt.resume_directory is None:
        return 0, None, RunSummary(seed=attempt.run_spec.seed)
    directory = Path(attempt.resume_directory)
    record, sha256 = context.broadcast(checkpoint.verify(directory) if context.is_rank0 else None)
    if record.kind != "rl":
        raise checkpoint.InvalidCheckpoint(
            f"{directory} is a checkpoint of kind {record.kind!r}, but an rl run needs one of kind 'rl'"
        )
    checkpoint.load_state(
        directory,
        policy=learner.policy,
        optimizer=learner.optimizer,
        critic=learner.critic_and_optimizer,
        context=context,
    )
    checkpoint.restore_random_state(record.random_state)
    summary = RunSummary(
        seed=record.seed,
        first_rewards=list(record.first_rewards),
        last_rewards=list(record.last_rewards),
        tokens_trained=record.tokens_trained,
        skipped_steps=record.skipped_steps,
    )
    return record.step, sha256, summary


def _publish(
    version: int,
    learner: Learner,
    rank0: Rank0Coordinator | None,
    *,
    dtype: torch.dtype,
    first: bool,
    timer: PhaseTimer,
) -> None:
    """Publish the weights that changed: all of them, or the adapters of a LoRA run. Collective."""
    timer.start("gather")
    if learner.trains_adapters:
        trained = gather_adapters(learner.policy, dtype=dtype, keep=rank0 is not None)
        tensors = engine_tensors(learner.policy, trained) if rank0 is not None else {}
    else:
        trained = tensors = gather_full_tensors(
            learner.policy,
            dtype=dtype,
            keep=rank0 is not None,
            into=rank0.take_free_tensors() if rank0 is not None else None,
        )
    if rank0 is not None:
        rank0.publish(version, tensors, trained=trained, first=first, timer=timer)


def _report_checkpoint(
    rank0: Rank0Coordinator | None, committed: checkpoint.CommittedCheckpoint | None
) -> checkpoint.CommittedCheckpoint | None:
    """Record a newly committed checkpoint in the outbox, and return it."""
    if rank0 is not None and committed is not None:
        rank0.record_checkpoint(committed, final=False)
    return committed


def _begin_checkpoint(
    writer: checkpoint.CheckpointWriter,
    version: int,
    attempt: AttemptFile,
    learner: Learner,
    rank0: Rank0Coordinator | None,
    summary: RunSummary,
    parent: str | None,
) -> None:
    """Begin a checkpoint at a step boundary: after `version` was announced, before the next take. Collective."""
    writer.begin(
        checkpoint.TrainerRecord(
            kind="rl",
            step=version,
            seed=summary.seed,
            random_state=checkpoint.random_state(),
            skipped_steps=summary.skipped_steps,
            run_id=attempt.run_id,
            attempt_id=attempt.attempt_id,
            epoch=attempt.epoch,
            parent=parent,
            first_rewards=summary.first_rewards,
            last_rewards=summary.last_rewards,
            tokens_trained=summary.tokens_trained,
        ),
        policy=learner.policy,
        optimizer=learner.optimizer,
        critic=learner.critic_and_optimizer,
        snapshot=rank0.controller.snapshot(version) if rank0 is not None else None,
        # Of a LoRA run the writer stores the adapters in float32, which are not the published ones.
        weights=rank0.published_file if rank0 is not None and not learner.trains_adapters else None,
    )
