"""The engines that workers speak for: which version each has loaded, and whether it may have claims.

Engines join and leave a live run at any moment. The first call of a worker is its joining; it leaves by saying so, by
silence, or when its job's next incarnation speaks.
"""

from __future__ import annotations

from dataclasses import dataclass

SILENT_AFTER_SECONDS = 30.0


@dataclass(kw_only=True)
class Engine:
    worker_id: str
    heard_at: float
    version: int = -1  # newest acknowledged one
    stale_since: int | None = None  # version at which it failed to load or its probe was off
    told_end: bool = False

    @property
    def stale(self) -> bool:
        return self.stale_since is not None


class EngineRegistry:
    def __init__(self) -> None:
        self._engines: dict[str, Engine] = {}
        self.joined = 0
        self.left = 0
        self.last_heard_at: float | None = None  # of any engine, also of one that is gone

    def hear(self, worker_id: str, *, now: float) -> Engine:
        """Any call of a worker is a sign of life; the first one registers it."""
        engine = self._engines.get(worker_id)
        if engine is None:
            engine = self._engines[worker_id] = Engine(worker_id=worker_id, heard_at=now)
            self.joined += 1
        engine.heard_at = self.last_heard_at = now
        return engine

    def acknowledge(self, worker_id: str, version: int, *, ok: bool, now: float) -> Engine:
        """A load succeeded, or failed and makes the engine STALE. A newer good load ends that."""
        engine = self.hear(worker_id, now=now)
        if not ok:
            engine.stale_since = version
            return engine
        engine.version = version
        if engine.stale_since is not None and version > engine.stale_since:
            engine.stale_since = None
        return engine

    def mark_stale(self, worker_id: str, version: int, *, now: float) -> Engine:
        engine = self.hear(worker_id, now=now)
        # A verdict about a version that the engine has already replaced says nothing about what it runs now.
        if engine.version <= version:
            engine.stale_since = version
        return engine

    def predecessors(self, worker_id: str) -> list[str]:
        """Earlier incarnations of the same job: they are dead, for a job runs once."""
        job, _, incarnation = worker_id.rpartition("/")
        return [
            other
            for other in self._engines
            if other.rpartition("/")[0] == job and int(other.rpartition("/")[2]) < int(incarnation)
        ]

    def knows(self, worker_id: str) -> bool:
        return worker_id in self._engines

    def silent(self, *, now: float) -> list[str]:
        return [e.worker_id for e in self._engines.values() if now - e.heard_at > SILENT_AFTER_SECONDS]

    def leave(self, worker_id: str) -> bool:
        """False when it was not there."""
        gone = self._engines.pop(worker_id, None)
        self.left += gone is not None
        return gone is not None

    def live(self, *, now: float) -> list[Engine]:
        return [e for e in self._engines.values() if now - e.heard_at <= SILENT_AFTER_SECONDS]

    def all(self) -> list[Engine]:
        return list(self._engines.values())

    @property
    def stale_count(self) -> int:
        return sum(engine.stale for engine in self._engines.values())
