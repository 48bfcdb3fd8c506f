"""The engines that workers speak for: which version each has loaded, and whether it may have claims."""

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


class Engines:
    def __init__(self) -> None:
        self._engines: dict[str, Engine] = {}

    def hear(self, worker_id: str, *, now: float) -> Engine:
        """Any call of a worker is a sign of life; the first one registers it."""
        engine = self._engines.get(worker_id)
        if engine is None:
            engine = self._engines[worker_id] = Engine(worker_id=worker_id, heard_at=now)
        engine.heard_at = now
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

    def live(self, *, now: float) -> list[Engine]:
        return [e for e in self._engines.values() if now - e.heard_at <= SILENT_AFTER_SECONDS]

    def all(self) -> list[Engine]:
        return list(self._engines.values())

    @property
    def stale_count(self) -> int:
        return sum(engine.stale for engine in self._engines.values())
