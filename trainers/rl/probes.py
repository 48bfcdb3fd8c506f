"""Engine mismatch on probes: does an engine compute what the trainer computes, at the same weights?

After each load an engine continues a fixed prompt greedily and reports the log-probabilities. A thread of rank 0
compares them with its own forward at that version. By then the trainer may be versions ahead, so the weights of
the newest few published versions are kept; nothing here blocks a train step.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch.func import functional_call

from oolong.contracts import rollout
from oolong.contracts.run_spec import WeightSyncSection
from oolong.contracts.telemetry import Note, Outbox, Points
from trainers.models.packing import pack
from trainers.models.policy import empty_policy
from trainers.rl.controller import ControllerClient, ControllerLost

POLL_SECONDS = 0.25
KEPT_BYTES = 1 << 30  # of recent weights, at least one version whatever its size
KEPT_VERSIONS = 4


@dataclass
class Compared:
    """All comparisons of one version."""

    tokens: int = 0
    total: float = 0.0
    largest: float = 0.0
    engines: set[str] = field(default_factory=set)


class ProbeComparer:
    """Compares probes in the background. `kept` weights come from the publisher, results go to the outbox."""

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
    ) -> None:
        self._controller = controller
        self._outbox = outbox
        self._section = section
        self._tolerance = tolerance
        self._first_version = first_version
        self._device = device
        self._policy = empty_policy(model_directory, dtype=dtype).to(device)
        self._weights: OrderedDict[int, dict[str, torch.Tensor]] = OrderedDict()
        self._results: dict[int, Compared] = defaultdict(Compared)
        self._reported: set[int] = set()
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="probes", daemon=True)
        self.missed = 0  # probes that came after their version's weights were let go

    def start(self) -> None:
        self._thread.start()

    def is_due(self, version: int) -> bool:
        """The first versions of an attempt, then every k-th."""
        return (
            version - self._first_version < self._section.probe_first_versions
            or version % self._section.probe_every == 0
        )

    def keep(self, version: int, tensors: dict[str, torch.Tensor]) -> None:
        """Remember a version's weights until newer ones need the room. Report what is known of older versions."""
        if self._failure is not None:
            raise self._failure
        if not self.is_due(version):
            return
        size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
        with self._lock:
            self._weights[version] = tensors
            while len(self._weights) > 1 and (
                len(self._weights) > KEPT_VERSIONS or len(self._weights) * size > KEPT_BYTES
            ):
                self._weights.popitem(last=False)
            done = [known for known in self._results if known < next(iter(self._weights))]
        self._report(done)

    def finish(self) -> dict[str, float | int | None]:
        """Stop after one last poll. Returns the comparison over the whole attempt."""
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
        except ControllerLost as error:
            print(f"probes: {error}", flush=True)  # the train loop finds the same out and ends the attempt
        except BaseException as error:  # noqa: BLE001 - handed to the train loop, which raises it
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
        if tensors is None:
            self.missed += 1
            return
        difference = (
            self._own_logprobs(tensors, acked.probe) - torch.tensor(acked.probe.logprobs).double()
        ).abs()
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
                    f"version {acked.version}, above {self._tolerance:g}; it gets no claims until it "
                    "has loaded a newer version",
                )
            )

    def _own_logprobs(self, tensors: dict[str, torch.Tensor], probe: rollout.Probe) -> torch.Tensor:
        prompt = len(probe.prompt_token_ids)
        row = pack(
            [[*probe.prompt_token_ids, *probe.token_ids]],
            [list(range(prompt, prompt + len(probe.token_ids)))],
        ).to(self._device)
        weights = {f"causal_lm.{name}": tensor.to(self._device) for name, tensor in tensors.items()}
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
