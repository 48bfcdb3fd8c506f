"""Rank-0 I/O: controller calls, weight publishing, probe verification, telemetry."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from oolong.contracts import rollout
from oolong.contracts.attempt import AttemptFile, JobFile
from oolong.contracts.run_spec import RunSpec
from oolong.contracts.runtime_overrides import LiveFile
from oolong.contracts.telemetry import Note, Outbox, Points, Progress, Spans, Summary
from trainers.algorithms.reward_shaping import apply_reward_shaping, shaping_metrics
from trainers.checkpoint import CommittedCheckpoint, InvalidCheckpoint
from trainers.models.flops import load_forward_flops
from trainers.models.hf_export import WEIGHTS_FILE
from trainers.phase_timer import PhaseTimer
from trainers.rl.batch_plan import RankPlan, flops_imbalance, plan_batch
from trainers.rl.controller_client import ControllerClient
from trainers.rl.logprob_verifier import LogprobVerifier
from trainers.rl.run_summary import RunSummary
from trainers.rl.step_metrics import batch_metrics, mean_staleness, memory_metrics, time_metrics
from trainers.rl.timeline import trainer_spans
from trainers.rl.token_recorder import Place, RecordedSequence, trained_tokens
from trainers.rl.weight_publisher import WeightPublisher

POLL_SECONDS = 1.0  # of one take request: how soon a stop signal is noticed


@dataclass(frozen=True)
class StepCommand:
    """What a rank does next: train this plan, or stop if there is none."""

    plan: RankPlan | None = None
    learning_rate: float | None = None  # runtime override; None: the RunSpec's
    checkpoint: bool = False  # take a checkpoint after this step, regardless of the interval
    record: frozenset[Place] = frozenset()  # trajectories whose values by token are reported


class Rank0Coordinator:
    def __init__(
        self,
        attempt: AttemptFile,
        job: JobFile,
        job_directory: Path,
        *,
        spec: RunSpec,
        first_version: int,
        summary: RunSummary,
        stop: threading.Event,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self._spec = spec
        self._stop = stop
        self.summary = summary
        self.outbox = Outbox(job_directory, job.incarnation)
        self.controller = ControllerClient(attempt.controller_url, attempt.token)
        model_directory = Path(attempt.model_directory)
        self._flops = load_forward_flops(model_directory)
        self._imbalance = 1.0
        lora = spec.model.lora
        self._publisher = WeightPublisher(attempt.weights_directory, model_directory, lora=lora)
        self._verifier = LogprobVerifier(
            ControllerClient(attempt.controller_url, attempt.token),
            self.outbox,
            model_directory=model_directory,
            section=spec.weight_sync,
            tolerance=spec.weight_sync.tolerance(spec.trainer.compute_type),
            first_version=first_version,
            dtype=dtype,
            device=device,
            lora=lora,
        )
        self._live = LiveFile(attempt.directory)
        self._groups: list[rollout.Group] = []
        self._tokens: list[rollout.TrainedTokens] = []
        self._straggler_seconds = 0.0
        self._published: rollout.PublishedWeights | None = None
        self._free_tensors: dict[str, torch.Tensor] | None = None
        self._version_bytes = 0

    # --- batches ------------------------------------------------------------------------------------------

    def check_ledger(self, version: int) -> None:
        """After a resume, check that the controller resumed from the same checkpoint."""
        trained = self.controller.state().ledger.trained
        expected = version * self._spec.trainer.groups_per_step
        if trained != expected:
            raise InvalidCheckpoint(
                f"the controller's ledger has {trained} trained groups, but the trainer's step {version} requires "
                f"{expected}: they did not resume from the same checkpoint"
            )

    def next_commands(self, version: int, *, num_ranks: int, timer: PhaseTimer) -> list[StepCommand]:
        """Wait for a batch and return one command per rank; commands to stop after a stop signal."""
        timer.start("wait_batch")
        self._straggler_seconds = 0.0
        trainer = self._spec.trainer
        while not self._stop.is_set():
            reply = self.controller.take(
                rollout.TakeRequest(
                    version=version, groups=trainer.groups_per_step, wait_seconds=POLL_SECONDS
                )
            )
            self._straggler_seconds += reply.straggler_wait_seconds
            if reply.groups:
                timer.start("prepare")
                self._groups = reply.groups
                plans = plan_batch(
                    apply_reward_shaping(
                        reply.groups, self._spec.algorithm, max_new_tokens=self._spec.rollout.max_new_tokens
                    ),
                    version=version,
                    num_ranks=num_ranks,
                    minibatches=trainer.minibatches,
                    token_budget=trainer.microbatch_tokens,
                    flops=self._flops,
                    seed=self.summary.seed,
                )
                self._imbalance = flops_imbalance(plans, self._flops)
                checkpoint = self._apply_runtime_overrides(version)
                rate = self._live.settings.learning_rate
                sampled = frozenset(reply.sampled)
                return [
                    StepCommand(plan=plan, learning_rate=rate, checkpoint=checkpoint, record=sampled)
                    for plan in plans
                ]
            if reply.ended:
                break
        return [StepCommand()] * num_ranks

    def _apply_runtime_overrides(self, version: int) -> bool:
        """Note changed runtime overrides in the outbox. Returns whether a checkpoint was requested."""
        if not self._live.poll():
            return False
        now, before = self._live.settings, self._live.before
        if now.learning_rate != before.learning_rate:
            rate = now.learning_rate or self._spec.trainer.learning_rate
            message = f"the learning rate is {rate:g} starting with train step {version + 1}"
            self.outbox.write(Note(kind="live_change", message=message))
        requested = now.checkpoint_requests > before.checkpoint_requests
        if requested:
            message = f"a checkpoint is taken after train step {version + 1}"
            self.outbox.write(Note(kind="live_change", message=message))
        return requested

    # --- weights ------------------------------------------------------------------------------------------

    def take_free_tensors(self) -> dict[str, torch.Tensor] | None:
        """Tensors of an earlier version that nothing reads any more, to gather the next one into."""
        free, self._free_tensors = self._free_tensors, None
        return free

    def keep_tokens(self, recorded: Sequence[RecordedSequence]) -> None:
        """Keep the values of the batch's sampled trajectories for the next announcement."""
        self._tokens = trained_tokens(self._groups, recorded)

    def publish(
        self,
        version: int,
        tensors: dict[str, torch.Tensor],
        *,
        trained: dict[str, torch.Tensor],
        first: bool,
        timer: PhaseTimer,
    ) -> None:
        """Publish `tensors`, named as engines load them. `trained` are named as the policy's parameters."""
        timer.start("write")
        published = self._publisher.write(version, tensors)
        self._free_tensors = self._verifier.add_weights(version, trained)
        timer.start("announce")
        self.controller.announce(
            rollout.PublishVersionRequest(
                version=version,
                weights=published,
                outcome="none" if first else "trained",
                tokens=self._tokens,
            )
        )
        self._tokens = []
        self._published = published
        self._version_bytes = sum(file.stat().st_size for file in Path(published.directory).iterdir())
        self.summary.versions_published += 1
        if first:
            self._verifier.start()

    def announce_nonfinite(self, version: int) -> None:
        self.controller.announce(
            rollout.PublishVersionRequest(version=version, weights=None, outcome="nonfinite")
        )
        self.outbox.write(
            Note(
                kind="nonfinite_step",
                message=f"A loss or gradient after version {version} was not finite: the batch was dropped and the "
                "weights did not change",
            )
        )

    @property
    def published_file(self) -> Path:
        """The safetensors file of the newest published version, a whole model."""
        assert self._published is not None
        return Path(self._published.directory) / WEIGHTS_FILE

    # --- telemetry ----------------------------------------------------------------------------------------

    def record_progress(self, phase: str, done: int, message: str = "") -> None:
        self.outbox.write(
            Progress(phase=phase, done=done, total=self._spec.trainer.total_train_steps, message=message)
        )

    def collect_metrics(self, step_metrics: dict[str, float]) -> dict[str, float]:
        """Merge the metrics of the trained batch with those of the step, and add them to the run summary."""
        shaping = shaping_metrics(
            self._groups, self._spec.algorithm, max_new_tokens=self._spec.rollout.max_new_tokens
        )
        metrics = {**batch_metrics(self._groups), **shaping, **step_metrics}
        self.summary.add_batch(metrics)
        return metrics

    def record_step(
        self, version: int, metrics: dict[str, float], seconds: dict[str, float], *, at: float
    ) -> None:
        """Write metrics, progress and a log line of the step that produced `version`."""
        step_seconds = sum(seconds.values())
        budget = self._spec.trainer.microbatch_tokens
        values = {
            **metrics,
            **time_metrics(seconds),
            **memory_metrics(),
            "policy/version": float(version),
            "weight_sync/version_bytes": float(self._version_bytes),
            "optim/skipped_steps": float(self.summary.skipped_steps),
            "perf/trained_tokens_per_second": metrics["perf/trained_tokens"] / step_seconds,
            "perf/trajectories_per_second": sum(len(g.trajectories) for g in self._groups) / step_seconds,
            "time/straggler_wait_seconds": self._straggler_seconds,
            "packing/utilization": metrics["packing/tokens"] / (metrics["packing/microbatches"] * budget),
            "packing/flops_imbalance": self._imbalance,
        }
        self.summary.add_seconds(seconds)
        self.outbox.write(Points(at=at, axis="step", x=version, values=values))
        staleness = mean_staleness(self._groups, version=version - 1)
        self.record_progress(
            "train", version, f"reward {values['reward/mean']:.3f}, staleness {staleness:.1f}"
        )
        print(
            f"step {version} reward {values['reward/mean']:.3f} loss {values['loss/policy']:+.4f} "
            f"grad {values['optim/grad_norm']:.3f} staleness {staleness:.2f} "
            f"tokens {values['perf/trained_tokens']:.0f} | step {step_seconds:.3f}s "
            + " ".join(f"{phase} {spent:.3f}" for phase, spent in sorted(seconds.items())),
            flush=True,
        )

    def record_timeline(self, version: int, timer: PhaseTimer) -> None:
        """Write what the trainer did since the last flush of `timer`, up to the publishing of `version`."""
        self.outbox.write(Spans(spans=trainer_spans(timer.flushed_laps, version=version)))

    def record_checkpoint(self, committed: CommittedCheckpoint, *, final: bool) -> None:
        self.outbox.write(committed.outbox_line(final=final))

    def close(self, version: int, reason: str) -> None:
        """End the run at the controller and write the summary."""
        probes = self._verifier.finish()
        self.controller.end(rollout.EndRequest(reason=reason))  # type: ignore[arg-type]
        self.outbox.write(Summary(name="trainer", value=self.summary.to_dict(version=version, probes=probes)))
        self.controller.close()
        self.outbox.close()
