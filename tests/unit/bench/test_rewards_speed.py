"""The speed of rewards is taken over right scores only."""

from __future__ import annotations

from oolong.sandbox import probe_sandbox
from tests.bench import rewards_speed
from tests.bench.measures import MEASURES
from tests.support.isolation import require_isolation


async def test_both_speeds_come_with_their_settings_and_every_score_was_right() -> None:
    probe_result = probe_sandbox(slots=1)
    require_isolation(probe_result.capabilities)
    measured = await rewards_speed.measure(completions=2, pairs=10)
    assert [one["key"] for one in measured] == ["sandboxed_tests_per_second", "math_pairs_per_second"]
    assert all(one["value"] > 0 and one["key"] in MEASURES for one in measured)


def test_two_of_ten_pairs_differ() -> None:
    rows = rewards_speed.rows_of_math(20)
    assert len(rows) == 20 and rows[0].answer == rows[10].answer == "42"


def test_every_row_of_code_has_its_tests_and_their_outputs() -> None:
    [row] = rewards_speed.rows_of_code(1)
    assert row.answer.count('"input"') == row.answer.count('"output"') == rewards_speed.TESTS_OF_A_ROW
