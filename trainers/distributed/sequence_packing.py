"""Assign sequences to ranks and microbatches under a token budget, balanced by FLOPs. Pure functions over sizes.

Under FSDP2 every forward pass is a collective, so the ranks run their microbatches in lockstep: step k takes as long
as the most expensive of the ranks' k-th microbatches. Therefore every rank gets the same number of microbatches, and
microbatches of about equal cost get the same index.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class SequenceSize:
    tokens: int
    flops: float


Microbatches = list[list[int]]  # [microbatches][sequences], as indices into the list of sizes


def pack_microbatches(
    sizes: Sequence[SequenceSize], *, num_ranks: int, token_budget: int
) -> list[Microbatches]:
    """[ranks][microbatches][sequences]: each sequence once, in as few microbatches as the heuristics find.

    All ranks get equally many microbatches; some are empty when there are fewer sequences than ranks. A sequence
    longer than the budget gets a microbatch of its own.
    """
    too_long = [[index] for index, size in enumerate(sizes) if size.tokens > token_budget]
    rest = [index for index, size in enumerate(sizes) if size.tokens <= token_budget]
    lower_bound = len(too_long) + math.ceil(sum(sizes[index].tokens for index in rest) / token_budget)
    count = max(1, math.ceil(lower_bound / num_ranks)) * num_ranks
    while (packed := _pack(sizes, rest, count - len(too_long), token_budget)) is None:
        count += num_ranks
    return distribute(sizes, too_long + packed, num_ranks)


def _pack(
    sizes: Sequence[SequenceSize], indices: list[int], count: int, token_budget: int
) -> Microbatches | None:
    """Pack into `count` microbatches: balanced by FLOPs if that fits, else as tightly as possible, else None."""
    return _balance_flops(sizes, indices, count, token_budget) or _best_fit(
        sizes, indices, count, token_budget
    )


def _balance_flops(
    sizes: Sequence[SequenceSize], indices: list[int], count: int, token_budget: int
) -> Microbatches | None:
    """Most expensive first, each into the microbatch with the fewest FLOPs that has room for it."""
    microbatches: Microbatches = [[] for _ in range(count)]
    tokens = [0] * count
    by_flops = [(0.0, number) for number in range(count)]  # a heap
    for index in sorted(indices, key=lambda one: -sizes[one].flops):
        full = []
        while by_flops and tokens[by_flops[0][1]] + sizes[index].tokens > token_budget:
            full.append(heapq.heappop(by_flops))
        if not by_flops:
            return None
        flops, number = by_flops[0]
        microbatches[number].append(index)
        tokens[number] += sizes[index].tokens
        heapq.heapreplace(by_flops, (flops + sizes[index].flops, number))
        for one in full:
            heapq.heappush(by_flops, one)
    return microbatches


def _best_fit(
    sizes: Sequence[SequenceSize], indices: list[int], count: int, token_budget: int
) -> Microbatches | None:
    """Best-fit decreasing: longest first, each into the fullest microbatch that has room for it."""
    microbatches: Microbatches = []
    free: list[int] = []
    for index in sorted(indices, key=lambda one: -sizes[one].tokens):
        tokens = sizes[index].tokens
        fitting = [number for number, room in enumerate(free) if room >= tokens]
        if fitting:
            number = min(fitting, key=free.__getitem__)
        elif len(microbatches) < count:
            microbatches.append([])
            free.append(token_budget)
            number = len(microbatches) - 1
        else:
            return None
        microbatches[number].append(index)
        free[number] -= tokens
    return microbatches + [[] for _ in range(count - len(microbatches))]


def distribute(
    sizes: Sequence[SequenceSize], microbatches: Microbatches, num_ranks: int
) -> list[Microbatches]:
    """Give microbatches of similar cost the same index on all ranks.

    The order of the ranks reverses from index to index, so that the ranks' totals are similar too.
    """
    ordered = sorted(microbatches, key=lambda one: -total_flops(sizes, one))
    by_rank: list[Microbatches] = [[] for _ in range(num_ranks)]
    for row, start in enumerate(range(0, len(ordered), num_ranks)):
        concurrent = ordered[start : start + num_ranks]
        for share, one in zip(by_rank, concurrent if row % 2 == 0 else reversed(concurrent), strict=True):
            share.append(one)
    return by_rank


def total_flops(sizes: Sequence[SequenceSize], indices: Sequence[int]) -> float:
    return sum(sizes[index].flops for index in indices)


def lockstep_flops(sizes: Sequence[SequenceSize], by_rank: Sequence[Microbatches]) -> float:
    """FLOPs on the critical path: the sum over microbatch indices of the most expensive rank's microbatch."""
    return sum(
        max(total_flops(sizes, one) for one in concurrent) for concurrent in zip(*by_rank, strict=True)
    )


def flops_imbalance(sizes: Sequence[SequenceSize], by_rank: Sequence[Microbatches]) -> float:
    """Lockstep FLOPs over the mean FLOPs of a rank; 1 is perfect balance."""
    total = sum(size.flops for size in sizes)
    return lockstep_flops(sizes, by_rank) * len(by_rank) / total if total else 1.0
