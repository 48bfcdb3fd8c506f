"""Completion lengths of a simulated run."""

from __future__ import annotations

import math
import random
from statistics import NormalDist

from oolong.planner.types import Lengths


class LengthSampler:
    """Draws completion lengths. The location of the lognormal is solved for, because the cut lowers the mean."""

    def __init__(self, lengths: Lengths, seed: int) -> None:
        self._lengths, self._random = lengths, random.Random(seed)
        low, high = math.log(lengths.mean) - 4 * lengths.spread**2 - 1, math.log(lengths.mean) + 4
        for _ in range(60):
            self._location = (low + high) / 2
            low, high = (self._location, high) if self._cut_mean() < lengths.mean else (low, self._location)

    def draw(self) -> int:
        drawn = math.exp(self._random.gauss(self._location, self._lengths.spread))
        return max(1, min(self._lengths.limit, round(drawn)))

    def _cut_mean(self) -> float:
        """E[min(X, limit)] of X lognormal."""
        spread, limit = self._lengths.spread, self._lengths.limit
        edge = (math.log(limit) - self._location) / spread
        below = math.exp(self._location + spread**2 / 2) * NormalDist().cdf(edge - spread)
        return below + limit * (1 - NormalDist().cdf(edge))
