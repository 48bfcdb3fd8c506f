"""The ledger: every group and every token has exactly one fate (SEMANTICS section 2).

Each place has its own counter, moved by its own line, so that an unbalanced sum shows a lost group instead
of hiding it.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from oolong.contracts.rollout import LedgerCounts, TokenCounts


class LedgerState(StrEnum):
    """Where a group is that is neither trained nor dropped."""

    WAITING = "waiting"  # drawn, to be claimed again
    RUNNING = "running"
    BUFFERED = "buffered"
    TAKEN = "taken"


class DropReason(StrEnum):
    ERROR = "error"
    STALE = "stale"
    FILTERED = "filtered"
    NONFINITE = "nonfinite"
    RUN_END = "run_end"


# Tokens that are lost while their group lives on elsewhere:
LATE = "late"  # they came with a submit whose claim was already lost
NOT_MIGRATABLE = "not_migratable"  # of a workflow that holds state outside its tokens, and was given back


class Ledger:
    """In groups: drawn = trained + sum(dropped) + waiting + running + buffered + taken."""

    def __init__(self, counts: LedgerCounts | None = None) -> None:
        counts = counts or LedgerCounts()
        self.drawn = counts.drawn
        self.trained = counts.trained
        self.dropped: dict[str, int] = dict(counts.dropped)
        self.late_submits = counts.late_submits
        self.errors: dict[str, int] = dict(counts.errors)
        self._at = {place: int(getattr(counts, place)) for place in LedgerState}

    def draw(self) -> None:
        self.drawn += 1
        self._at[LedgerState.WAITING] += 1

    def move(self, source: LedgerState, target: LedgerState, groups: int = 1) -> None:
        self._leave(source, groups)
        self._at[target] += groups

    def train(self, groups: int) -> None:
        self._leave(LedgerState.TAKEN, groups)
        self.trained += groups

    def drop(self, source: LedgerState, reason: DropReason, *, error: str = "") -> None:
        self._leave(source, 1)
        self.dropped[reason] = self.dropped.get(reason, 0) + 1
        if reason is DropReason.ERROR:
            self.errors[error] = self.errors.get(error, 0) + 1

    def at(self, place: LedgerState) -> int:
        return self._at[place]

    @property
    def held(self) -> int:
        """N of the gate without the candidate: groups that were or may still be trained."""
        return self.trained + sum(self._at.values())

    @property
    def balances(self) -> bool:
        return self.drawn == self.held + sum(self.dropped.values())

    def counts(self) -> LedgerCounts:
        return LedgerCounts(
            drawn=self.drawn,
            trained=self.trained,
            dropped=dict(self.dropped),
            late_submits=self.late_submits,
            errors=dict(self.errors),
            **{place.value: count for place, count in self._at.items()},
        )

    def _leave(self, place: LedgerState, groups: int) -> None:
        if self._at[place] < groups:
            raise RuntimeError(
                f"the ledger has {self._at[place]} groups {place} and {groups} should leave: it lost count"
            )
        self._at[place] -= groups


class TokenLedger:
    """In completion tokens: generated = trained + sum(dropped) + in_hand + lost_to_recovery."""

    def __init__(self, counts: TokenCounts | None = None) -> None:
        counts = counts or TokenCounts()
        self.generated = counts.generated
        self.trained = counts.trained
        self.dropped: dict[str, int] = dict(counts.dropped)
        self.in_hand = counts.in_hand
        self.lost_to_recovery = counts.lost_to_recovery

    def receive(self, tokens: int) -> None:
        self.generated += tokens
        self.in_hand += tokens

    def train(self, tokens: int) -> None:
        self.in_hand -= tokens
        self.trained += tokens

    def drop(self, tokens: int, reason: str) -> None:
        self.in_hand -= tokens
        if tokens:
            self.dropped[reason] = self.dropped.get(reason, 0) + tokens

    def lose(self, tokens: int) -> None:
        """A recovery restarts the group that these tokens belonged to."""
        self.in_hand -= tokens
        self.lost_to_recovery += tokens

    def recover(self, generated_before: int) -> None:
        """Go on from what earlier attempts of the run had made. What the snapshot does not know was made after it,
        or without one, by jobs that are gone: nobody holds it any more (SEMANTICS section 6)."""
        unknown = max(0, generated_before - self.generated)
        self.generated += unknown
        self.lost_to_recovery += unknown

    @property
    def balances(self) -> bool:
        accounted = self.trained + sum(self.dropped.values()) + self.in_hand + self.lost_to_recovery
        return self.generated == accounted

    def counts(self) -> TokenCounts:
        return msgspec.convert(
            {
                "generated": self.generated,
                "trained": self.trained,
                "dropped": dict(self.dropped),
                "in_hand": self.in_hand,
                "lost_to_recovery": self.lost_to_recovery,
            },
            TokenCounts,
        )
