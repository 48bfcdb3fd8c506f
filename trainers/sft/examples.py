"""Demonstrations as token sequences, and the order in which they are seen."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from oolong.contracts.attempt import CanonicalRow
from trainers.data import DatasetUnusable


@dataclass(frozen=True)
class Example:
    """A rendered prompt, its completion and the end token; the last two are learned."""

    tokens: list[int]
    targets_at: list[int]  # positions of completion and end token


def tokenize_examples(rows: Sequence[CanonicalRow], model_directory: Path) -> list[Example]:
    """Render prompts with the model's chat template, the generation prompt included, as the rollouts do."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model_directory, local_files_only=True)
    longest = int(tokenizer.model_max_length)
    examples = []
    for row in rows:
        if not row.completion:
            raise DatasetUnusable(
                f"row {row.row} of split {row.split!r} has no completion; map a completion column, or choose a split "
                "whose rows have one"
            )
        prompt = tokenizer.apply_chat_template(
            row.messages, add_generation_prompt=True, tokenize=True, return_dict=False
        )
        completion = [*tokenizer.encode(row.completion, add_special_tokens=False), tokenizer.eos_token_id]
        if len(prompt) + len(completion) > longest:
            raise DatasetUnusable(
                f"row {row.row} has {len(prompt) + len(completion)} tokens, the model takes {longest}; shorten it"
            )
        examples.append(
            Example(
                tokens=[*prompt, *completion],
                targets_at=list(range(len(prompt), len(prompt) + len(completion))),
            )
        )
    return examples


def batch_at(step: int, *, rows: int, batch_size: int, seed: int) -> list[int]:
    """Row numbers of the batch of `step` (0-based): a new seeded order in every pass over the rows.

    A pure function of the step, so that a resumed run sees what it would have seen.
    """
    first = step * batch_size
    return [_order(place // rows, rows, seed)[place % rows] for place in range(first, first + batch_size)]


_orders: dict[tuple[int, int, int], list[int]] = {}


def _order(epoch: int, rows: int, seed: int) -> list[int]:
    key = (epoch, rows, seed)
    if key not in _orders:
        order = list(range(rows))
        random.Random(f"sft/{seed}/{epoch}").shuffle(order)
        if len(_orders) > 1:  # a batch may straddle two passes; older ones are not asked for again
            _orders.pop(next(iter(_orders)))
        _orders[key] = order
    return _orders[key]
