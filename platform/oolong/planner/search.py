"""Which split of a number of devices trains fastest, and what staleness, batch and assumptions change.

The split is recommended; max staleness and batch size change what is learned, so their rows inform and decide nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from oolong.planner.service_times import scaled
from oolong.planner.simulation import MEASURED_STEPS, WARM_UP_STEPS, NoProgress, simulate
from oolong.planner.types import Layout, Lengths, Performance, ServiceTimes

MAX_STALENESS_VALUES = (0, 1, 2, 4, 8)
# A layout of many devices is simulated as one share of it: so many devices and rollouts a step at least.
MIN_SHARE_DEVICES, MIN_SHARE_ROLLOUTS = 8, 512
# Rollouts that one simulation has at most, as far as its fewest steps allow.
MAX_SIMULATED_ROLLOUTS = 12_000
FEWEST_WARM_UP_STEPS, FEWEST_MEASURED_STEPS = 3, 2
AS_FAST = 0.98  # a smaller max staleness is as fast as the best from this share of its throughput
CHANGES: tuple[tuple[str, str], ...] = (
    ("decode", "decoding"), ("train", "training"), ("sync", "weight transfer"),
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """A layout and how it performs. `change` names the assumption that differs."""

    layout: Layout
    performance: Performance
    change: str = ""


@dataclass(frozen=True)
class Plan:
    given: Row | None  # as the spec says, on whatever devices that takes; None where it cannot train
    best: Row
    splits: list[Row]  # by engines, ascending
    staleness: list[Row]
    batches: list[Row]
    sensitivity: list[Row]
    sufficient_staleness: int  # the smallest max staleness that is as fast as any tried


def plan(times: ServiceTimes, lengths: Lengths, given: Layout, *, devices: int, seed: int = 1) -> Plan:
    """Search the splits of `devices` for the given algorithm. Raises NoProgress where no split can train."""
    if devices < 2:
        raise NoProgress(f"{devices} device: an engine and a trainer need one each")

    def row(
        layout: Layout, *, times: ServiceTimes = times, lengths: Lengths = lengths, change: str = ""
    ) -> Row:
        return Row(layout, _simulate(times, lengths, layout, seed=seed), change)

    step = math.gcd(devices, _shares(given, devices))
    splits = _search_splits(lambda engines: row(_split(given, engines, devices)), devices, step)
    best = max(splits, key=_speed)
    staleness = [
        row(_with_staleness(best.layout, eta)) for eta in sorted({*MAX_STALENESS_VALUES, given.max_staleness})
    ]
    as_fast = AS_FAST * max(map(_speed, staleness))
    batches = [row(replace(best.layout, groups_per_step=size)) for size in _batch_sizes(given)]
    sensitivity = [
        *(
            row(best.layout, times=scaled(times, name, factor), change=f"{what} {word}")
            for name, what in CHANGES
            for factor, word in ((0.5, "half as long"), (2.0, "twice as long"))
        ),
        row(best.layout, lengths=replace(lengths, mean=lengths.mean / 2), change="completions half as long"),
        row(best.layout, lengths=replace(lengths, spread=lengths.spread * 1.5), change="lengths 1.5 times as spread"),
    ]  # fmt: skip
    return Plan(
        given=_given_row(row, given),
        best=best,
        splits=sorted(splits, key=lambda split: split.layout.engines),
        staleness=staleness,
        batches=batches,
        sensitivity=sensitivity,
        sufficient_staleness=min(one.layout.max_staleness for one in staleness if _speed(one) >= as_fast),
    )


def _speed(row: Row) -> float:
    return row.performance.trained_tokens_per_second


def _given_row(row: Callable[[Layout], Row], given: Layout) -> Row | None:
    try:
        return row(given)
    except NoProgress:
        return None


def _split(given: Layout, engines: int, devices: int) -> Layout:
    return replace(given, engines=engines, trainer_devices=devices - engines)


def _with_staleness(layout: Layout, max_staleness: int) -> Layout:
    """As a spec without staleness.on_straggler has it: bounded up to one step of overlap, and kept above."""
    return replace(layout, max_staleness=max_staleness, on_straggler="wait" if max_staleness <= 1 else "keep")


def _batch_sizes(given: Layout) -> list[int]:
    size = given.groups_per_step
    return sorted({max(1, size // 2), size, size * 2})


def _simulate(times: ServiceTimes, lengths: Lengths, layout: Layout, *, seed: int) -> Performance:
    """Simulate the layout, or one of its equal shares where it is large."""
    shares = math.gcd(_shares(layout, layout.devices), layout.engines, layout.trainer_devices)
    limit = layout.max_concurrent_groups
    share = replace(
        layout,
        engines=layout.engines // shares,
        trainer_devices=layout.trainer_devices // shares,
        groups_per_step=layout.groups_per_step // shares,
        max_concurrent_groups=None if limit is None else math.ceil(limit / shares),
    )
    steps = max(1, MAX_SIMULATED_ROLLOUTS // (share.groups_per_step * share.group_size))
    warm_up = max(FEWEST_WARM_UP_STEPS, min(WARM_UP_STEPS, steps * 2 // 5))
    measured = max(FEWEST_MEASURED_STEPS, min(MEASURED_STEPS, steps * 3 // 5))
    found = simulate(times, lengths, share, seed=seed, warm_up=warm_up, measured=measured)
    return replace(found, trained_tokens_per_second=shares * found.trained_tokens_per_second)


def _shares(layout: Layout, devices: int) -> int:
    """How many equal shares the layout may be divided into."""
    rollouts = layout.groups_per_step * layout.group_size
    most = max(1, min(devices // MIN_SHARE_DEVICES, rollouts // MIN_SHARE_ROLLOUTS))
    return max(share for share in range(1, most + 1) if layout.groups_per_step % share == 0)


def _search_splits(row: Callable[[int], Row], devices: int, step: int) -> list[Row]:
    """Rows around the best split, in steps of `step` engines.

    More engines help until the trainer is the bottleneck, and hurt from there on: the throughput has one peak.
    """
    rows: dict[int, Row] = {}

    def at(steps: int) -> Row:
        if steps not in rows:
            rows[steps] = row(steps * step)
        return rows[steps]

    low, high = 1, devices // step - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if _speed(at(middle + 1)) > _speed(at(middle)) else (low, middle)
    for steps in range(max(1, low - 1), min(devices // step - 1, low + 1) + 1):
        at(steps)
    return list(rows.values())
