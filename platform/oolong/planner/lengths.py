"""Completion lengths of a simulated run."""

from __future__ import annotations

import math
import random
from functools import cache
from statistics import NormalDist

from oolong.planner.types import Lengths


class LengthSampler:
    """Draws completion lengths."""

    def __init__(self, lengths: Lengths, seed: int) -> None:
        self._lengths, self._random = lengths, random.Random(seed)
        self._location = cut_lognormal_location(lengths.mean, spread=lengths.spread, limit=lengths.limit)

    def draw(self) -> int:
        drawn = math.exp(self._random.gauss(self._location, self._lengths.spread))
        return max(1, min(self._lengths.limit, round(drawn)))


@cache
def cut_lognormal_location(mean: float, *, spread: float, limit: int) -> float:
    """Location μ of the lognormal X with E[min(X, limit)] = `mean`: the cut lowers the mean."""
    low, high = math.log(mean) - 4 * spread**2 - 1, math.log(mean) + 4
    for _ in range(60):
        middle = (low + high) / 2
        edge = (math.log(limit) - middle) / spread
        below = math.exp(middle + spread**2 / 2) * NormalDist().cdf(edge - spread)
        cut_mean = below + limit * (1 - NormalDist().cdf(edge))
        low, high = (middle, high) if cut_mean < mean else (low, middle)
    return (low + high) / 2
