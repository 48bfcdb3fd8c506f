"""Demonstrations as token sequences, and their order."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from oolong.contracts.attempt import CanonicalRow
from trainers.dataset import InvalidDataset


@dataclass(frozen=True)
class Example:
    """A rendered prompt, its completion and the end token. The loss covers completion and end token."""

    tokens: list[int]
    target_positions: list[int]  # positions of completion and end token


def tokenize_examples(rows: Sequence[CanonicalRow], model_directory: Path) -> list[Example]:
    """Render prompts with the model's chat template including the generation prompt, as rollouts do."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model_directory, local_files_only=True)
    max_length = int(tokenizer.model_max_length)
    examples = []
    for row in rows:
        if not row.completion:
            raise InvalidDataset(
                f"row {row.row} of split {row.split!r} has no completion; map a completion column, or choose a split "
                "whose rows have one"
            )
        prompt = tokenizer.apply_chat_template(
            row.messages, add_generation_prompt=True, tokenize=True, return_dict=False
        )
        completion = [*tokenizer.encode(row.completion, add_special_tokens=False), tokenizer.eos_token_id]
        if len(prompt) + len(completion) > max_length:
            raise InvalidDataset(
                f"row {row.row} has {len(prompt) + len(completion)} tokens, but the model supports "
                f"{max_length}; shorten it"
            )
        examples.append(
            Example(
                tokens=[*prompt, *completion],
                target_positions=list(range(len(prompt), len(prompt) + len(completion))),
            )
        )
    return examples


def batch_at(step: int, *, rows: int, batch_size: int, seed: int) -> list[int]:
    """Return the row indices of the batch of `step` (0-based). Rows are reshuffled by the seed in every epoch.

    A pure function of the step, so that a resumed run continues with the same batches.
    """
    first = step * batch_size
    return [_order(index // rows, rows, seed)[index % rows] for index in range(first, first + batch_size)]


_orders: dict[tuple[int, int, int], list[int]] = {}


def _order(epoch: int, rows: int, seed: int) -> list[int]:
    key = (epoch, rows, seed)
    if key not in _orders:
        order = list(range(rows))
        random.Random(f"sft/{seed}/{epoch}").shuffle(order)
        if len(_orders) > 1:  # a batch spans at most two epochs; older ones are not needed again
            _orders.pop(next(iter(_orders)))
        _orders[key] = order
    return _orders[key]
