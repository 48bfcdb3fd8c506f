"""The ledger: every group and every token has exactly one state or final state (SEMANTICS section 2).

Each state has its own counter, moved by its own line, so that an unbalanced sum reveals a lost group instead of hiding
it.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from oolong.contracts.rollout import LedgerCounts, TokenCounts


class LedgerState(StrEnum):
    """Of a group that is neither trained nor dropped."""

    WAITING = "waiting"  # to be claimed again
    RUNNING = "running"
    BUFFERED = "buffered"
    TAKEN = "taken"


class DropReason(StrEnum):
    ERROR = "error"
    STALE = "stale"
    FILTERED = "filtered"
    NONFINITE = "nonfinite"
    RUN_END = "run_end"


# Reasons for dropped tokens whose group continues elsewhere:
STALE_CLAIM = "stale_claim"  # reported under a claim that was lost
NOT_MIGRATABLE = "not_migratable"  # of a released workflow whose state is not in its tokens


class Ledger:
    """In groups: drawn = trained + sum(dropped) + waiting + running + buffered + taken."""

    def __init__(self, counts: LedgerCounts | None = None) -> None:
        counts = counts or LedgerCounts()
        self.drawn = counts.drawn
        self.trained = counts.trained
        self.dropped: dict[str, int] = dict(counts.dropped)
        self.late_submits = counts.late_submits
        self.errors: dict[str, int] = dict(counts.errors)
        self._at = {state: int(getattr(counts, state)) for state in LedgerState}

    def add_new(self) -> None:
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

    def at(self, state: LedgerState) -> int:
        return self._at[state]

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
            **{state.value: count for state, count in self._at.items()},
        )

    def _leave(self, state: LedgerState, groups: int) -> None:
        if self._at[state] < groups:
            raise RuntimeError(
                f"the ledger counts {self._at[state]} {state} groups, so {groups} cannot leave: a move was not counted"
            )
        self._at[state] -= groups


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
        """Add what earlier attempts of the run generated after the snapshot: those tokens are lost (section 6)."""
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
