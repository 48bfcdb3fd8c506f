"""Demonstrations as token sequences."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from oolong.contracts.attempt import CanonicalRow
from trainers.dataset import InvalidDataset
from trainers.examples import Example


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
