from __future__ import annotations

from pathlib import Path

import pytest

from oolong.contracts.attempt import CanonicalRow
from trainers.dataset import InvalidDataset
from trainers.sft.examples import batch_at, tokenize_examples


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


def test_each_epoch_has_every_row_once_in_a_new_order() -> None:
    passes = [
        [
            number
            for step in range(first, first + 5)
            for number in batch_at(step, rows=20, batch_size=4, seed=1)
        ]
        for first in (0, 5)
    ]
    assert sorted(passes[0]) == sorted(passes[1]) == list(range(20)) and passes[0] != passes[1]


def test_batch_may_span_two_epochs_and_depends_on_its_step_only() -> None:
    batches = [batch_at(step, rows=10, batch_size=4, seed=1) for step in range(5)]
    flat = [number for batch in batches for number in batch]
    assert sorted(flat[:10]) == sorted(flat[10:]) == list(range(10))
    assert batch_at(2, rows=10, batch_size=4, seed=1) == batches[2]
    assert batch_at(2, rows=10, batch_size=4, seed=2) != batches[2]
