"""Published policy versions: the newest one, who is loading which, and which files may go (SEMANTICS section 4)."""

from __future__ import annotations

from dataclasses import dataclass

from oolong.contracts.rollout import PublishedWeights

LOAD_CLAIM_TTL_SECONDS = 30.0


@dataclass(kw_only=True)
class LoadClaim:
    version: int
    heard_at: float  # last sign of life of its worker


class Versions:
    """Files of a version live while it is newest, load-claimed or pinned by an evaluation."""

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
        """Protect the newest version's files for this worker; each has one load claim at a time."""
        if self.newest is not None:
            self._load_claims[worker_id] = LoadClaim(version=self.newest.version, heard_at=now)
        return self.newest

    def end_load(self, worker_id: str) -> None:
        self._load_claims.pop(worker_id, None)

    def hear(self, worker_id: str, *, now: float) -> None:
        if worker_id in self._load_claims:
            self._load_claims[worker_id].heard_at = now

    def expire_loads(self, *, now: float) -> list[str]:
        """Forget load claims of silent workers; a stopped process must not hold disk for ever."""
        silent = [w for w, c in self._load_claims.items() if now - c.heard_at > LOAD_CLAIM_TTL_SECONDS]
        for worker_id in silent:
            self.end_load(worker_id)
        return silent

    def pin(self, version: int) -> None:
        self._pinned.add(version)

    def unpin(self, version: int) -> None:
        self._pinned.discard(version)

    @property
    def loading(self) -> int:
        return len(self._load_claims)

    def collect_deletable(self) -> list[PublishedWeights]:
        """Versions whose files nobody needs any more; each is named once."""
        kept = {claim.version for claim in self._load_claims.values()} | self._pinned | {self.number}
        return [self._on_disk.pop(version) for version in sorted(set(self._on_disk) - kept)]
