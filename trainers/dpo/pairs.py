"""Preference pairs as token sequences, and their distribution over ranks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from oolong.contracts.attempt import CanonicalRow
from trainers.dataset import InvalidDataset
from trainers.distributed.sequence_packing import SequenceSize, pack_microbatches
from trainers.examples import Example
from trainers.models.flops import ForwardFlops

CHUNK_PAIRS = 256  # enough for full microbatches on every rank


@dataclass(frozen=True)
class Pair:
    """Two conversations that begin with the same prompt."""

    position: int  # in the list of pairs; -1 for padding, whose loss does not count
    chosen: Example
    rejected: Example

    @property
    def examples(self) -> tuple[Example, Example]:
        return self.chosen, self.rejected


def tokenize_pairs(rows: Sequence[CanonicalRow], model_directory: Path) -> list[Pair]:
    """Render both sides of every row with the model's chat template. Raises InvalidDataset with the row."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model_directory, local_files_only=True)
    pairs = []
    for position, row in enumerate(rows):
        if row.chosen is msgspec.UNSET or row.rejected is msgspec.UNSET:
            raise InvalidDataset(
                f"row {row.row} of split {row.split!r} has no pair of completions; map a chosen and a rejected "
                "column, or choose a split whose rows have them"
            )
        chosen, rejected = (
            _tokenize(tokenizer, row, completion, side)
            for side, completion in (("chosen", row.chosen), ("rejected", row.rejected))
        )
        if chosen == rejected:
            raise InvalidDataset(
                f"row {row.row}: chosen and rejected have the same tokens, so nothing is preferred; remove the row"
            )
        pairs.append(Pair(position, chosen, rejected))
    return pairs


def _tokenize(tokenizer: Any, row: CanonicalRow, completion: list[dict[str, str]], side: str) -> Example:
    """Prompt and completion as rollouts would see them: the targets are the assistant's turns behind the prompt, each
    with its end token."""
    messages = [*row.messages, *completion]
    tokens: list[int] = []
    targets: list[int] = []
    for number in range(len(row.messages), len(messages)):
        if messages[number]["role"] != "assistant":
            continue
        rendered = tokenizer.apply_chat_template(
            messages[:number], add_generation_prompt=True, tokenize=True, return_dict=False
        )
        if rendered[: len(tokens)] != tokens:
            raise InvalidDataset(
                f"row {row.row}, column {side}: before message {number - len(row.messages) + 1} the model's chat "
                "template renders the messages before it differently from how they were written; shorten the "
                "completion to one message, or use a model whose template leaves earlier turns as they are"
            )
        turn = [
            *tokenizer.encode(messages[number]["content"], add_special_tokens=False), tokenizer.eos_token_id
        ]  # fmt: skip
        targets += range(len(rendered), len(rendered) + len(turn))
        tokens = [*rendered, *turn]
    max_length = int(tokenizer.model_max_length)
    if len(tokens) > max_length:
        raise InvalidDataset(
            f"row {row.row}, column {side}: {len(tokens)} tokens, but the model supports {max_length}; shorten it"
        )
    return Example(tokens, targets)


def chunks_of(pairs: Sequence[Pair], wanted: Collection[int]) -> list[list[Pair]]:
    """Consecutive parts of `pairs` that hold one of the wanted positions.

    A part is prepared as a whole: its pairs share microbatches, so that their results are bit-equal in each attempt.
    """
    parts = (list(pairs[start : start + CHUNK_PAIRS]) for start in range(0, len(pairs), CHUNK_PAIRS))
    return [part for part in parts if any(pair.position in wanted for pair in part)]


def distribute_pairs(
    pairs: Sequence[Pair], *, num_ranks: int, token_budget: int, flops: ForwardFlops
) -> list[list[list[Pair]]]:
    """[ranks][microbatches][pairs], packed by `trainers.distributed.sequence_packing`; a pair is never divided.

    Empty microbatches get a short padding pair, because every forward pass is a collective.
    """
    sizes = [
        SequenceSize(
            sum(len(side.tokens) for side in pair.examples),
            sum(flops.of_sequence(len(side.tokens), len(side.target_positions)) for side in pair.examples),
        )
        for pair in pairs
    ]
    short = Example(pairs[0].chosen.tokens[:2], target_positions=[1])
    padding = Pair(-1, short, short)
    return [
        [[pairs[index] for index in indices] or [padding] for indices in microbatches]
        for microbatches in pack_microbatches(sizes, num_ranks=num_ranks, token_budget=token_budget)
    ]
