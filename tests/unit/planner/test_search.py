from __future__ import annotations

from dataclasses import replace

import pytest

from oolong.planner import search
from oolong.planner.simulation import NoProgress
from oolong.planner.types import Layout, Lengths, ServiceTimes

TIMES = ServiceTimes(
    decode_step=5e-3, decode_sequence=6e-6, decode_context=1.2e-8, prefill_token=8e-6,
    train_token=31e-6, train_step=2.0, publish=3.7, load=1.1,
)  # fmt: skip
LENGTHS = Lengths(mean=2_000, limit=8_192, prompt=256)
GIVEN = Layout(
    engines=2, trainer_devices=2, group_size=8, groups_per_step=16, max_staleness=2, max_running=128
)


def speed(row: search.Row) -> float:
    return row.performance.trained_tokens_per_second


@pytest.mark.parametrize("devices", [2, 3, 5, 8])
def test_the_best_split_is_that_of_a_full_search(devices: int) -> None:
    rows = [
        search._simulate(TIMES, LENGTHS, search._split(GIVEN, engines, devices), seed=1)
        for engines in range(1, devices)
    ]
    best = search.plan(TIMES, LENGTHS, GIVEN, devices=devices).best
    assert best.layout.devices == devices
    assert speed(best) >= 0.99 * max(row.trained_tokens_per_second for row in rows)


def test_the_rows_differ_from_the_best_split_in_one_thing_each() -> None:
    plan = search.plan(TIMES, LENGTHS, GIVEN, devices=4)
    best = plan.best.layout
    assert [row.layout.max_staleness for row in plan.staleness] == [0, 1, 2, 4, 8]
    assert all(
        replace(row.layout, max_staleness=2, on_straggler=best.on_straggler) == best for row in plan.staleness
    )
    assert [row.layout.groups_per_step for row in plan.batches] == [8, 16, 32]
    assert {row.layout for row in plan.sensitivity} == {best}
    assert plan.given is not None and plan.given.layout == GIVEN


def test_slower_assumptions_never_train_faster() -> None:
    plan = search.plan(TIMES, LENGTHS, GIVEN, devices=4)
    by_change = {row.change: speed(row) for row in plan.sensitivity}
    for what in ("decoding", "training", "weight transfer"):
        assert by_change[f"{what} twice as long"] <= speed(plan.best) * 1.001, what
        assert by_change[f"{what} half as long"] >= speed(plan.best) * 0.999, what


def test_a_smaller_max_staleness_is_enough_where_the_trainer_is_the_bottleneck() -> None:
    slow_trainer = replace(TIMES, train_token=1e-3)
    plan = search.plan(slow_trainer, LENGTHS, replace(GIVEN, max_staleness=8), devices=8)
    assert plan.sufficient_staleness < 8
    enough = next(row for row in plan.staleness if row.layout.max_staleness == plan.sufficient_staleness)
    assert speed(enough) >= search.AS_FAST * max(map(speed, plan.staleness))


def test_a_large_layout_is_simulated_from_an_equal_share() -> None:
    large = replace(GIVEN, engines=24, trainer_devices=8, groups_per_step=256)
    whole = search._simulate(TIMES, LENGTHS, large, seed=1)
    share = replace(large, engines=6, trainer_devices=2, groups_per_step=64)
    part = search._simulate(TIMES, LENGTHS, share, seed=1)
    assert whole.trained_tokens_per_second == pytest.approx(4 * part.trained_tokens_per_second, rel=0.05)
    assert whole.step_seconds == pytest.approx(part.step_seconds, rel=0.05)


def test_one_device_is_not_enough() -> None:
    with pytest.raises(NoProgress, match="an engine and a trainer need one each"):
        search.plan(TIMES, LENGTHS, GIVEN, devices=1)
