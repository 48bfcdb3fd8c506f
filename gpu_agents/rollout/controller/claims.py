"""Claims: which worker generates which group, and until when without a renewal (SEMANTICS section 2)."""

from __future__ import annotations

from dataclasses import dataclass

CLAIM_TTL_SECONDS = 30.0


@dataclass(kw_only=True)
class Claim:
    claim_id: str
    group_id: str
    worker_id: str
    claimed_at: float
    renewed_at: float


class Claims:
    """Live claims by id. A claim that has ended cannot come back: a report under it is stale."""

    def __init__(self, *, timeout_seconds: float | None = None) -> None:
        self._timeout_seconds = timeout_seconds
        self._claims: dict[str, Claim] = {}
        self._made = 0

    def make(self, group_id: str, worker_id: str, *, now: float) -> Claim:
        self._made += 1
        claim = Claim(
            claim_id=f"c{self._made}-{group_id}",
            group_id=group_id,
            worker_id=worker_id,
            claimed_at=now,
            renewed_at=now,
        )
        self._claims[claim.claim_id] = claim
        return claim

    def renew(self, claim_ids: list[str], worker_id: str, *, now: float) -> list[str]:
        """Renew the worker's claims. Returns the ids that are not its claims any more."""
        lost = []
        for claim_id in claim_ids:
            claim = self.of_worker(claim_id, worker_id)
            if claim is None:
                lost.append(claim_id)
            else:
                claim.renewed_at = now
        return lost

    def of_worker(self, claim_id: str, worker_id: str) -> Claim | None:
        claim = self._claims.get(claim_id)
        return claim if claim is not None and claim.worker_id == worker_id else None

    def end(self, claim: Claim) -> None:
        del self._claims[claim.claim_id]

    def end_of_group(self, group_id: str) -> None:
        for claim in [c for c in self._claims.values() if c.group_id == group_id]:
            self.end(claim)

    def all_of_worker(self, worker_id: str) -> list[Claim]:
        return [claim for claim in self._claims.values() if claim.worker_id == worker_id]

    def expired(self, *, now: float) -> list[Claim]:
        """Claims that were not renewed within the TTL."""
        return [c for c in self._claims.values() if now - c.renewed_at > CLAIM_TTL_SECONDS]

    def timed_out(self, *, now: float) -> list[Claim]:
        """Claims whose group has been generated for longer than the timeout, however often they were renewed."""
        if self._timeout_seconds is None:
            return []
        return [c for c in self._claims.values() if now - c.claimed_at > self._timeout_seconds]
