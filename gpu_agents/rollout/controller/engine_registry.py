"""The engines of the run: which version each has loaded, and whether it may have claims.

Engines join and leave a live run at any moment. A worker's first call registers its engine. The engine leaves when the
worker deregisters, when it times out, or when its job's next incarnation calls.
"""

from __future__ import annotations

from dataclasses import dataclass

ENGINE_TIMEOUT_SECONDS = 30.0


@dataclass(kw_only=True)
class Engine:
    worker_id: str
    last_seen_at: float
    version: int = -1  # newest acknowledged one
    stale_since: int | None = None  # version at which it failed to load or its probe was wrong
    end_acked: bool = False  # it knows that the run has ended

    @property
    def stale(self) -> bool:
        return self.stale_since is not None


class EngineRegistry:
    def __init__(self) -> None:
        self._engines: dict[str, Engine] = {}
        self.joined = 0
        self.left = 0
        self.last_seen_at: float | None = None  # of any engine, also of one that left

    def touch(self, worker_id: str, *, now: float) -> Engine:
        """Record a sign of life; the first one registers the engine."""
        engine = self._engines.get(worker_id)
        if engine is None:
            engine = self._engines[worker_id] = Engine(worker_id=worker_id, last_seen_at=now)
            self.joined += 1
        engine.last_seen_at = self.last_seen_at = now
        return engine

    def acknowledge(self, worker_id: str, version: int, *, ok: bool, now: float) -> Engine:
        """Record a load. A failed one makes the engine STALE until it loads a newer version."""
        engine = self.touch(worker_id, now=now)
        if not ok:
            engine.stale_since = version
            return engine
        engine.version = version
        if engine.stale_since is not None and version > engine.stale_since:
            engine.stale_since = None
        return engine

    def mark_stale(self, worker_id: str, version: int, *, now: float) -> Engine:
        engine = self.touch(worker_id, now=now)
        # A finding about a version that the engine has replaced says nothing about what it runs now.
        if engine.version <= version:
            engine.stale_since = version
        return engine

    def predecessors(self, worker_id: str) -> list[str]:
        """Earlier incarnations of the same job; they are dead, because a job runs once."""
        job, _, incarnation = worker_id.rpartition("/")
        return [
            other
            for other in self._engines
            if other.rpartition("/")[0] == job and int(other.rpartition("/")[2]) < int(incarnation)
        ]

    def contains(self, worker_id: str) -> bool:
        return worker_id in self._engines

    def expired(self, *, now: float) -> list[str]:
        return [e.worker_id for e in self._engines.values() if now - e.last_seen_at > ENGINE_TIMEOUT_SECONDS]

    def remove(self, worker_id: str) -> bool:
        """False if it was not registered."""
        removed = self._engines.pop(worker_id, None) is not None
        self.left += removed
        return removed

    def live(self, *, now: float) -> list[Engine]:
        return [e for e in self._engines.values() if now - e.last_seen_at <= ENGINE_TIMEOUT_SECONDS]

    def all(self) -> list[Engine]:
        return list(self._engines.values())
