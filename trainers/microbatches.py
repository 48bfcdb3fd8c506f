"""Which sequences share a forward pass, and on which rank. Pure functions over sizes.

Under FSDP2 the ranks walk through their microbatches in lockstep: microbatch k of every rank costs what the most
expensive of them costs. So counts are equal, and microbatches of about equal cost stand at the same place.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Size:
    tokens: int
    flops: float


Bins = list[list[int]]  # [microbatches][sequences], as places in the list that was given


def allocate(sizes: Sequence[Size], *, ranks: int, token_budget: int) -> list[Bins]:
    """[ranks][microbatches][sequences]: every sequence once, as few microbatches as can be found, equally many per
    rank. A sequence over the budget gets a microbatch of its own. A microbatch may be empty when there are too few.
    """
    long = [[place] for place, size in enumerate(sizes) if size.tokens > token_budget]
    rest = [place for place, size in enumerate(sizes) if size.tokens <= token_budget]
    needed = len(long) + math.ceil(sum(sizes[place].tokens for place in rest) / token_budget)
    count = max(1, math.ceil(needed / ranks)) * ranks
    while (packed := _pack(sizes, rest, count - len(long), token_budget)) is None:
        count += ranks
    return deal_level(sizes, long + packed, ranks)


def _pack(sizes: Sequence[Size], places: list[int], count: int, token_budget: int) -> Bins | None:
    """Into `count` bins: of equal FLOPs if that fits, else as tightly as can be; None if neither does."""
    return _spread(sizes, places, count, token_budget) or _squeeze(sizes, places, count, token_budget)


def _spread(sizes: Sequence[Size], places: list[int], count: int, token_budget: int) -> Bins | None:
    """Most expensive first, each into the bin with the fewest FLOPs that has room for it."""
    bins: Bins = [[] for _ in range(count)]
    tokens = [0] * count
    lightest = [(0.0, number) for number in range(count)]
    for place in sorted(places, key=lambda one: -sizes[one].flops):
        full = []
        while lightest and tokens[lightest[0][1]] + sizes[place].tokens > token_budget:
            full.append(heapq.heappop(lightest))
        if not lightest:
            return None
        flops, number = lightest[0]
        bins[number].append(place)
        tokens[number] += sizes[place].tokens
        heapq.heapreplace(lightest, (flops + sizes[place].flops, number))
        for one in full:
            heapq.heappush(lightest, one)
    return bins


def _squeeze(sizes: Sequence[Size], places: list[int], count: int, token_budget: int) -> Bins | None:
    """Longest first, each into the fullest bin that has room for it (best fit, decreasing)."""
    bins: Bins = []
    free: list[int] = []
    for place in sorted(places, key=lambda one: -sizes[one].tokens):
        size = sizes[place].tokens
        fitting = [number for number, room in enumerate(free) if room >= size]
        if fitting:
            number = min(fitting, key=free.__getitem__)
        elif len(bins) < count:
            bins.append([])
            free.append(token_budget)
            number = len(bins) - 1
        else:
            return None
        bins[number].append(place)
        free[number] -= size
    return bins + [[] for _ in range(count - len(bins))]


def deal_level(sizes: Sequence[Size], bins: Bins, ranks: int) -> list[Bins]:
    """Bins of like cost stand side by side; the order of the ranks turns around, so that their sums are alike too."""
    ordered = sorted(bins, key=lambda one: -flops_of(sizes, one))
    dealt: list[Bins] = [[] for _ in range(ranks)]
    for row, start in enumerate(range(0, len(ordered), ranks)):
        abreast = ordered[start : start + ranks]
        for share, one in zip(dealt, abreast if row % 2 == 0 else reversed(abreast), strict=True):
            share.append(one)
    return dealt


def flops_of(sizes: Sequence[Size], places: Sequence[int]) -> float:
    return sum(sizes[place].flops for place in places)


def algorithm_1(lengths: Sequence[int], *, capacity: int, least_batches: int) -> Bins:
    """Algorithm 1 of arXiv 2505.24298, for comparison: longest first; a new batch while there are fewer than
    `least_batches` or where none has room, else into the one with the fewest sequences.
    """
    bins: Bins = []
    tokens: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda one: -lengths[one]):
        fitting = [number for number, held in enumerate(tokens) if held + lengths[place] <= capacity]
        if len(bins) < least_batches or not fitting:
            bins.append([place])
            tokens.append(lengths[place])
        else:
            number = min(fitting, key=lambda one: len(bins[one]))
            bins[number].append(place)
            tokens[number] += lengths[place]
    return bins


def fixed_count(sequences: int, *, count: int) -> Bins:
    """`count` microbatches of equally many sequences (give or take one), in the given order: for comparison."""
    edges = [sequences * number // count for number in range(count + 1)]
    return [list(range(start, end)) for start, end in pairwise(edges)]


def lockstep_flops(sizes: Sequence[Size], dealt: Sequence[Bins]) -> float:
    """What the ranks wait for: the sum over microbatches of the most expensive rank."""
    return sum(max(flops_of(sizes, one) for one in abreast) for abreast in zip(*dealt, strict=True))


def flops_imbalance(sizes: Sequence[Size], dealt: Sequence[Bins]) -> float:
    """Lockstep cost over the mean cost of a rank: 1 is perfect."""
    total = sum(size.flops for size in sizes)
    return lockstep_flops(sizes, dealt) * len(dealt) / total if total else 1.0


def bin_use(sizes: Sequence[Size], dealt: Sequence[Bins], *, token_budget: int) -> float:
    """Tokens over the budget of the microbatches used."""
    return sum(size.tokens for size in sizes) / (token_budget * sum(len(bins) for bins in dealt))
