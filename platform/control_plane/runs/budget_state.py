"""How far a monthly budget is used: pure functions. Months are calendar months in UTC."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

WARN_AT = 0.8  # of the budget


class BudgetState(StrEnum):
    WITHIN = "within"
    WARNING = "warning"  # at least WARN_AT is used
    EXHAUSTED = "exhausted"  # runs pause, and new ones wait


@dataclass(frozen=True)
class Amounts:
    """A budget, or what is used of it."""

    gpu_hours: float | None = None  # of GPU slots; None: without a limit
    cost: float | None = None  # in the currency of the installation; None: without a limit


def month_start(now: datetime) -> datetime:
    return datetime(now.year, now.month, 1, tzinfo=UTC)


def month_end(now: datetime) -> datetime:
    return month_start(month_start(now) + timedelta(days=32))


def used_fractions(limits: Amounts, used: Amounts) -> dict[str, float]:
    """Limit → the part of it that is used. A limit of 0 is used up from the start."""
    pairs = {"gpu_hours": (limits.gpu_hours, used.gpu_hours), "cost": (limits.cost, used.cost)}
    return {
        name: (spent or 0.0) / limit if limit else 1.0
        for name, (limit, spent) in pairs.items()
        if limit is not None
    }


def state_of(limits: Amounts, used: Amounts) -> BudgetState:
    """The limit that is used most decides."""
    most = max(used_fractions(limits, used).values(), default=0.0)
    if most >= 1.0:
        return BudgetState.EXHAUSTED
    return BudgetState.WARNING if most >= WARN_AT else BudgetState.WITHIN


def describe(
    limits: Amounts, used: Amounts, *, owner: str, pool: str, currency: str, raised_by: str, now: datetime
) -> str:
    """One sentence about the limit that is used most; empty while the budget is within its limits."""
    fractions = used_fractions(limits, used)
    state = state_of(limits, used)
    if state is BudgetState.WITHIN:
        return ""
    if max(fractions, key=lambda name: fractions[name]) == "gpu_hours":
        amounts = f"{used.gpu_hours or 0.0:.1f} of its {limits.gpu_hours or 0.0:.1f} GPU-hours"
    else:
        amounts = f"{used.cost or 0.0:.2f} of its {limits.cost or 0.0:.2f} {currency}"
    text = f"{owner} has used {amounts} of {now:%B} in pool {pool}"
    if state is BudgetState.WARNING:
        return f"{text}; when the budget is used up, its runs pause"
    return f"{text}; queued runs start on {month_end(now):%-d %B}, or when {raised_by} raises the budget"
