"""Usage of pools: slot seconds by phase and by outcome, and tokens, as rows and as series over time.

Every second of the pool is included: usage that the caller may not see by name is one row without a name. Phases and
outcomes each add up to the slot seconds, the rows to their total and the series to the rows, in whole microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from control_plane.accounts.identity.caller import Caller
from control_plane.experiments.usage_outcomes import (
    OUTCOMES,
    RunTokens,
    SlotOutcomes,
    apportion,
    slot_outcomes,
)
from control_plane.experiments.usage_seconds import (
    MEASURED,
    MICROSECONDS,
    By,
    MeasuredRun,
    UsageQuery,
    measured_runs,
)

PHASES = (*MEASURED, "other")
Stack = Literal["team", "project", "phase", "outcome"]
Name = tuple[str, str] | None

_DEPTH: dict[By, int] = {"team": 1, "project": 2, "run": 3}


@dataclass
class Sums:
    """Microseconds, millionths of the currency, and tokens of several runs."""

    runs: int = 0
    slots: int = 0
    gpus: int = 0
    cost: int = 0
    unpriced: int = 0
    phases: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PHASES, 0))
    outcomes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))
    dropped: dict[str, int] = field(default_factory=dict)
    tokens: list[RunTokens] = field(default_factory=list)

    def add(self, one: MeasuredRun) -> None:
        divided = outcomes_of(one)
        self.runs += 1
        self.slots += one.slots
        self.gpus += one.gpus
        self.cost += one.cost
        self.unpriced += one.unpriced
        _add(self.phases, phases_of(one))
        _add(self.outcomes, divided.outcomes)
        _add(self.dropped, divided.dropped)
        if one.tokens is not None:
            self.tokens.append(one.tokens)


def phases_of(one: MeasuredRun) -> dict[str, int]:
    return apportion(
        one.slots, {name: seconds * MICROSECONDS for name, seconds in one.phases.items()}, rest="other"
    )


def outcomes_of(one: MeasuredRun) -> SlotOutcomes:
    return slot_outcomes(slots=one.slots, lost=one.lost, kept=one.kept, kind=one.kind, tokens=one.tokens)


def usage(caller: Caller, query: UsageQuery) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Usage rows by team, project or run, largest first, and their total."""
    total, rows = Sums(), dict[tuple[Name, ...], Sums]()
    for one in measured_runs(caller, query):
        total.add(one)
        rows.setdefault(_key(one, query.by), Sums()).add(one)
    largest = sorted(rows.items(), key=lambda row: (-row[1].slots, *(name or ("", "") for name in row[0])))
    names = ("team", "project", "run")
    return (
        [dict(zip(names, map(_shown, key), strict=True)) | _figures(sums) for key, sums in largest],
        _figures(total),
    )


@dataclass
class Series:
    name: Name
    team: Name
    slots: list[int]  # microseconds by bucket
    gpus: list[int]
    cost: list[int]  # millionths of the currency

    @classmethod
    def empty(cls, name: Name, team: Name, buckets: int) -> Series:
        return cls(name, team, [0] * buckets, [0] * buckets, [0] * buckets)


def usage_series(caller: Caller, query: UsageQuery, stack: Stack) -> list[dict[str, Any]]:
    """Seconds by bucket of time: a series per team, project, phase or outcome; names largest first."""
    buckets = len(query.starts)
    found: dict[tuple[Name, Name], Series] = {}
    if stack in ("phase", "outcome"):
        for part in PHASES if stack == "phase" else OUTCOMES:
            found[None, (part, part)] = Series.empty((part, part), None, buckets)
    for one in measured_runs(caller, query):
        for team, name, slots, gpus, cost in _parts(one, stack):
            series = found.setdefault((team, name), Series.empty(name, team, buckets))
            series.slots[one.bucket] += slots
            series.gpus[one.bucket] += gpus
            series.cost[one.bucket] += cost
    ordered = list(found.values())
    if stack in ("team", "project"):
        ordered.sort(key=lambda series: (-sum(series.slots), series.name or ("", "")))
    return [
        {
            "name": _shown(series.name), "team": _shown(series.team),
            "slot_seconds": [_seconds(part) for part in series.slots],
            "gpu_seconds": [_seconds(part) for part in series.gpus],
            "cost": [_seconds(part) for part in series.cost],
        }
        for series in ordered
    ]  # fmt: skip


def _parts(one: MeasuredRun, stack: Stack) -> Iterator[tuple[Name, Name, int, int, int]]:
    """(team, name, slots, gpus, cost). GPUs and cost by phase and outcome are in proportion to the slots."""
    if stack == "team":
        yield None, one.team, one.slots, one.gpus, one.cost
    elif stack == "project":
        yield one.team, one.project, one.slots, one.gpus, one.cost
    else:
        slots = phases_of(one) if stack == "phase" else outcomes_of(one).outcomes
        rest = "other" if stack == "phase" else "unknown"
        gpus, cost = (_like(slots, total, of=one.slots, rest=rest) for total in (one.gpus, one.cost))
        for name, part in slots.items():
            yield None, (name, name), part, gpus[name], cost[name]


def _like(parts: dict[str, int], total: int, *, of: int, rest: str) -> dict[str, int]:
    """`total` divided as the parts divide `of`."""
    return apportion(
        total, {name: part * total / of if of else 0.0 for name, part in parts.items()}, rest=rest
    )


def _key(one: MeasuredRun, by: By) -> tuple[Name, Name, Name]:
    depth = _DEPTH[by]
    return one.team, one.project if depth > 1 else None, one.run if depth > 2 else None


def _figures(sums: Sums) -> dict[str, Any]:
    return {
        "runs": sums.runs,
        "slot_seconds": _seconds(sums.slots),
        "gpu_seconds": _seconds(sums.gpus),
        "cost": _seconds(sums.cost),
        "unpriced_slot_seconds": _seconds(sums.unpriced),
        "phases": {name: _seconds(part) for name, part in sums.phases.items()},
        "outcomes": {name: _seconds(part) for name, part in sums.outcomes.items()},
        "dropped": {name: _seconds(part) for name, part in sorted(sums.dropped.items())},
        "tokens": _tokens(sums.tokens),
    }


def _tokens(runs: list[RunTokens]) -> dict[str, Any]:
    """Null: no run reported any."""
    if not runs:
        return dict.fromkeys(("generated", "trained", "dropped", "lost", "in_flight", "unknown", "wasted"))
    dropped: dict[str, int] = {}
    for one in runs:
        _add(dropped, one.dropped)
    return {
        "generated": sum(one.generated for one in runs),
        "trained": sum(one.trained for one in runs),
        "dropped": dict(sorted(dropped.items())),
        "lost": sum(one.lost for one in runs),
        "in_flight": sum(one.in_flight for one in runs),
        "unknown": sum(one.unknown for one in runs),
        "wasted": sum(one.wasted for one in runs),
    }


def _add(sums: dict[str, int], more: Any) -> None:
    for name, part in more.items():
        sums[name] = sums.get(name, 0) + part


def _shown(name: Name) -> dict[str, str] | None:
    return None if name is None else {"id": name[0], "name": name[1]}


def _seconds(millionths: int) -> float:
    """Seconds, or units of the currency."""
    return millionths / MICROSECONDS
