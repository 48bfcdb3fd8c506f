"""The seeded order of prompts. Each row of a source is sampled once per data epoch of that source; a restored cursor
continues without a gap."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec


class PromptCursor(msgspec.Struct, frozen=True, kw_only=True):
    """`position` prompts of data epoch `epoch` have been sampled from the source."""

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


@dataclass(frozen=True)
class PromptSource:
    """Rows that share a weight: the whole split, or those of one source where the spec weights the sources."""

    rows: list[int]
    weight: float = 1.0


def one_source(rows: Iterable[int]) -> dict[str, PromptSource]:
    """All rows alike, as a spec without weights has them."""
    return {"": PromptSource(list(rows))}


class PromptOrder:
    """Endless. Sources take turns in proportion to their weights; within a source each data epoch is a shuffle of its
    rows, seeded by the run's seed, the source's name and the epoch's number."""

    def __init__(
        self,
        sources: Mapping[str, PromptSource],
        *,
        seed: int,
        cursors: Mapping[str, PromptCursor] | None = None,
    ) -> None:
        """`cursors` has all of the sources. Raises ValueError for a source without rows."""
        if not sources or not all(source.rows for source in sources.values()):
            raise ValueError("there are no rows to sample prompts from; choose another dataset.split")
        self._sources = {
            name: _SourceOrder(name, source, seed=seed, cursor=cursors[name] if cursors else PromptCursor())
            for name, source in sources.items()
        }

    @property
    def cursors(self) -> dict[str, PromptCursor]:
        return {name: source.cursor for name, source in self._sources.items()}

    def next(self) -> SampledPrompt:
        return min(self._sources.values(), key=_SourceOrder.next_turn).next()


class _SourceOrder:
    def __init__(self, name: str, source: PromptSource, *, seed: int, cursor: PromptCursor) -> None:
        self._rows = source.rows
        self._weight = source.weight
        self._seed = f"{seed}/{name}" if name else str(seed)
        self.cursor = cursor
        self._shuffled = self._shuffle(cursor.epoch)

    def next_turn(self) -> float:
        """When this source is due: after n prompts of weight w, at (n + 1/2) / w (the Sainte-Laguë method)."""
        sampled = self.cursor.epoch * len(self._rows) + self.cursor.position
        return (sampled + 0.5) / self._weight

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
