"""Verifies that engines compute the same log-probabilities as the trainer at the same weights.

After each weight load an engine continues a fixed prompt greedily and reports the log-probabilities (a probe). A
background thread of rank 0 compares them with its own forward pass at that version. The trainer may be several versions
ahead by then, so the weights of the newest published versions are kept. Train steps are not blocked.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch.func import functional_call

from oolong.contracts import rollout
from oolong.contracts.run_spec import LoraSection, WeightSyncSection
from oolong.contracts.telemetry import Note, Outbox, Points
from oolong.system.rpc import RpcUnavailable
from trainers.models.lora import add_adapters
from trainers.models.packed_row import pack_row
from trainers.models.policy import read_weights, weightless_policy
from trainers.rl.controller_client import ControllerClient

POLL_SECONDS = 0.25
MAX_KEPT_BYTES = 1 << 30  # of recent weights; at least one version is kept
MAX_KEPT_VERSIONS = 4


@dataclass
class VersionResult:
    """Sums over all comparisons of one version."""

    tokens: int = 0
    total: float = 0.0
    largest: float = 0.0
    engines: set[str] = field(default_factory=set)


class LogprobVerifier:
    """Compares probes in a background thread and writes the results to the outbox."""

    def __init__(
        self,
        controller: ControllerClient,
        outbox: Outbox,
        *,
        model_directory: Path,
        section: WeightSyncSection,
        tolerance: float,  # nats
        first_version: int,
        dtype: torch.dtype,
        device: torch.device,
        lora: LoraSection | None = None,
    ) -> None:
        self._controller = controller
        self._outbox = outbox
        self._section = section
        self._tolerance = tolerance
        self._first_version = first_version
        self._device = device
        self._policy = weightless_policy(model_directory, dtype=dtype, device=device)
        self._frozen: dict[str, torch.Tensor] = {}  # of a LoRA run: the base, on the CPU
        if lora is not None:
            self._frozen = read_weights(model_directory, self._policy, dtype=dtype)
            add_adapters(self._policy, lora, seed=0)
        self._weights: OrderedDict[int, dict[str, torch.Tensor]] = OrderedDict()
        self._results: dict[int, VersionResult] = defaultdict(VersionResult)
        self._reported: set[int] = set()
        self._comparing: int | None = None  # the version whose weights the thread reads now
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="probes", daemon=True)
        self.missed = 0  # probes that arrived after their version's weights were dropped

    def start(self) -> None:
        self._thread.start()

    def is_due(self, version: int) -> bool:
        """Whether a version is verified: the first versions of an attempt, then every k-th."""
        return (
            version - self._first_version < self._section.probe_first_versions
            or version % self._section.probe_every == 0
        )

    def add_weights(self, version: int, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor] | None:
        """Keep a version's weights until newer versions displace them. Reports the results of displaced versions.

        `tensors` are the weights that are trained, by parameter name: all of them, or those of the adapters.

        Returns tensors that the caller may overwrite: those of a version that is not verified or was displaced.
        """
        if self._failure is not None:
            raise self._failure
        if not self.is_due(version):
            return tensors
        size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
        free: dict[str, torch.Tensor] | None = None
        with self._lock:
            self._weights[version] = tensors
            while len(self._weights) > 1 and (
                len(self._weights) > MAX_KEPT_VERSIONS or len(self._weights) * size > MAX_KEPT_BYTES
            ):
                displaced, weights = self._weights.popitem(last=False)
                if displaced != self._comparing:
                    free = weights
            finished = [one for one in self._results if one < next(iter(self._weights))]
        self._report(finished)
        return free

    def finish(self) -> dict[str, float | int | None]:
        """Poll once more, stop the thread, and return the totals over the attempt."""
        self._stopping.set()
        self._thread.join(timeout=60)
        if self._failure is not None:
            raise self._failure
        self._report(list(self._results))
        tokens = sum(one.tokens for one in self._results.values())
        return {
            "tokens_compared": tokens,
            "versions_covered": len(self._results),
            "missed_probes": self.missed,
            "mean_abs_logprob_diff": sum(one.total for one in self._results.values()) / tokens
            if tokens
            else None,
            "max": max(one.largest for one in self._results.values()) if tokens else None,
        }

    def _run(self) -> None:
        try:
            while not self._stopping.wait(POLL_SECONDS):
                self._poll()
            self._poll()
        except RpcUnavailable as error:
            print(f"probes: {error}", flush=True)  # the train loop gets the same error and ends the attempt
        except BaseException as error:  # noqa: BLE001 - re-raised in the train loop
            self._failure = error
        finally:
            self._controller.close()

    def _poll(self) -> None:
        for acked in self._controller.probes():
            self._compare(acked)

    @torch.no_grad()
    def _compare(self, acked: rollout.AckedProbe) -> None:
        if not self.is_due(acked.version):
            return
        with self._lock:
            tensors = self._weights.get(acked.version)
            self._comparing = acked.version
        if tensors is None:
            self.missed += 1
            return
        own = self._own_logprobs(tensors, acked.probe)
        with self._lock:
            self._comparing = None
        difference = (own - torch.tensor(acked.probe.logprobs).double()).abs()
        with self._lock:
            result = self._results[acked.version]
            if acked.worker_id in result.engines or acked.version in self._reported:
                return
            result.engines.add(acked.worker_id)
            result.tokens += difference.numel()
            result.total += float(difference.sum())
            result.largest = max(result.largest, float(difference.max()))
        if not float(difference.max()) <= self._tolerance:
            self._controller.stale_engine(
                rollout.StaleEngineRequest(
                    worker_id=acked.worker_id, version=acked.version, max_difference=float(difference.max())
                )
            )
            self._outbox.write(
                Note(
                    kind="engine_stale",
                    message=f"{acked.worker_id} differs from the trainer by {float(difference.max()):.2e} nats at "
                    f"version {acked.version}, above {self._tolerance:g}; it receives no prompts until it "
                    "loads a newer version",
                )
            )

    def _own_logprobs(self, tensors: dict[str, torch.Tensor], probe: rollout.Probe) -> torch.Tensor:
        prompt = len(probe.prompt_token_ids)
        row = pack_row(
            [[*probe.prompt_token_ids, *probe.token_ids]],
            [list(range(prompt, prompt + len(probe.token_ids)))],
        ).to(self._device)
        weights = {
            f"causal_lm.{name}": tensor.to(self._device) for name, tensor in (self._frozen | tensors).items()
        }
        logprobs, _ = functional_call(self._policy, weights, (row,))
        return logprobs.double().cpu()

    def _report(self, versions: list[int]) -> None:
        with self._lock:
            due = [version for version in versions if version not in self._reported]
            self._reported.update(due)
            results = {version: self._results[version] for version in due}
        for version, result in results.items():
            if result.tokens:
                self._outbox.write(
                    Points(
                        axis="step",
                        x=version,
                        values={
                            "mismatch/logprob_abs_mean": result.total / result.tokens,
                            "mismatch/logprob_abs_max": result.largest,
                            "mismatch/tokens": float(result.tokens),
                        },
                    )
                )
