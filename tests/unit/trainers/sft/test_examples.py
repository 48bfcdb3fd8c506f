from __future__ import annotations

from pathlib import Path

import pytest

from oolong.contracts.attempt import CanonicalRow
from trainers.dataset import InvalidDataset
from trainers.sft.examples import tokenize_examples


def row(number: int, completion: str | None) -> CanonicalRow:
    return CanonicalRow(
        row=number,
        split="sft",
        messages=[{"role": "user", "content": "a5 b7"}],
        answer="12",
        completion=completion,
    )


def test_targets_are_completion_and_end_token(tiny_model: Path) -> None:
    [example] = tokenize_examples([row(0, "12")], tiny_model)
    user, assistant, end = 258, 259, 257
    assert example.tokens[0] == user and example.tokens[6] == assistant and example.tokens[-1] == end
    assert len(example.tokens) == 1 + len("a5 b7") + 1 + len("12") + 1
    assert example.target_positions == [7, 8, 9]


def test_row_without_completion_is_rejected_by_number(tiny_model: Path) -> None:
    with pytest.raises(InvalidDataset, match="row 17 of split 'sft' has no completion"):
        tokenize_examples([row(0, "12"), row(17, None)], tiny_model)


def test_row_longer_than_the_model_is_rejected_by_number(tiny_model: Path) -> None:
    with pytest.raises(InvalidDataset, match=r"row 3 has 2\d{3} tokens, but the model supports 1024"):
        tokenize_examples([row(3, "7" * 2000)], tiny_model)
