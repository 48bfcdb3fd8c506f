"""The seeded order of prompts. Each row is sampled once per data epoch; a restored cursor continues without a gap."""

from __future__ import annotations

import random
from dataclasses import dataclass

import msgspec


class PromptCursor(msgspec.Struct, frozen=True, kw_only=True):
    """`position` prompts of data epoch `epoch` have been sampled."""

    epoch: int = 0
    position: int = 0


@dataclass(frozen=True, kw_only=True)
class SampledPrompt:
    """A row of a data epoch. A row comes once per epoch, so `repeat` stays 0 until a sampler repeats rows."""

    epoch: int
    row: int
    repeat: int = 0

    @property
    def group_id(self) -> str:
        return f"{self.epoch}-{self.row}-{self.repeat}"


class PromptOrder:
    """Endless: each data epoch is a shuffle of all rows, seeded by the run's seed and the epoch's number."""

    def __init__(self, rows: list[int], *, seed: int, cursor: PromptCursor | None = None) -> None:
        if not rows:
            raise ValueError("there are no rows to sample prompts from; choose another dataset.split")
        self._rows = rows
        self._seed = seed
        self.cursor = cursor or PromptCursor()
        self._shuffled = self._shuffle(self.cursor.epoch)

    def next(self) -> SampledPrompt:
        if self.cursor.position == len(self._rows):
            self.cursor = PromptCursor(epoch=self.cursor.epoch + 1)
            self._shuffled = self._shuffle(self.cursor.epoch)
        cursor = self.cursor
        self.cursor = PromptCursor(epoch=cursor.epoch, position=cursor.position + 1)
        return SampledPrompt(epoch=cursor.epoch, row=self._shuffled[cursor.position])

    def _shuffle(self, epoch: int) -> list[int]:
        rows = list(self._rows)
        random.Random(f"{self._seed}/{epoch}").shuffle(rows)
        return rows
