"""Published policy versions: the newest, who loads it, and whose files may be deleted (SEMANTICS section 4)."""

from __future__ import annotations

from dataclasses import dataclass

from oolong.contracts.rollout import PublishedWeights

LOAD_CLAIM_TTL_SECONDS = 30.0


class VersionConflict(Exception):
    """The trainer's call does not fit the current version; the message names both."""


def require_version(given: int, expected: int, rule: str) -> None:
    if given != expected:
        raise VersionConflict(f"got version {given}, expected {expected}: {rule}")


@dataclass(kw_only=True)
class LoadClaim:
    version: int
    last_seen_at: float  # of its worker


class Versions:
    """The files of a version are kept while it is the newest, being loaded, or pinned by an evaluation."""

    def __init__(self) -> None:
        self.newest: PublishedWeights | None = None
        self._on_disk: dict[int, PublishedWeights] = {}
        self._load_claims: dict[str, LoadClaim] = {}
        self._pinned: set[int] = set()

    @property
    def number(self) -> int:
        """The newest announced version; -1 before the first announcement."""
        return self.newest.version if self.newest else -1

    def announce(self, weights: PublishedWeights) -> None:
        self.newest = weights
        self._on_disk[weights.version] = weights

    def claim_load(self, worker_id: str, *, now: float) -> PublishedWeights | None:
        """Keep the newest version's files for this worker, which has one load claim at a time."""
        if self.newest is not None:
            self._load_claims[worker_id] = LoadClaim(version=self.newest.version, last_seen_at=now)
        return self.newest

    def end_load(self, worker_id: str) -> None:
        self._load_claims.pop(worker_id, None)

    def touch(self, worker_id: str, *, now: float) -> None:
        if worker_id in self._load_claims:
            self._load_claims[worker_id].last_seen_at = now

    def expire_loads(self, *, now: float) -> list[str]:
        """Remove the load claims of workers that timed out, so that a stopped process does not fill the disk."""
        expired = [w for w, c in self._load_claims.items() if now - c.last_seen_at > LOAD_CLAIM_TTL_SECONDS]
        for worker_id in expired:
            self.end_load(worker_id)
        return expired

    def pin(self, version: int) -> None:
        self._pinned.add(version)

    def unpin(self, version: int) -> None:
        self._pinned.discard(version)

    @property
    def loading(self) -> int:
        return len(self._load_claims)

    def collect_deletable(self) -> list[PublishedWeights]:
        """Versions whose files nothing needs any more; each is returned once."""
        kept = {claim.version for claim in self._load_claims.values()} | self._pinned | {self.number}
        return [self._on_disk.pop(version) for version in sorted(set(self._on_disk) - kept)]
