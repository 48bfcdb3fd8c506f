"""What became of slot time and tokens: pure functions.

Slot time that a later attempt did again is lost. The rest goes by phase: a trainer's work is trained, waiting is idle,
an engine's work is divided like the run's tokens. What no job measured is unknown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

K = TypeVar("K")

OUTCOMES = ("trained", "dropped", "in_flight", "lost", "evaluated", "sync", "idle", "unknown")
WITHOUT_TRAINING = (
    "eval",
    "reward_test",
    "playground",
)  # kinds of runs whose engines serve results, not groups


@dataclass(frozen=True, kw_only=True)
class RunTokens:
    """In completion tokens of a whole run: generated = trained + sum(dropped) + lost + in_flight + unknown."""

    generated: int
    trained: int
    dropped: Mapping[str, int]  # by reason
    lost: int
    in_flight: int
    wasted: int  # dropped and lost; also known for attempts that reported before the others were stored

    @classmethod
    def of_columns(
        cls, generated: int | None, trained: int, wasted: int, dropped: str | None, lost: int | None,
        in_flight: int | None,
    ) -> RunTokens | None:  # fmt: skip
        if generated is None:
            return None
        return cls(
            generated=generated, trained=trained, wasted=wasted,
            dropped=json.loads(dropped) if dropped is not None else {}, lost=lost or 0, in_flight=in_flight or 0,
        )  # fmt: skip

    @property
    def unknown(self) -> int:
        known = self.trained + sum(self.dropped.values()) + self.lost + self.in_flight
        return max(0, self.generated - known)


@dataclass(frozen=True, kw_only=True)
class SlotOutcomes:
    """Microseconds of slots, which add up to those that were given."""

    outcomes: dict[str, int]  # by OUTCOMES
    dropped: dict[str, int]  # the dropped ones by reason


def slot_outcomes(
    *, slots: int, lost: int, kept: Mapping[str, float], kind: str, tokens: RunTokens | None
) -> SlotOutcomes:
    """Divide `slots` microseconds. `kept`: measured seconds by phase, without those that were lost."""
    shares = {
        ("trained", ""): kept["train"],
        ("evaluated", ""): kept["evaluate"],
        ("sync", ""): kept["sync"],
        ("idle", ""): kept["wait"],
    }
    for key, share in _generated(kind, tokens).items():
        shares[key] = shares.get(key, 0.0) + kept["generate"] * share
    divided = apportion(
        slots - lost, {key: seconds * 1e6 for key, seconds in shares.items()}, rest=("unknown", "")
    )
    outcomes = dict.fromkeys(OUTCOMES, 0) | {"lost": lost}
    dropped: dict[str, int] = {}
    for (outcome, reason), part in divided.items():
        outcomes[outcome] += part
        if reason and part:
            dropped[reason] = dropped.get(reason, 0) + part
    return SlotOutcomes(outcomes=outcomes, dropped=dropped)


def _generated(kind: str, tokens: RunTokens | None) -> dict[tuple[str, str], float]:
    """Shares of an engine's work by (outcome, reason). Lost tokens take none: the lost time is counted apart."""
    if kind in WITHOUT_TRAINING:
        return {("evaluated", ""): 1.0}
    counts: dict[tuple[str, str], int] = {}
    if tokens is not None:
        counts = {
            ("trained", ""): tokens.trained,
            ("in_flight", ""): tokens.in_flight,
            ("unknown", ""): tokens.unknown,
        }
        counts |= {("dropped", reason): count for reason, count in tokens.dropped.items()}
    total = sum(counts.values())
    return {outcome: count / total for outcome, count in counts.items()} if total else {("unknown", ""): 1.0}


def apportion(total: int, parts: Mapping[K, float], *, rest: K) -> dict[K, int]:
    """Round `parts` down to whole numbers; `rest` takes what they leave of `total`. Parts above `total` are scaled."""
    known = sum(parts.values())
    scale = min(1.0, total / known) if known > 0 else 0.0
    whole: dict[K, int] = {}
    left = total
    for name, part in parts.items():
        whole[name] = min(left, int(part * scale))
        left -= whole[name]
    whole[rest] = whole.get(rest, 0) + left
    return whole
