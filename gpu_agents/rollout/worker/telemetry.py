"""What a worker leaves in its outbox: engine and weight-sync metrics, notes, the closing summary."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gpu_agents.job import Job
from gpu_agents.rollout.worker.engine_counters import CounterSnapshot, EngineCounters
from gpu_agents.rollout.worker.engine_handle import EngineHandle
from gpu_agents.rollout.worker.weight_loader import Load
from oolong.contracts.attempt import mark_ready
from oolong.contracts.telemetry import Note, Outbox, Points, Progress, Summary


class WorkerTelemetry:
    def __init__(
        self,
        job: Job,
        outbox: Outbox,
        meters: EngineCounters,
        *,
        more: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        self._more = more  # of what this worker serves besides
        self._job = job
        self._outbox = outbox
        self._meters = meters
        self._reading = CounterSnapshot.of(meters)
        self._last_x = -1
        self._reported_versions: set[int] = set()

    def publish(self, slot: EngineHandle, loads: list[Load], *, now: float) -> None:
        """A point on the time axis, and one on the step axis per version loaded since the last call."""
        x = self._job.seconds_since_start(now)
        reading = CounterSnapshot.of(self._meters)
        values = reading.rates_since(self._reading)
        if values and x > self._last_x:  # a second point at one x would be a conflict
            self._reading, self._last_x = reading, x
            if slot.loaded_version >= 0:  # no engine has no version
                values["engine/version"] = float(slot.loaded_version)
            values |= {
                "engine/running_requests": float(self._meters.live_requests),
                "engine/restarts": float(self._meters.restarts),
                "engine/window": float(self._meters.window),
                "engine/retractions": float(self._meters.retractions),
            }
            values |= self._more()
            if self._meters.load is not None:
                values["engine/waiting_requests"] = float(self._meters.load.waiting_requests)
                values["engine/kv_cache_frac"] = self._meters.load.kv_cache_frac
            self._outbox.write(Points(axis="time", x=x, values=values))
        for load in loads:
            # A restarted engine loads a version again; the first load of it is the one that counts.
            if load.version in self._reported_versions:
                continue
            self._reported_versions.add(load.version)
            self._outbox.write(
                Points(
                    axis="step",
                    x=load.version,
                    values={
                        "weight_sync/paused_seconds": load.timings.paused_seconds,
                        "weight_sync/load_seconds": load.timings.load_seconds,
                        "weight_sync/delay_seconds": load.delay_seconds,
                    },
                )
            )
        loads.clear()

    def boot(self, done: bool) -> None:
        if done:
            mark_ready(self._job.directory)
            self.note("engine_serves", "the engine serves")
        self._outbox.write(Progress(phase="boot", done=int(done), total=1, message=self._job.job.name))

    def note(self, kind: str, message: str) -> None:
        self._outbox.write(Note(kind=kind, message=message))

    def close(self) -> None:
        self._outbox.write(Summary(name=self._job.job.name, value=summary(self._meters)))
        self._outbox.close()


def summary(meters: EngineCounters) -> dict[str, Any]:
    seconds = meters.open_seconds
    return {
        "idle": {"rollout": 1 - meters.busy_seconds / seconds if seconds else None},
        "engine_paused_frac": sum(meters.paused_seconds) / seconds if seconds else None,
        "mean_seconds": {"load": _mean(meters.load_seconds), "paused": _mean(meters.paused_seconds)},
        "loads": len(meters.load_seconds),
        "generated_tokens": meters.generated_tokens,
        "requests": meters.requests,
        "interrupted_requests": meters.interrupted_requests,
        "restarts": meters.restarts,
        "retractions": meters.retractions,
        "prefix_hit_frac": meters.cached_tokens / meters.input_tokens if meters.input_tokens else None,
        "seconds": seconds,
    }


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
