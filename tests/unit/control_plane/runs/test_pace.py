"""The pace of a run: from samples of its progress to the time that is left."""

from __future__ import annotations

import random

import pytest

from control_plane.runs.pace import MAX_SAMPLES, add_sample, remaining


def test_a_sample_is_added_only_where_something_was_done_and_starts_over_after_a_step_back() -> None:
    samples = add_sample([], 0.0, 1)
    samples = add_sample(samples, 15.0, 1)
    assert samples == [(0.0, 1)]
    samples = add_sample(samples, 30.0, 4)
    assert samples == [(0.0, 1), (30.0, 4)]
    assert add_sample(samples, 45.0, 2) == [(45.0, 2)], "another attempt repeats steps"
    many = [(float(n), n) for n in range(MAX_SAMPLES)]
    assert add_sample(many, 100.0, 100) == [*many[1:], (100.0, 100)]


def test_one_sample_says_nothing() -> None:
    assert remaining([], 10, now=5.0) is None
    assert remaining([(0.0, 3)], 10, now=5.0) is None


def test_a_steady_pace_leaves_its_mean_times_the_steps_and_no_spread() -> None:
    found = remaining([(10.0 * n, n) for n in range(6)], 20, now=50.0)
    assert found is not None
    assert found.p50 == pytest.approx(150) and found.p90 == pytest.approx(150)


def test_the_part_of_a_step_that_is_done_counts_at_most_once() -> None:
    samples = [(10.0 * n, n) for n in range(6)]
    assert remaining(samples, 20, now=54.0).p50 == pytest.approx(146)  # type: ignore[union-attr]
    assert remaining(samples, 20, now=99.0).p50 == pytest.approx(140)  # type: ignore[union-attr]


def test_two_samples_give_a_median_and_no_spread() -> None:
    found = remaining([(0.0, 0), (10.0, 2)], 10, now=10.0)
    assert found is not None and found.p50 == pytest.approx(40) and found.p90 is None


def test_nine_of_ten_runs_end_before_the_p90() -> None:
    rng, before = random.Random(0), 0
    for _ in range(400):
        steps = [rng.lognormvariate(2, 0.6) for _ in range(60)]
        times = [sum(steps[:n]) for n in range(61)]
        found = remaining([(times[n], n) for n in range(21)], 60, now=times[20])
        assert found is not None and found.p90 is not None
        before += times[60] - times[20] <= found.p90
    assert 0.84 <= before / 400 <= 0.95
