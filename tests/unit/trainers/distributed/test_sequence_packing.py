"""Sequence packing: each sequence once, within the budget, equal counts per rank, balanced FLOPs."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.bench.microbatches import algorithm_1, fixed_count
from tests.support.packing import utilization
from trainers.distributed.sequence_packing import (
    SequenceSize,
    distribute,
    flops_imbalance,
    lockstep_flops,
    pack_microbatches,
)
from trainers.models.flops import DEFAULT_FLOPS, forward_flops

QWEN3_0_6B = {
    "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
    "head_dim": 128, "intermediate_size": 3072, "vocab_size": 151936,
}  # fmt: skip


COST = forward_flops(QWEN3_0_6B)


LENGTHS = st.lists(st.integers(1, 400), max_size=60)


def sized(lengths: list[int]) -> list[SequenceSize]:
    return [SequenceSize(length, DEFAULT_FLOPS.of_sequence(length, length)) for length in lengths]


def long_tailed(count: int, *, seed: int, longest: int = 27_648) -> list[SequenceSize]:
    """Lognormal lengths as reasoning models have them: median 3,600 tokens, mean about 5,600."""
    rng = random.Random(seed)
    lengths = [min(longest, int(rng.lognormvariate(8.2, 1.0)) + 1) for _ in range(count)]
    return [SequenceSize(256 + length, COST.of_sequence(256 + length, length)) for length in lengths]


@settings(max_examples=200, deadline=None)
@given(lengths=LENGTHS, num_ranks=st.integers(1, 5), token_budget=st.integers(50, 500))
def test_each_sequence_is_packed_once_under_the_budget_with_equal_counts_per_rank(
    lengths: list[int], num_ranks: int, token_budget: int
) -> None:
    dealt = pack_microbatches(sized(lengths), num_ranks=num_ranks, token_budget=token_budget)
    assert sorted(place for bins in dealt for one in bins for place in one) == list(range(len(lengths)))
    assert len(dealt) == num_ranks and len({len(bins) for bins in dealt}) == 1 and len(dealt[0]) >= 1
    for bins in dealt:
        for one in bins:
            assert sum(lengths[place] for place in one) <= token_budget or len(one) == 1


@settings(max_examples=200, deadline=None)
@given(lengths=LENGTHS, num_ranks=st.integers(1, 5))
def test_packing_needs_no_more_microbatches_than_first_fit(lengths: list[int], num_ranks: int) -> None:
    dealt = pack_microbatches(sized(lengths), num_ranks=num_ranks, token_budget=400)
    free: list[int] = []
    for length in sorted(lengths, reverse=True):
        place = next((number for number, room in enumerate(free) if room >= length), None)
        if place is None:
            free.append(400 - length)
        else:
            free[place] -= length
    assert len(dealt[0]) <= max(1, -(-len(free) // num_ranks)) + 1


@settings(max_examples=100, deadline=None)
@given(lengths=LENGTHS, num_ranks=st.integers(1, 5))
def test_flops_imbalance_is_at_least_one(lengths: list[int], num_ranks: int) -> None:
    sizes = sized(lengths)
    assert flops_imbalance(sizes, pack_microbatches(sizes, num_ranks=num_ranks, token_budget=400)) >= 1 - 1e-9


@pytest.mark.parametrize("num_ranks", [1, 4, 8])
def test_long_tailed_batches_are_packed_tightly_and_balanced(num_ranks: int) -> None:
    for seed in range(3):
        sizes = long_tailed(1024, seed=seed)
        dealt = pack_microbatches(sizes, num_ranks=num_ranks, token_budget=32_768)
        assert utilization(sizes, dealt, token_budget=32_768) >= 0.95
        assert flops_imbalance(sizes, dealt) <= 1.05


def test_balance_accounts_for_quadratic_attention() -> None:
    """Two sequences of 3,000 tokens cost more than six of 1,000: equal tokens would not be equal work."""
    cost = COST.of_sequence
    assert cost(3000, 0) > 3.1 * cost(1000, 0)
    sizes = [SequenceSize(length, cost(length, 0)) for length in (3000, 3000, *[1000] * 6)]
    dealt = pack_microbatches(sizes, num_ranks=2, token_budget=6000)
    assert [sorted(sizes[place].tokens for place in bins[0]) for bins in dealt] == [[1000] * 3 + [3000]] * 2


def test_microbatches_are_balanced_by_flops_not_tokens() -> None:
    """One sequence of 100 tokens costs as much as nine of 30 together."""
    dealt = pack_microbatches(
        [SequenceSize(100, 90.0), *[SequenceSize(30, 10.0)] * 9], num_ranks=2, token_budget=400
    )
    assert dealt == [[[0]], [list(range(1, 10))]]


def test_best_fit_is_used_if_balanced_packing_does_not_fit() -> None:
    """7 and 6 take a bin each; by FLOPs 3 would join 6, and one of the 2 would have no place: a third microbatch."""
    lengths = [7, 6, 3, 2, 2]
    [bins] = pack_microbatches(sized(lengths), num_ranks=1, token_budget=10)
    assert sorted(sorted(lengths[place] for place in one) for one in bins) == [[2, 2, 6], [3, 7]]


def test_distribute_aligns_microbatches_of_similar_cost_and_balances_totals() -> None:
    sizes = [SequenceSize(1, float(flops)) for flops in (1, 4, 2, 3)]
    dealt = distribute(sizes, [[0], [1], [2], [3]], 2)
    assert dealt == [[[1], [0]], [[3], [2]]]  # 4 beside 3, then 1 beside 2: sums 5 and 5
    assert lockstep_flops(sizes, dealt) == 4 + 2


def test_utilization_is_over_all_microbatches_of_all_ranks() -> None:
    sizes = [SequenceSize(7, 1.0), SequenceSize(8, 1.0), SequenceSize(3, 1.0)]
    assert utilization(sizes, [[[0], [2]], [[1], []]], token_budget=10) == 18 / 40


@settings(max_examples=200, deadline=None)
@given(lengths=LENGTHS, capacity=st.integers(50, 500), least=st.integers(1, 6))
def test_algorithm_1_respects_capacity_and_minimum_batches(
    lengths: list[int], capacity: int, least: int
) -> None:
    bins = algorithm_1(lengths, capacity=capacity, min_batches=least)
    assert sorted(place for one in bins for place in one) == list(range(len(lengths)))
    assert all(sum(lengths[place] for place in one) <= capacity or len(one) == 1 for one in bins)
    assert len(bins) >= min(least, len(lengths))


def test_algorithm_1_prefers_the_batch_with_the_fewest_sequences() -> None:
    """7 and 6 open the two batches; 2 joins the first of them; 1 would fit that too, but the second has fewer."""
    assert algorithm_1([7, 6, 2, 1], capacity=10, min_batches=2) == [[0, 2], [1, 3]]


def test_fixed_count_splits_evenly_and_has_a_longer_critical_path() -> None:
    assert [len(one) for one in fixed_count(10, count=4)] == [2, 3, 2, 3]
    sizes = long_tailed(256, seed=3)
    bins = fixed_count(len(sizes), count=64)
    fixed = [bins[rank::4] for rank in range(4)]
    ours = pack_microbatches(sizes, num_ranks=4, token_budget=32_768)
    assert lockstep_flops(sizes, fixed) > 1.3 * lockstep_flops(sizes, ours)
