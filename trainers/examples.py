"""Token sequences with the positions that are trained on, and the order of a dataset's rows."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Example:
    """A rendered prompt and what follows it. The loss covers the positions of completions and their end tokens."""

    tokens: list[int]
    target_positions: list[int]  # positions of completion and end token


def batch_at(step: int, *, rows: int, batch_size: int, seed: int, kind: str) -> list[int]:
    """Return the row indices of the batch of `step` (0-based). Rows are reshuffled by the seed in every epoch.

    A pure function of the step, so that a resumed run continues with the same batches.
    """
    first = step * batch_size
    return [
        epoch_order(index // rows, rows, seed, kind=kind)[index % rows]
        for index in range(first, first + batch_size)
    ]


_orders: dict[tuple[int, int, int, str], list[int]] = {}


def epoch_order(epoch: int, rows: int, seed: int, *, kind: str) -> list[int]:
    """The row indices in the order of this epoch."""
    key = (epoch, rows, seed, kind)
    if key not in _orders:
        order = list(range(rows))
        random.Random(f"{kind}/{seed}/{epoch}").shuffle(order)
        if len(_orders) > 1:  # a batch spans at most two epochs; older ones are not needed again
            _orders.pop(next(iter(_orders)))
        _orders[key] = order
    return _orders[key]
