"""The warm start's loop: batches of demonstrations, greedy accuracy on clean ones, a stop rule, one more seed."""

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
from oolong.contracts.telemetry import CheckpointLine, Note, Outbox, Points, Progress, Summary
from trainers import checkpoint
from trainers.data import read_rows
from trainers.microbatches import Size, allocate
from trainers.models.flops import OF_NO_MODEL, ForwardFlops, forward_flops
from trainers.models.optimizer import clip_gradients, learning_rate_at, make_adamw, set_learning_rate
from trainers.models.packing import pack
from trainers.models.policy import DTYPES, Policy, load_policy
from trainers.models.selfcheck import check_packing, say_packing_check
from trainers.models.shard import full_tensors, shard_as_asked, sync_gradients
from trainers.ranks import Ranks
from trainers.sft.examples import Example, batch_at, tokenize_examples
from trainers.signals import stop_on_signals

NONFINITE_LIMIT = 3  # steps in a row
REPORT_EVERY_STEPS = 10
STOP_CHECK_EVERY_STEPS = 10  # the ranks agree on a wish to stop this often


@dataclass(frozen=True)
class Warmed:
    """Where one seed got to."""

    steps: int
    accuracy: float | None
    end: EndReason | None  # a reason to end the run at once, whatever the accuracy
    message: str = ""


def run(attempt: AttemptFile, job: JobFile, job_directory: Path, ranks: Ranks) -> JobResult:
    """Warm up, with another seed if the first does not reach the required accuracy, and commit a checkpoint."""
    stop = stop_on_signals()
    spec = attempt.run_spec
    began = time.monotonic()
    model_directory = Path(attempt.model_directory)
    policy = load_policy(model_directory)
    dataset = Path(attempt.dataset_file)
    examples = tokenize_examples(read_rows(dataset, split=spec.dataset.split), model_directory)
    validation = (
        tokenize_examples(
            read_rows(dataset, split=spec.sft.validation_split)[: spec.sft.validation_rows], model_directory
        )
        if spec.sft.validation_split is not None
        else []
    )
    outbox = Outbox(job_directory, job.incarnation) if ranks.first else None
    for retry in range(spec.sft.seed_retries + 1):
        seed = spec.seed + retry
        torch.manual_seed(seed)
        if retry:
            policy = load_policy(model_directory)
        warm_up = WarmUp(
            shard_as_asked(policy, ranks.mesh, spec.trainer),
            examples, validation, spec=spec, seed=seed, retry=retry, ranks=ranks, outbox=outbox, stop=stop,
        )  # fmt: skip
        exact = spec.trainer.compute_type == "float32"
        say_packing_check(check_packing(warm_up.policy, exact=exact), ranks)
        warmed = warm_up.run()
        required = spec.sft.required_greedy_accuracy
        weak = required is not None and warmed.accuracy is not None and warmed.accuracy < required
        if warmed.end is not None or not weak:
            break
        if outbox is not None:
            outbox.write(
                Note(
                    kind="warm_start_too_weak",
                    message=f"seed {seed}: greedy accuracy {warmed.accuracy:.3f} after {warmed.steps} steps, "
                    f"below the required {required:g}",
                )
            )
    if warmed.end not in (None, EndReason.STOPPED_BY_USER):
        return JobResult(reason=warmed.end, message=warmed.message)
    if weak and warmed.end is None:
        return JobResult(
            reason=EndReason.WARM_START_TOO_WEAK,
            message=f"greedy accuracy {warmed.accuracy:.3f} after {warmed.steps} steps with seed {seed}, required is "
            f"{required:g}; {spec.sft.seed_retries} other seed(s) were tried",
        )
    _commit(attempt, warm_up, warmed, ranks, outbox)
    if outbox is not None:
        value = {"steps": warmed.steps, "seed": seed, "seconds": time.monotonic() - began}
        if warmed.accuracy is not None:
            value["greedy_accuracy"] = warmed.accuracy
        outbox.write(Summary(name="sft", value=value))
        outbox.close()
    return JobResult(
        reason=warmed.end or EndReason.COMPLETED, message=warmed.message or f"{warmed.steps} steps"
    )


class WarmUp:
    """One seed's training."""

    def __init__(
        self,
        policy: Policy,
        examples: list[Example],
        validation: list[Example],
        *,
        spec: RunSpec,
        seed: int,
        retry: int,
        ranks: Ranks,
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
        self._ranks = ranks
        self._outbox = outbox
        self._stop = stop
        self._parameters = list(policy.parameters())
        self.optimizer = make_adamw(
            self._parameters,
            learning_rate=spec.sft.learning_rate,
            betas=spec.sft.adam_betas,
            weight_decay=spec.sft.weight_decay,
            offload=spec.trainer.offload_optimizer,
        )

    def run(self) -> Warmed:
        section = self._section
        accuracy: float | None = None
        failures = 0
        losses: list[float] = []
        for step in range(section.steps):
            if step % STOP_CHECK_EVERY_STEPS == 0 and self._ranks.tell(self._stop.is_set()):
                message = f"stopped after {step} of {section.steps} steps"
                return Warmed(step, accuracy, EndReason.STOPPED_BY_USER, message)
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
                if failures == NONFINITE_LIMIT:
                    message = (
                        f"{failures} steps in a row, up to step {step + 1}, gave a non-finite loss or gradient at "
                        f"sft.learning_rate={section.learning_rate:g}"
                    )
                    return Warmed(step, accuracy, EndReason.NONFINITE_LOSS, message)
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
                return Warmed(done, accuracy, None)
        return Warmed(section.steps, accuracy, None)

    def _step(self, step: int, rate: float) -> float | None:
        """One optimizer step; returns the token mean loss, or None when nothing finite came out and nothing moved."""
        rows = batch_at(step, rows=len(self._examples), batch_size=self._section.batch_size, seed=self.seed)
        batch = [self._examples[row] for row in rows]
        tokens = sum(len(example.targets_at) for example in batch)
        bins = self._own_share(batch)
        total = 0.0
        for number, packed in enumerate(bins):
            sync_gradients(self.policy, number == len(bins) - 1)
            row = pack([one.tokens for one in packed], [one.targets_at for one in packed]).to(
                self._ranks.device
            )
            logprobs, _ = self.policy(row)
            loss = -logprobs.sum() / tokens
            (loss * self._ranks.size).backward()  # FSDP2 averages over the ranks
            total += float(loss.detach())
        norm = clip_gradients(self._parameters, self._section.max_grad_norm)
        [total] = self._ranks.sum([total])
        finite = math.isfinite(total) and math.isfinite(norm)
        if finite:
            set_learning_rate(self.optimizer, rate)
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return total if finite else None

    @torch.no_grad()
    def greedy_accuracy(self) -> float:
        """Share of validation rows whose every target token is the model's first choice.

        With the row's own tokens as context this says exactly whether greedy decoding would produce the row.
        """
        right = 0.0
        for packed in self._own_share(self._validation):
            row = pack([one.tokens for one in packed], [one.targets_at for one in packed]).to(
                self._ranks.device
            )
            choices, targets = self.policy(row, greedy=True)
            hits = (choices == targets).split([len(one.targets_at) for one in packed])
            right += sum(bool(hit.all()) for hit, one in zip(hits, packed, strict=True) if one.targets_at)
        return self._ranks.sum([right])[0] / len(self._validation)

    def _own_share(self, examples: list[Example]) -> list[list[Example]]:
        ranks = self._ranks
        dealt = deal_examples(examples, ranks=ranks.size, token_budget=self._budget, flops=self._flops)
        return dealt[ranks.rank]

    def _report(self, done: int, losses: list[float], rate: float, accuracy: float | None) -> None:
        if self._outbox is None:
            return
        x = done + self._retry * self._section.steps  # a retry's steps follow those of the seed before
        values = {"sft/loss": sum(losses) / len(losses), "sft/learning_rate": rate}
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


def deal_examples(
    examples: list[Example], *, ranks: int, token_budget: int, flops: ForwardFlops = OF_NO_MODEL
) -> list[list[list[Example]]]:
    """[ranks][microbatches][examples], packed under the budget, equal counts (see `trainers.microbatches`).

    A rank without work gets dummies of one token and no targets, for every forward pass is a collective.
    """
    sizes = [Size(len(one.tokens), flops.of(len(one.tokens), len(one.targets_at))) for one in examples]
    dummy = Example(tokens=examples[0].tokens[:1], targets_at=[])
    return [
        [[examples[place] for place in places] or [dummy] for places in bins]
        for bins in allocate(sizes, ranks=ranks, token_budget=token_budget)
    ]


def _commit(
    attempt: AttemptFile, warm_up: WarmUp, warmed: Warmed, ranks: Ranks, outbox: Outbox | None
) -> None:
    spec = attempt.run_spec
    tensors = full_tensors(warm_up.policy, dtype=DTYPES[spec.trainer.compute_type], keep=ranks.first)
    writer = checkpoint.CheckpointWriter(
        attempt.checkpoints_directory,
        ranks=ranks,
        model_directory=Path(attempt.model_directory),
        keep_last=spec.checkpoint.keep_last,
    )
    writer.begin(
        checkpoint.TrainerRecord(
            kind="sft",
            step=warmed.steps,
            seed=warm_up.seed,
            random_state=checkpoint.random_state(),
            run_id=attempt.run_id,
            attempt_id=attempt.attempt_id,
            epoch=attempt.epoch,
        ),
        policy=warm_up.policy,
        optimizer=warm_up.optimizer,
        snapshot=None,
        weights=tensors if ranks.first else None,
    )
    committed = writer.close()
    if outbox is not None and committed is not None:
        outbox.write(
            CheckpointLine(
                step=committed.step,
                directory=str(committed.directory),
                manifest_sha256=committed.manifest_sha256,
                bytes=committed.bytes,
                final=True,
            )
        )
