"""Counters of a worker's engine: busy time, pauses, tokens. The caller supplies the clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from gpu_agents.rollout.engines.client import EngineLoad


@dataclass(kw_only=True)
class EngineCounters:
    clock: Callable[[], float]
    generated_tokens: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0  # input tokens found in the engine's prefix cache
    requests: int = 0
    interrupted_requests: int = 0
    retractions: int = 0  # because KV memory ran out: the engine repeats their work
    load: EngineLoad | None = None  # the engine's last report
    window: int = 0  # rollouts that may be in the engine at once
    restarts: int = 0
    load_seconds: list[float] = field(default_factory=list)
    paused_seconds: list[float] = field(default_factory=list)
    live_requests: int = 0
    _opened_at: float | None = None
    _busy_since: float | None = None
    _busy_seconds: float = 0.0

    def open(self) -> None:
        """The engine takes requests from now on. Boot time before that does not count as idle."""
        if self._opened_at is None:
            self._opened_at = self.clock()

    def request_started(self) -> None:
        if self.live_requests == 0:
            self._busy_since = self.clock()
        self.live_requests += 1
        self.requests += 1

    def request_ended(self) -> None:
        self.live_requests -= 1
        if self.live_requests == 0 and self._busy_since is not None:
            self._busy_seconds += self.clock() - self._busy_since
            self._busy_since = None

    def request_returned(
        self,
        *,
        input_tokens: int,
        cached_tokens: int,
        generated_tokens: int,
        retractions: int,
        interrupted: bool,
    ) -> None:
        self.input_tokens += input_tokens
        self.cached_tokens += cached_tokens
        self.generated_tokens += generated_tokens
        self.retractions += retractions
        self.interrupted_requests += interrupted

    def loaded(self, *, load_seconds: float, paused_seconds: float) -> None:
        self.load_seconds.append(load_seconds)
        self.paused_seconds.append(paused_seconds)

    @property
    def open_seconds(self) -> float:
        return 0.0 if self._opened_at is None else self.clock() - self._opened_at

    @property
    def busy_seconds(self) -> float:
        running = 0.0 if self._busy_since is None else self.clock() - self._busy_since
        return self._busy_seconds + running


@dataclass(frozen=True, kw_only=True)
class CounterSnapshot:
    """Totals at one moment. Two snapshots give rates and fractions."""

    open_seconds: float
    busy_seconds: float
    paused_seconds: float
    generated_tokens: int
    input_tokens: int = 0
    cached_tokens: int = 0

    @classmethod
    def of(cls, counters: EngineCounters) -> CounterSnapshot:
        return cls(
            open_seconds=counters.open_seconds,
            busy_seconds=counters.busy_seconds,
            paused_seconds=sum(counters.paused_seconds),
            generated_tokens=counters.generated_tokens,
            input_tokens=counters.input_tokens,
            cached_tokens=counters.cached_tokens,
        )

    def rates_since(self, earlier: CounterSnapshot) -> dict[str, float]:
        """Metrics over the time between two snapshots; empty while the engine is not open."""
        seconds = self.open_seconds - earlier.open_seconds
        if seconds <= 0:
            return {}
        idle = 1 - (self.busy_seconds - earlier.busy_seconds) / seconds
        sent = self.input_tokens - earlier.input_tokens
        shared = (
            {"engine/prefix_cache_hit_frac": (self.cached_tokens - earlier.cached_tokens) / sent}
            if sent
            else {}
        )
        return shared | {
            "idle/rollout_frac": min(max(idle, 0.0), 1.0),
            "weight_sync/engine_paused_frac": min(
                (self.paused_seconds - earlier.paused_seconds) / seconds, 1.0
            ),
            "perf/generated_tokens_per_second": (self.generated_tokens - earlier.generated_tokens) / seconds,
        }
