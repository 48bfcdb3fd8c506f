"""The DPO train loop: reference pass, steps, validation on held-out pairs, checkpoints, exact resumption."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from oolong.contracts.attempt import AttemptFile, JobFile, JobResult
from oolong.contracts.lifecycle import EndReason
from oolong.contracts.telemetry import Outbox, Points, Progress
from trainers import checkpoint
from trainers.dataset import read_rows
from trainers.distributed.context import DistributedContext
from trainers.distributed.fsdp import gather_full_tensors, load_sharded_policy, set_gradient_sync
from trainers.dpo.objective import MEASURES, DpoObjective, PairLosses
from trainers.dpo.pairs import Pair, chunks_of, distribute_pairs, tokenize_pairs
from trainers.examples import batch_at, epoch_order
from trainers.models.flops import forward_flops
from trainers.models.optimizer import clip_gradients, learning_rate_at, make_adamw, set_learning_rate
from trainers.models.packing_check import check_packing, print_packing_check
from trainers.models.policy import DTYPES, Policy
from trainers.stop_signals import stop_event_on_signals

MAX_CONSECUTIVE_NONFINITE = 3


@dataclass(frozen=True)
class Result:
    step: int
    end_reason: EndReason | None = None  # None: all steps are done
    message: str = ""


def train(attempt: AttemptFile, job: JobFile, job_directory: Path, context: DistributedContext) -> JobResult:
    """Train until all steps are done, a stop signal arrives, or too many consecutive steps are not finite."""
    stop = stop_event_on_signals()
    spec = attempt.run_spec
    section = spec.dpo
    model_directory, dataset = Path(attempt.model_directory), Path(attempt.dataset_file)
    pairs = tokenize_pairs(read_rows(dataset, split=spec.dataset.split), model_directory)
    validation = (
        tokenize_pairs(
            read_rows(dataset, split=section.validation_split)[: section.validation_rows], model_directory
        )
        if section.validation_split is not None
        else []
    )
    torch.manual_seed(spec.seed)
    outbox = Outbox(job_directory, job.incarnation) if context.is_rank0 else None
    trainer = DpoTrainer(
        load_sharded_policy(model_directory, spec, context, seed=spec.seed), pairs, validation,
        attempt=attempt, context=context, outbox=outbox, stop=stop,
    )  # fmt: skip
    packing_check = check_packing(trainer.policy, exact=spec.trainer.compute_type == "float32")
    if context.is_rank0:
        print_packing_check(packing_check)
    result = trainer.run()
    if outbox is not None:
        outbox.close()
    return JobResult(
        reason=result.end_reason or EndReason.COMPLETED, message=result.message or f"{result.step} steps"
    )


class DpoTrainer:
    """Trains one attempt of a run: compute the reference, resume from the attempt's checkpoint, take the steps."""

    def __init__(
        self,
        policy: Policy,
        pairs: Sequence[Pair],
        validation: Sequence[Pair],
        *,
        attempt: AttemptFile,
        context: DistributedContext,
        outbox: Outbox | None,
        stop: threading.Event,
    ) -> None:
        spec = attempt.run_spec
        self.policy = policy
        self._objective = DpoObjective(policy, spec, context)
        self._pairs = pairs
        # Held-out pairs get the positions behind those of the training split.
        self._validation = [
            Pair(len(pairs) + number, pair.chosen, pair.rejected) for number, pair in enumerate(validation)
        ]
        self._spec = spec
        self._section = spec.dpo
        self._attempt = attempt
        self._context = context
        self._outbox = outbox
        self._stop = stop
        self._flops = forward_flops(policy.config)
        self._parameters = [one for one in policy.parameters() if one.requires_grad]
        self._skipped_steps = 0
        self._begun: int | None = None  # step of the newest checkpoint begun
        self._newest: checkpoint.CommittedCheckpoint | None = None  # on rank 0
        self._parent: str | None = None  # sha256 of the checkpoint that the attempt resumes from
        self.optimizer = make_adamw(
            self._parameters,
            learning_rate=self._section.learning_rate,
            betas=self._section.adam_betas,
            weight_decay=self._section.weight_decay,
            offload=spec.trainer.offload_optimizer,
        )
        self._writer = checkpoint.CheckpointWriter(
            attempt.checkpoints_directory,
            context=context,
            model_directory=Path(attempt.model_directory),
            adapter_base=attempt.adapter_base,
            keep_last=spec.checkpoint.keep_last,
        )

    def run(self) -> Result:
        first = self._resume_step()
        prepared = self.prepare(first)
        if first:
            self._load_checkpoint()
        if not prepared:
            result = Result(first, EndReason.STOPPED_BY_USER, f"stopped before step {first + 1}")
        else:
            result = self._train(first)
        if result.end_reason is EndReason.NONFINITE_LOSS:
            self._report_checkpoint(self._writer.close())
            return result
        if self._begun != result.step:
            self._report_checkpoint(self._writer.wait())
            self._begin_checkpoint(result.step)
        self._report_checkpoint(self._writer.close() or self._newest, final=True)
        return result

    def _train(self, first: int) -> Result:
        section, failures = self._section, 0
        for step in range(first, section.steps):
            if self._context.broadcast(self._stop.is_set()):
                message = f"stopped after {step} of {section.steps} steps"
                return Result(step, EndReason.STOPPED_BY_USER, message)
            began, done = time.monotonic(), step + 1
            metrics = self.train_step(step)
            if metrics is None:
                failures += 1
                self._skipped_steps += 1
                if failures == MAX_CONSECUTIVE_NONFINITE:
                    message = (
                        f"{failures} consecutive steps, up to step {done}, had a non-finite loss or gradient at "
                        f"dpo.learning_rate={section.learning_rate:g}"
                    )
                    return Result(step, EndReason.NONFINITE_LOSS, message)
            else:
                failures = 0
                seconds = time.monotonic() - began
                if self._validation and (done == section.steps or done % section.validate_every_steps == 0):
                    metrics |= self.validate()
                self._report(done, metrics, seconds)
            self._report_checkpoint(self._writer.poll())
            if done % self._spec.checkpoint.every_steps == 0 and done < section.steps:
                self._report_checkpoint(self._writer.wait())
                self._begin_checkpoint(done)
        return Result(section.steps)

    def train_step(self, step: int) -> dict[str, float] | None:
        """Take one optimizer step. Returns its metrics, or None (weights unchanged) if it is not finite. Collective."""
        section = self._section
        rate = learning_rate_at(
            step,
            peak=section.learning_rate,
            warmup_steps=section.warmup_steps,
            total_steps=section.steps,
            final_fraction=section.final_learning_rate_fraction,
        )
        batch = [self._pairs[row] for row in self._rows_of(step)]
        microbatches = self._local_microbatches(batch)
        totals: dict[str, float] = {}
        for number, pairs in enumerate(microbatches):
            set_gradient_sync(self.policy, is_last=number == len(microbatches) - 1)
            found = self._objective.losses(pairs)
            share = 1.0 if pairs[0].position >= 0 else 0.0  # of padding
            loss = share * found.losses.sum() / len(batch)
            (loss * self._context.world_size).backward()  # FSDP2 averages over ranks
            if share:
                _add(totals, found)
        norm = clip_gradients(self._parameters, section.max_grad_norm)
        means = self._means(totals, len(batch))
        finite = math.isfinite(means["dpo/loss"]) and math.isfinite(norm)
        if finite:
            set_learning_rate(self.optimizer, rate)
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if not finite:
            return None
        tokens = sum(len(side.target_positions) for pair in batch for side in pair.examples)
        return {
            **means,
            "optim/learning_rate": rate, "optim/grad_norm": norm,
            "optim/skipped_steps": float(self._skipped_steps), "perf/trained_tokens": float(tokens),
        }  # fmt: skip

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        """Loss, accuracy and margin on the held-out pairs. Collective."""
        totals: dict[str, float] = {}
        for pairs in self._local_microbatches(self._validation):
            found = self._objective.losses(pairs)
            if pairs[0].position >= 0:
                _add(totals, found)
        means = self._means(totals, len(self._validation))
        return {
            "dpo/validation_loss": means["dpo/loss"],
            "dpo/validation_accuracy": means["dpo/accuracy"],
            "dpo/validation_margin": means["dpo/margin"],
        }

    def _means(self, totals: dict[str, float], pairs: int) -> dict[str, float]:
        sums = self._context.sum([totals.get(name, 0.0) for name in MEASURES])
        return {name: total / pairs for name, total in zip(MEASURES, sums, strict=True)}

    def _rows_of(self, step: int) -> list[int]:
        return batch_at(
            step,
            rows=len(self._pairs),
            batch_size=self._section.batch_size,
            seed=self._spec.seed,
            kind="dpo",
        )

    def _local_microbatches(self, pairs: Sequence[Pair]) -> list[list[Pair]]:
        by_rank = distribute_pairs(
            pairs,
            num_ranks=self._context.world_size,
            token_budget=self._spec.trainer.microbatch_tokens,
            flops=self._flops,
        )
        return by_rank[self._context.rank]

    def prepare(self, first: int) -> bool:
        """Prepare the pairs of the steps from `first` on, and of validation. False when a stop signal came. Collective.

        Has to come before a checkpoint is loaded: the reference is the model that the run starts from.
        """
        order = epoch_order(0, len(self._pairs), self._spec.seed, kind="dpo")
        wanted = {row for step in range(first, self._section.steps) for row in self._rows_of(step)}
        chunks = [
            *chunks_of([self._pairs[row] for row in order], {self._pairs[row].position for row in wanted}),
            *chunks_of(self._validation, {pair.position for pair in self._validation}),
        ]
        done, total = 0, sum(len(chunk) for chunk in chunks)
        for chunk in chunks:
            if self._context.broadcast(self._stop.is_set()):
                return False
            self._objective.prepare(chunk)
            done += len(chunk)
            if self._outbox is not None:
                self._outbox.write(
                    Progress(
                        phase="reference", done=done, total=total, message="pairs under the initial weights"
                    )
                )
        return True

    def _resume_step(self) -> int:
        """The step of the checkpoint that the attempt resumes from; 0 without one. Collective."""
        if self._attempt.resume_directory is None:
            return 0
        directory = Path(self._attempt.resume_directory)
        record, self._parent = self._context.broadcast(
            checkpoint.verify(directory) if self._context.is_rank0 else None
        )
        if record.kind != "dpo":
            raise checkpoint.InvalidCheckpoint(
                f"{directory} is a checkpoint of kind {record.kind!r}, but a dpo run needs one of kind 'dpo'"
            )
        self._skipped_steps = record.skipped_steps
        return record.step

    def _load_checkpoint(self) -> None:
        assert self._attempt.resume_directory is not None
        checkpoint.load_state(
            Path(self._attempt.resume_directory),
            policy=self.policy,
            optimizer=self.optimizer,
            context=self._context,
        )

    def _begin_checkpoint(self, step: int) -> None:
        self._begun = step
        whole = self._attempt.adapter_base is None
        weights = (
            gather_full_tensors(
                self.policy, dtype=DTYPES[self._spec.trainer.compute_type], keep=self._context.is_rank0
            )
            if whole
            else {}
        )
        self._writer.begin(
            checkpoint.TrainerRecord(
                kind="dpo",
                step=step,
                seed=self._spec.seed,
                random_state=checkpoint.random_state(),
                skipped_steps=self._skipped_steps,
                run_id=self._attempt.run_id,
                attempt_id=self._attempt.attempt_id,
                epoch=self._attempt.epoch,
                parent=self._parent,
            ),
            policy=self.policy,
            optimizer=self.optimizer,
            snapshot=None,
            weights=weights if self._context.is_rank0 and whole else None,
        )

    def _report_checkpoint(
        self, committed: checkpoint.CommittedCheckpoint | None, *, final: bool = False
    ) -> None:
        self._newest = committed or self._newest
        if self._outbox is not None and committed is not None:
            self._outbox.write(committed.outbox_line(final=final))

    def _report(self, done: int, metrics: dict[str, float], seconds: float) -> None:
        if self._outbox is None:
            return
        values = {
            **metrics, "time/step_seconds": seconds,
            "perf/trained_tokens_per_second": metrics["perf/trained_tokens"] / seconds,
        }  # fmt: skip
        self._outbox.write(Points(axis="step", x=done, values=values))
        message = f"loss {metrics['dpo/loss']:.4f}, accuracy {metrics['dpo/accuracy']:.3f}"
        if "dpo/validation_accuracy" in metrics:
            message += f", on validation pairs {metrics['dpo/validation_accuracy']:.3f}"
        self._outbox.write(Progress(phase="train", done=done, total=self._section.steps, message=message))
        print(f"step {done} {message} | {seconds:.3f} s", flush=True)


def _add(totals: dict[str, float], found: PairLosses) -> None:
    for name, values in found.measures.items():
        totals[name] = totals.get(name, 0.0) + float(values.sum())
