"""What a worker writes to its outbox: engine and weight-sync metrics, notes, and the final summary."""

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
        counters: EngineCounters,
        *,
        extra_metrics: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        self._extra_metrics = extra_metrics  # of the session server
        self._job = job
        self._outbox = outbox
        self._counters = counters
        self._snapshot = CounterSnapshot.of(counters)
        self._last_x = -1
        self._reported_versions: set[int] = set()

    def publish(self, engine: EngineHandle, loads: list[Load], *, now: float) -> None:
        """A point on the time axis, and one on the step axis per version loaded since the last call."""
        x = self._job.seconds_since_start(now)
        snapshot = CounterSnapshot.of(self._counters)
        values = snapshot.rates_since(self._snapshot)
        if values and x > self._last_x:  # two points at one x would conflict
            self._snapshot, self._last_x = snapshot, x
            if engine.loaded_version >= 0:  # -1: no engine serves
                values["engine/version"] = float(engine.loaded_version)
            values |= {
                "engine/running_requests": float(self._counters.live_requests),
                "engine/restarts": float(self._counters.restarts),
                "engine/window": float(self._counters.window),
                "engine/retractions": float(self._counters.retractions),
            }
            values |= self._extra_metrics()
            if self._counters.load is not None:
                values["engine/waiting_requests"] = float(self._counters.load.waiting_requests)
                values["engine/kv_cache_frac"] = self._counters.load.kv_cache_frac
            self._outbox.write(Points(axis="time", x=x, values=values))
        if spans := engine.timeline.take():
            self._outbox.write(spans)
        for load in loads:
            # A restarted engine loads a version again; only the first load counts.
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
        self._outbox.write(Summary(name=self._job.job.name, value=summary(self._counters)))
        self._outbox.close()


def summary(counters: EngineCounters) -> dict[str, Any]:
    seconds = counters.open_seconds
    return {
        "idle": {"rollout": 1 - counters.busy_seconds / seconds if seconds else None},
        "engine_paused_frac": sum(counters.paused_seconds) / seconds if seconds else None,
        "mean_seconds": {"load": _mean(counters.load_seconds), "paused": _mean(counters.paused_seconds)},
        "loads": len(counters.load_seconds),
        "generated_tokens": counters.generated_tokens,
        "requests": counters.requests,
        "interrupted_requests": counters.interrupted_requests,
        "restarts": counters.restarts,
        "retractions": counters.retractions,
        "prefix_hit_frac": counters.cached_tokens / counters.input_tokens if counters.input_tokens else None,
        "seconds": seconds,
    }


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
