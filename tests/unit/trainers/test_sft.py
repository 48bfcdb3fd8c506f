from __future__ import annotations

from pathlib import Path

import pytest

from oolong.contracts.attempt import CanonicalRow
from trainers.dataset import InvalidDataset, read_rows
from trainers.sft.examples import Example, batch_at, tokenize_examples
from trainers.sft.train_loop import distribute_examples


def row(number: int, completion: str | None) -> CanonicalRow:
    return CanonicalRow(
        row=number,
        split="sft",
        messages=[{"role": "user", "content": "a5 b7"}],
        answer="12",
        completion=completion,
    )


def test_only_completion_and_end_token_are_learned(tiny_model: Path) -> None:
    [example] = tokenize_examples([row(0, "12")], tiny_model)
    user, assistant, end = 258, 259, 257
    assert example.tokens[0] == user and example.tokens[6] == assistant and example.tokens[-1] == end
    assert len(example.tokens) == 1 + len("a5 b7") + 1 + len("12") + 1
    assert example.target_positions == [7, 8, 9]


def test_a_row_without_a_completion_is_refused_by_number(tiny_model: Path) -> None:
    with pytest.raises(InvalidDataset, match="row 17 of split 'sft' has no completion"):
        tokenize_examples([row(0, "12"), row(17, None)], tiny_model)


def test_a_row_longer_than_the_model_is_refused_by_number(tiny_model: Path) -> None:
    with pytest.raises(InvalidDataset, match=r"row 3 has 2\d{3} tokens, but the model supports 1024"):
        tokenize_examples([row(3, "7" * 2000)], tiny_model)


def test_every_pass_sees_each_row_once_in_another_order() -> None:
    passes = [
        [
            number
            for step in range(first, first + 5)
            for number in batch_at(step, rows=20, batch_size=4, seed=1)
        ]
        for first in (0, 5)
    ]
    assert sorted(passes[0]) == sorted(passes[1]) == list(range(20)) and passes[0] != passes[1]


def test_a_batch_may_straddle_two_passes_and_follows_from_its_step_alone() -> None:
    batches = [batch_at(step, rows=10, batch_size=4, seed=1) for step in range(5)]
    flat = [number for batch in batches for number in batch]
    assert sorted(flat[:10]) == sorted(flat[10:]) == list(range(10))
    assert batch_at(2, rows=10, batch_size=4, seed=1) == batches[2]
    assert batch_at(2, rows=10, batch_size=4, seed=2) != batches[2]


@pytest.mark.parametrize("num_ranks", [1, 2, 5])
def test_examples_are_dealt_once_with_equal_counts_under_the_budget(num_ranks: int) -> None:
    examples = [Example(tokens=[number] * (number + 2), target_positions=[1]) for number in range(12)]
    shares = distribute_examples(examples, num_ranks=num_ranks, token_budget=20)
    assert len({len(share) for share in shares}) == 1
    dealt = [one for share in shares for packed in share for one in packed if one.target_positions]
    assert sorted(one.tokens[0] for one in dealt) == list(range(12))
    assert all(sum(len(one.tokens) for one in packed) <= 20 for share in shares for packed in share)


def test_a_split_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"row":0,"split":"train","messages":[],"answer":""}\n')
    with pytest.raises(InvalidDataset, match="no rows in split 'sft'"):
        read_rows(tmp_path / "rows.jsonl", split="sft")


def test_a_broken_line_is_named_by_its_number(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"row":0,"split":"sft","messages":[],"answer":""}\n{"row":\n')
    with pytest.raises(InvalidDataset, match="line 1"):
        read_rows(tmp_path / "rows.jsonl", split="sft")
