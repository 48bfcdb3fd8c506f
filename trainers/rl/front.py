"""Rank 0's face to the rest of the attempt: the controller, the outbox, the published weights, the probes."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

import torch

from oolong.contracts import rollout
from oolong.contracts.attempt import AttemptFile, JobFile
from oolong.contracts.live_changes import LiveFile
from oolong.contracts.run_spec import RunSpec
from oolong.contracts.telemetry import CheckpointLine, Note, Outbox, Points, Progress, Summary
from trainers.algorithms.shaping import shaped, shaping_metrics
from trainers.checkpoint import Committed, NoValidCheckpoint
from trainers.models.export import WEIGHTS_FILE
from trainers.models.flops import flops_of_model
from trainers.rl.account import Account
from trainers.rl.controller import ControllerClient
from trainers.rl.plan import RankPlan, flops_imbalance, plan_batch
from trainers.rl.probes import ProbeComparer
from trainers.rl.publish import Publisher
from trainers.rl.report import batch_metrics, mean_staleness, memory_metrics, time_metrics
from trainers.stopwatch import Stopwatch

POLL_SECONDS = 1.0  # of one take: how soon a wish to stop is noticed


@dataclass(frozen=True)
class Order:
    """What rank 0 tells every rank to do next: train this plan, or stop."""

    plan: RankPlan | None = None
    learning_rate: float | None = None  # changed while the run goes on; None: the spec's
    checkpoint: bool = False  # after this step, whatever the interval says


class Front:
    def __init__(
        self,
        attempt: AttemptFile,
        job: JobFile,
        job_directory: Path,
        *,
        spec: RunSpec,
        first_version: int,
        account: Account,
        stop: threading.Event,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self._spec = spec
        self._stop = stop
        self.account = account
        self.outbox = Outbox(job_directory, job.incarnation)
        self.controller = ControllerClient(attempt.controller_url, attempt.token)
        model_directory = Path(attempt.model_directory)
        self._flops = flops_of_model(model_directory)
        self._imbalance = 1.0
        self._publisher = Publisher(attempt.weights_directory, model_directory)
        self._probes = ProbeComparer(
            ControllerClient(attempt.controller_url, attempt.token),
            self.outbox,
            model_directory=model_directory,
            section=spec.weight_sync,
            tolerance=spec.weight_sync.tolerance(spec.trainer.compute_type),
            first_version=first_version,
            dtype=dtype,
            device=device,
        )
        self._live = LiveFile(attempt.directory)
        self._groups: list[rollout.Group] = []
        self._straggler_seconds = 0.0
        self._published: rollout.PublishedWeights | None = None

    # --- the batch ----------------------------------------------------------------------------------------

    def check_ledger(self, version: int) -> None:
        """After a resume, both sides must have come from the same checkpoint."""
        trained = self.controller.state().ledger.trained
        expected = version * self._spec.trainer.groups_per_step
        if trained != expected:
            raise NoValidCheckpoint(
                f"the controller's ledger has {trained} trained groups, the trainer's step {version} means {expected}: "
                "they did not resume from the same checkpoint"
            )

    def next_orders(self, version: int, *, ranks: int, watch: Stopwatch) -> list[Order]:
        """Wait for a batch to train at `version`; one order per rank. Orders to stop when that is wanted."""
        watch.enter("wait_batch")
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
                watch.enter("prepare")
                self._groups = reply.groups
                plans = plan_batch(
                    shaped(
                        reply.groups, self._spec.algorithm, max_new_tokens=self._spec.rollout.max_new_tokens
                    ),
                    version=version,
                    ranks=ranks,
                    minibatches=trainer.minibatches,
                    token_budget=trainer.microbatch_tokens,
                    flops=self._flops,
                    seed=self.account.seed,
                )
                self._imbalance = flops_imbalance(plans, self._flops)
                checkpoint = self._take_changes(version)
                rate = self._live.settings.learning_rate
                return [Order(plan=plan, learning_rate=rate, checkpoint=checkpoint) for plan in plans]
            if reply.ended:
                break
        return [Order()] * ranks

    def _take_changes(self, version: int) -> bool:
        """Whether what was changed since the last step asks for a checkpoint; says what comes into force."""
        if not self._live.poll():
            return False
        now, before = self._live.settings, self._live.before
        if now.learning_rate != before.learning_rate:
            rate = now.learning_rate or self._spec.trainer.learning_rate
            message = f"the learning rate is {rate:g} from train step {version + 1} on"
            self.outbox.write(Note(kind="live_change", message=message))
        asked = now.checkpoint_wishes > before.checkpoint_wishes
        if asked:
            message = f"a checkpoint is taken after train step {version + 1}"
            self.outbox.write(Note(kind="live_change", message=message))
        return asked

    # --- the weights --------------------------------------------------------------------------------------

    def publish(
        self, version: int, tensors: dict[str, torch.Tensor], *, first: bool, watch: Stopwatch
    ) -> None:
        watch.enter("write")
        published = self._publisher.write(version, tensors)
        self._probes.keep(version, tensors)
        watch.enter("announce")
        self.controller.announce(
            rollout.AnnounceRequest(
                version=version, weights=published, outcome="none" if first else "trained"
            )
        )
        self._published = published
        self.account.versions_published += 1
        if first:
            self._probes.start()

    def announce_nonfinite(self, version: int) -> None:
        self.controller.announce(rollout.AnnounceRequest(version=version, weights=None, outcome="nonfinite"))
        self.outbox.write(
            Note(
                kind="nonfinite_step",
                message=f"A loss or gradient after version {version} was not finite: the batch was dropped and no "
                "weight has changed",
            )
        )

    @property
    def published_file(self) -> Path:
        """The safetensors file of the newest version."""
        assert self._published is not None
        return Path(self._published.directory) / WEIGHTS_FILE

    # --- the records --------------------------------------------------------------------------------------

    def record_progress(self, phase: str, done: int, message: str = "") -> None:
        self.outbox.write(
            Progress(phase=phase, done=done, total=self._spec.trainer.total_train_steps, message=message)
        )

    def account_batch(self, learned: dict[str, float]) -> dict[str, float]:
        """Metrics of the batch just trained on and of what was learned from it; they enter the account."""
        shaping = shaping_metrics(
            self._groups, self._spec.algorithm, max_new_tokens=self._spec.rollout.max_new_tokens
        )
        metrics = {**batch_metrics(self._groups), **shaping, **learned}
        self.account.add_batch(metrics)
        return metrics

    def record_step(
        self, version: int, metrics: dict[str, float], seconds: dict[str, float], *, at: float
    ) -> None:
        """The step that led to `version`; its batch was trained at the version before."""
        step_seconds = sum(seconds.values())
        budget = self._spec.trainer.microbatch_tokens
        values = {
            **metrics,
            **time_metrics(seconds),
            **memory_metrics(),
            "policy/version": float(version),
            "optim/nonfinite_skips": float(self.account.nonfinite_skips),
            "perf/trained_tokens_per_second": metrics["perf/trained_tokens"] / step_seconds,
            "perf/trajectories_per_second": sum(len(g.trajectories) for g in self._groups) / step_seconds,
            "time/straggler_wait_seconds": self._straggler_seconds,
            "pack/bin_use": metrics["pack/tokens"] / (metrics["pack/microbatches"] * budget),
            "pack/flops_imbalance": self._imbalance,
        }
        self.account.add_seconds(seconds)
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

    def record_checkpoint(self, committed: Committed, *, final: bool) -> None:
        self.outbox.write(
            CheckpointLine(
                step=committed.step,
                directory=str(committed.directory),
                manifest_sha256=committed.manifest_sha256,
                bytes=committed.bytes,
                final=final,
            )
        )

    def close(self, version: int, reason: str) -> None:
        """Tell the controller that no more batches will be taken, and leave the closing account."""
        probes = self._probes.finish()
        self.controller.end(rollout.EndRequest(reason=reason))  # type: ignore[arg-type]
        self.outbox.write(Summary(name="trainer", value=self.account.summary(version=version, probes=probes)))
        self.controller.close()
        self.outbox.close()
