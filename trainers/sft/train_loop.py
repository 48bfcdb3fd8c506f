"""The SFT train loop: train on demonstrations, validate by greedy accuracy, stop early, retry with another seed."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from oolong.contracts.attempt import AttemptFile, JobFile, JobResult
from oolong.contracts.lifecycle import EndReason
from oolong.contracts.run_spec import RunSpec
from oolong.contracts.telemetry import Note, Outbox, Points, Progress, Summary
from trainers import checkpoint
from trainers.dataset import read_rows
from trainers.distributed.context import DistributedContext
from trainers.distributed.fsdp import gather_full_tensors, load_sharded_policy, set_gradient_sync
from trainers.distributed.sequence_packing import SequenceSize, pack_microbatches
from trainers.examples import Example, batch_at
from trainers.models.flops import DEFAULT_FLOPS, ForwardFlops, forward_flops
from trainers.models.optimizer import clip_gradients, learning_rate_at, make_adamw, set_learning_rate
from trainers.models.packed_row import pack_row
from trainers.models.packing_check import check_packing, print_packing_check
from trainers.models.policy import DTYPES, Policy
from trainers.sft.examples import tokenize_examples
from trainers.stop_signals import stop_event_on_signals

MAX_CONSECUTIVE_NONFINITE = 3
REPORT_EVERY_STEPS = 10
STOP_CHECK_EVERY_STEPS = 10  # how often the ranks agree on whether to stop


@dataclass(frozen=True)
class SftResult:
    """The result of training with one seed."""

    steps: int
    accuracy: float | None
    end_reason: EndReason | None  # ends the run at once, regardless of the accuracy
    message: str = ""


def train(attempt: AttemptFile, job: JobFile, job_directory: Path, context: DistributedContext) -> JobResult:
    """Train, retrying with other seeds while the required accuracy is not reached, and commit a checkpoint."""
    stop = stop_event_on_signals()
    spec = attempt.run_spec
    started = time.monotonic()
    model_directory = Path(attempt.model_directory)
    dataset = Path(attempt.dataset_file)
    examples = tokenize_examples(read_rows(dataset, split=spec.dataset.split), model_directory)
    validation = (
        tokenize_examples(
            read_rows(dataset, split=spec.sft.validation_split)[: spec.sft.validation_rows], model_directory
        )
        if spec.sft.validation_split is not None
        else []
    )
    outbox = Outbox(job_directory, job.incarnation) if context.is_rank0 else None
    for retry in range(spec.sft.seed_retries + 1):
        seed = spec.seed + retry
        torch.manual_seed(seed)
        trainer = SftTrainer(
            load_sharded_policy(model_directory, spec, context, seed=seed),
            examples, validation, spec=spec, seed=seed, retry=retry, context=context, outbox=outbox, stop=stop,
        )  # fmt: skip
        exact = spec.trainer.compute_type == "float32"
        packing_check = check_packing(trainer.policy, exact=exact)
        if context.is_rank0:
            print_packing_check(packing_check)
        result = trainer.run()
        required = spec.sft.required_greedy_accuracy
        target_missed = required is not None and result.accuracy is not None and result.accuracy < required
        if result.end_reason is not None or not target_missed:
            break
        if outbox is not None:
            outbox.write(
                Note(
                    kind="sft_target_not_reached",
                    message=f"seed {seed}: greedy accuracy {result.accuracy:.3f} after {result.steps} steps, "
                    f"below the required {required:g}",
                )
            )
    if result.end_reason not in (None, EndReason.STOPPED_BY_USER):
        return JobResult(reason=result.end_reason, message=result.message)
    if target_missed and result.end_reason is None:
        return JobResult(
            reason=EndReason.SFT_TARGET_NOT_REACHED,
            message=f"greedy accuracy {result.accuracy:.3f} after {result.steps} steps with seed {seed}, below "
            f"sft.required_greedy_accuracy={required:g}; {spec.sft.seed_retries} other seed(s) were tried",
        )
    _commit(attempt, trainer, result, context, outbox)
    if outbox is not None:
        value = {"steps": result.steps, "seed": seed, "seconds": time.monotonic() - started}
        if result.accuracy is not None:
            value["greedy_accuracy"] = result.accuracy
        outbox.write(Summary(name="sft", value=value))
        outbox.close()
    return JobResult(
        reason=result.end_reason or EndReason.COMPLETED, message=result.message or f"{result.steps} steps"
    )


class SftTrainer:
    """Trains the model with one seed."""

    def __init__(
        self,
        policy: Policy,
        examples: list[Example],
        validation: list[Example],
        *,
        spec: RunSpec,
        seed: int,
        retry: int,
        context: DistributedContext,
        outbox: Outbox | None,
        stop: threading.Event,
    ) -> None:
        self.policy = policy
        self.seed = seed
        self._examples = examples
        self._validation = validation
        self._section = spec.sft
        self._budget = spec.trainer.microbatch_tokens
        self._flops = forward_flops(policy.config)
        self._retry = retry
        self._reported_at = time.monotonic()
        self._context = context
        self._outbox = outbox
        self._stop = stop
        self._parameters = [parameter for parameter in policy.parameters() if parameter.requires_grad]
        self.optimizer = make_adamw(
            self._parameters,
            learning_rate=spec.sft.learning_rate,
            betas=spec.sft.adam_betas,
            weight_decay=spec.sft.weight_decay,
            offload=spec.trainer.offload_optimizer,
        )

    def run(self) -> SftResult:
        section = self._section
        accuracy: float | None = None
        failures = 0
        losses: list[float] = []
        for step in range(section.steps):
            if step % STOP_CHECK_EVERY_STEPS == 0 and self._context.broadcast(self._stop.is_set()):
                message = f"stopped after {step} of {section.steps} steps"
                return SftResult(step, accuracy, EndReason.STOPPED_BY_USER, message)
            rate = learning_rate_at(
                step,
                peak=section.learning_rate,
                warmup_steps=section.warmup_steps,
                total_steps=section.steps,
                final_fraction=section.final_learning_rate_fraction,
            )
            loss = self._step(step, rate)
            if loss is None:
                failures += 1
                if failures == MAX_CONSECUTIVE_NONFINITE:
                    message = (
                        f"{failures} consecutive steps, up to step {step + 1}, had a non-finite loss or gradient at "
                        f"sft.learning_rate={section.learning_rate:g}"
                    )
                    return SftResult(step, accuracy, EndReason.NONFINITE_LOSS, message)
                continue
            failures = 0
            losses.append(loss)
            done = step + 1
            validate = bool(self._validation) and (
                done == section.steps
                or (done >= section.validate_from_step and done % section.validate_every_steps == 0)
            )
            if validate:
                accuracy = self.greedy_accuracy()
            if done % REPORT_EVERY_STEPS == 0 or validate:
                self._report(done, losses, rate, accuracy if validate else None)
                losses = []
            target = section.stop_at_greedy_accuracy
            if validate and target is not None and accuracy is not None and accuracy >= target:
                return SftResult(done, accuracy, None)
        return SftResult(section.steps, accuracy, None)

    def _step(self, step: int, rate: float) -> float | None:
        """Run one optimizer step. Returns the token-mean loss, or None (weights unchanged) if it is not finite."""
        rows = batch_at(
            step, rows=len(self._examples), batch_size=self._section.batch_size, seed=self.seed, kind="sft"
        )
        batch = [self._examples[row] for row in rows]
        tokens = sum(len(example.target_positions) for example in batch)
        microbatches = self._local_microbatches(batch)
        total = 0.0
        for number, examples in enumerate(microbatches):
            set_gradient_sync(self.policy, is_last=number == len(microbatches) - 1)
            row = pack_row([one.tokens for one in examples], [one.target_positions for one in examples]).to(
                self._context.device
            )
            logprobs, _ = self.policy(row)
            loss = -logprobs.sum() / tokens
            (loss * self._context.world_size).backward()  # FSDP2 averages over ranks
            total += float(loss.detach())
        norm = clip_gradients(self._parameters, self._section.max_grad_norm)
        [total] = self._context.sum([total])
        finite = math.isfinite(total) and math.isfinite(norm)
        if finite:
            set_learning_rate(self.optimizer, rate)
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return total if finite else None

    @torch.no_grad()
    def greedy_accuracy(self) -> float:
        """Fraction of validation rows whose target tokens are all the model's greedy choice.

        With the row's own tokens as context, this is exactly whether greedy decoding reproduces the row.
        """
        correct = 0.0
        for examples in self._local_microbatches(self._validation):
            row = pack_row([one.tokens for one in examples], [one.target_positions for one in examples]).to(
                self._context.device
            )
            choices, targets = self.policy(row, greedy=True)
            matches = (choices == targets).split([len(one.target_positions) for one in examples])
            correct += sum(
                bool(match.all())
                for match, one in zip(matches, examples, strict=True)
                if one.target_positions
            )
        return self._context.sum([correct])[0] / len(self._validation)

    def _local_microbatches(self, examples: list[Example]) -> list[list[Example]]:
        by_rank = distribute_examples(
            examples, num_ranks=self._context.world_size, token_budget=self._budget, flops=self._flops
        )
        return by_rank[self._context.rank]

    def _report(self, done: int, losses: list[float], rate: float, accuracy: float | None) -> None:
        if self._outbox is None:
            return
        x = (
            done + self._retry * self._section.steps
        )  # steps of a retry continue after those of the previous seed
        now = time.monotonic()
        values = {
            "sft/loss": sum(losses) / len(losses), "sft/learning_rate": rate,
            "time/train_seconds": now - self._reported_at,
        }  # fmt: skip
        self._reported_at = now
        message = f"loss {values['sft/loss']:.3f}"
        if accuracy is not None:
            values["sft/greedy_accuracy"] = accuracy
            message += f", greedy accuracy {accuracy:.3f}"
        self._outbox.write(Points(axis="step", x=x, values=values))
        if self._retry:
            message += f", seed {self.seed}"
        self._outbox.write(
            Progress(phase="warm_start", done=done, total=self._section.steps, message=message)
        )
        if done % 100 == 0 or accuracy is not None:
            print(f"step {done} {message}", flush=True)


def distribute_examples(
    examples: list[Example], *, num_ranks: int, token_budget: int, flops: ForwardFlops = DEFAULT_FLOPS
) -> list[list[list[Example]]]:
    """[ranks][microbatches][examples], packed by `trainers.distributed.sequence_packing`.

    Empty microbatches get a dummy example of one token without targets, because every forward pass is a collective.
    """
    sizes = [
        SequenceSize(len(one.tokens), flops.of_sequence(len(one.tokens), len(one.target_positions)))
        for one in examples
    ]
    dummy = Example(tokens=examples[0].tokens[:1], target_positions=[])
    return [
        [[examples[index] for index in indices] or [dummy] for indices in microbatches]
        for microbatches in pack_microbatches(sizes, num_ranks=num_ranks, token_budget=token_budget)
    ]


def _commit(
    attempt: AttemptFile,
    trainer: SftTrainer,
    result: SftResult,
    context: DistributedContext,
    outbox: Outbox | None,
) -> None:
    spec = attempt.run_spec
    adapter_base = attempt.adapter_base
    tensors = (
        gather_full_tensors(trainer.policy, dtype=DTYPES[spec.trainer.compute_type], keep=context.is_rank0)
        if adapter_base is None
        else {}
    )
    writer = checkpoint.CheckpointWriter(
        attempt.checkpoints_directory,
        context=context,
        model_directory=Path(attempt.model_directory),
        adapter_base=adapter_base,
        keep_last=spec.checkpoint.keep_last,
    )
    writer.begin(
        checkpoint.TrainerRecord(
            kind="sft",
            step=result.steps,
            seed=trainer.seed,
            random_state=checkpoint.random_state(),
            run_id=attempt.run_id,
            attempt_id=attempt.attempt_id,
            epoch=attempt.epoch,
        ),
        policy=trainer.policy,
        optimizer=trainer.optimizer,
        snapshot=None,
        weights=tensors if context.is_rank0 and adapter_base is None else None,
    )
    committed = writer.close()
    if outbox is not None and committed is not None:
        outbox.write(committed.outbox_line(final=True))
