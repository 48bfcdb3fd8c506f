"""The token ledger of a run, read from its controller's report, whose shape is not validated: pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class ReportedTokens:
    """In completion tokens of the whole run: generated = trained + sum(dropped) + lost + in_flight, if it balances."""

    generated: int
    trained: int
    dropped: dict[str, int]  # by reason
    lost: int  # to recoveries
    in_flight: int


def read_token_ledger(tokens: Mapping[str, Any]) -> ReportedTokens | None:
    """None without a count of generated tokens."""
    generated = tokens.get("generated")
    if not isinstance(generated, int):
        return None
    dropped = tokens.get("dropped")
    reasons = dropped if isinstance(dropped, Mapping) else {}
    return ReportedTokens(
        generated=generated,
        trained=_count(tokens.get("trained")),
        dropped={str(reason): _count(number) for reason, number in reasons.items() if _count(number)},
        lost=_count(tokens.get("lost_to_recovery")),
        in_flight=_count(tokens.get("in_hand")),
    )


def _count(value: object) -> int:
    return max(0, value) if isinstance(value, int) else 0
