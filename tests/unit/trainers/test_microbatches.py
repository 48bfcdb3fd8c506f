"""Microbatches: every sequence exactly once, the budget kept, equal counts, and as balanced as they claim."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainers.microbatches import (
    Size,
    algorithm_1,
    allocate,
    bin_use,
    deal_level,
    fixed_count,
    flops_imbalance,
    lockstep_flops,
)
from trainers.models.flops import OF_NO_MODEL, forward_flops

QWEN3_0_6B = {
    "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
    "head_dim": 128, "intermediate_size": 3072, "vocab_size": 151936,
}  # fmt: skip
COST = forward_flops(QWEN3_0_6B)
LENGTHS = st.lists(st.integers(1, 400), max_size=60)


def sized(lengths: list[int]) -> list[Size]:
    return [Size(length, OF_NO_MODEL.of(length, length)) for length in lengths]


def long_tailed(count: int, *, seed: int, longest: int = 27_648) -> list[Size]:
    """Lognormal lengths as reasoning models have them: median 3,600 tokens, mean about 5,600."""
    rng = random.Random(seed)
    lengths = [min(longest, int(rng.lognormvariate(8.2, 1.0)) + 1) for _ in range(count)]
    return [Size(256 + length, COST.of(256 + length, length)) for length in lengths]


@settings(max_examples=200, deadline=None)
@given(lengths=LENGTHS, ranks=st.integers(1, 5), token_budget=st.integers(50, 500))
def test_every_sequence_is_in_one_microbatch_under_the_budget_and_ranks_have_equally_many(
    lengths: list[int], ranks: int, token_budget: int
) -> None:
    dealt = allocate(sized(lengths), ranks=ranks, token_budget=token_budget)
    assert sorted(place for bins in dealt for one in bins for place in one) == list(range(len(lengths)))
    assert len(dealt) == ranks and len({len(bins) for bins in dealt}) == 1 and len(dealt[0]) >= 1
    for bins in dealt:
        for one in bins:
            assert sum(lengths[place] for place in one) <= token_budget or len(one) == 1


@settings(max_examples=200, deadline=None)
@given(lengths=LENGTHS, ranks=st.integers(1, 5))
def test_no_more_microbatches_than_first_fit_would_need(lengths: list[int], ranks: int) -> None:
    dealt = allocate(sized(lengths), ranks=ranks, token_budget=400)
    free: list[int] = []
    for length in sorted(lengths, reverse=True):
        place = next((number for number, room in enumerate(free) if room >= length), None)
        if place is None:
            free.append(400 - length)
        else:
            free[place] -= length
    assert len(dealt[0]) <= max(1, -(-len(free) // ranks)) + 1


@settings(max_examples=100, deadline=None)
@given(lengths=LENGTHS, ranks=st.integers(1, 5))
def test_imbalance_is_never_below_one(lengths: list[int], ranks: int) -> None:
    sizes = sized(lengths)
    assert flops_imbalance(sizes, allocate(sizes, ranks=ranks, token_budget=400)) >= 1 - 1e-9


@pytest.mark.parametrize("ranks", [1, 4, 8])
def test_long_tailed_batches_fill_their_bins_and_keep_the_ranks_level(ranks: int) -> None:
    for seed in range(3):
        sizes = long_tailed(1024, seed=seed)
        dealt = allocate(sizes, ranks=ranks, token_budget=32_768)
        assert bin_use(sizes, dealt, token_budget=32_768) >= 0.95
        assert flops_imbalance(sizes, dealt) <= 1.05


def test_balance_counts_the_quadratic_part_of_attention() -> None:
    """Two sequences of 3,000 tokens cost more than six of 1,000: equal tokens would not be equal work."""
    cost = COST.of
    assert cost(3000, 0) > 3.1 * cost(1000, 0)
    sizes = [Size(length, cost(length, 0)) for length in (3000, 3000, *[1000] * 6)]
    dealt = allocate(sizes, ranks=2, token_budget=6000)
    assert [sorted(sizes[place].tokens for place in bins[0]) for bins in dealt] == [[1000] * 3 + [3000]] * 2


def test_bins_are_filled_to_equal_flops_whatever_their_tokens() -> None:
    """One sequence of 100 tokens costs as much as nine of 30 together."""
    dealt = allocate([Size(100, 90.0), *[Size(30, 10.0)] * 9], ranks=2, token_budget=400)
    assert dealt == [[[0]], [list(range(1, 10))]]


def test_where_equal_flops_do_not_fit_bins_are_filled_as_tightly_as_can_be() -> None:
    """7 and 6 take a bin each; by FLOPs 3 would join 6, and one of the 2 would have no place: a third microbatch."""
    lengths = [7, 6, 3, 2, 2]
    [bins] = allocate(sized(lengths), ranks=1, token_budget=10)
    assert sorted(sorted(lengths[place] for place in one) for one in bins) == [[2, 2, 6], [3, 7]]


def test_bins_of_like_cost_stand_side_by_side_and_the_ranks_have_like_sums() -> None:
    sizes = [Size(1, float(flops)) for flops in (1, 4, 2, 3)]
    dealt = deal_level(sizes, [[0], [1], [2], [3]], 2)
    assert dealt == [[[1], [0]], [[3], [2]]]  # 4 beside 3, then 1 beside 2: sums 5 and 5
    assert lockstep_flops(sizes, dealt) == 4 + 2


def test_flops_of_qwen3_0_6b_are_those_of_its_matrices() -> None:
    """440M parameters in the layers' matrices: twice that per token."""
    layer = 1024 * 128 * (16 + 8 + 8 + 16) + 3 * 1024 * 3072
    assert COST.per_token == 2 * 28 * layer == pytest.approx(2 * 440.4e6, rel=1e-3)
    assert COST.per_pair == 28 * 16 * (2 * 128 + 2 * 128)  # q.k and the weighted sum of v
    assert COST.per_loss_token == 2 * 1024 * 151936
    assert COST.of(2, 1) == 2 * COST.per_token + 3 * COST.per_pair + COST.per_loss_token


def test_bin_use_is_of_all_microbatches_of_all_ranks() -> None:
    sizes = [Size(7, 1.0), Size(8, 1.0), Size(3, 1.0)]
    assert bin_use(sizes, [[[0], [2]], [[1], []]], token_budget=10) == 18 / 40


@settings(max_examples=200, deadline=None)
@given(lengths=LENGTHS, capacity=st.integers(50, 500), least=st.integers(1, 6))
def test_algorithm_1_keeps_its_capacity_and_opens_at_least_as_many_batches_as_asked(
    lengths: list[int], capacity: int, least: int
) -> None:
    bins = algorithm_1(lengths, capacity=capacity, least_batches=least)
    assert sorted(place for one in bins for place in one) == list(range(len(lengths)))
    assert all(sum(lengths[place] for place in one) <= capacity or len(one) == 1 for one in bins)
    assert len(bins) >= min(least, len(lengths))


def test_algorithm_1_takes_the_batch_with_the_fewest_sequences() -> None:
    """7 and 6 open the two batches; 2 joins the first of them; 1 would fit that too, but the second has fewer."""
    assert algorithm_1([7, 6, 2, 1], capacity=10, least_batches=2) == [[0, 2], [1, 3]]


def test_a_fixed_count_deals_equally_many_sequences_and_waits_longer_for_the_slowest() -> None:
    assert [len(one) for one in fixed_count(10, count=4)] == [2, 3, 2, 3]
    sizes = long_tailed(256, seed=3)
    bins = fixed_count(len(sizes), count=64)
    fixed = [bins[rank::4] for rank in range(4)]
    ours = allocate(sizes, ranks=4, token_budget=32_768)
    assert lockstep_flops(sizes, fixed) > 1.3 * lockstep_flops(sizes, ours)
