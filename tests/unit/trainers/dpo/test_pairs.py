from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oolong.contracts.attempt import CanonicalRow
from tests.support.preference_rows import preference_rows
from trainers.dataset import InvalidDataset
from trainers.dpo.pairs import CHUNK_PAIRS, Pair, chunks_of, distribute_pairs, tokenize_pairs
from trainers.examples import Example
from trainers.models.flops import DEFAULT_FLOPS


def row(**fields: Any) -> CanonicalRow:
    messages = [{"role": "user", "content": "a5"}]
    return CanonicalRow(**{"row": 3, "split": "train", "messages": messages, "answer": "", **fields})


def said(*texts: str) -> list[dict[str, str]]:
    roles = ("assistant", "user")
    return [{"role": roles[number % 2], "content": text} for number, text in enumerate(texts)]


def text_of_targets(example: Example, model: Path) -> str:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(model).decode(
        [example.tokens[one] for one in example.target_positions]
    )


def test_targets_are_the_completion_and_its_end_token(tiny_model: Path) -> None:
    [pair] = tokenize_pairs([row(chosen=said("5"), rejected=said("66"))], tiny_model)
    assert text_of_targets(pair.chosen, tiny_model) == "5<|end|>"
    assert text_of_targets(pair.rejected, tiny_model) == "66<|end|>"
    assert pair.chosen.tokens[:4] == pair.rejected.tokens[:4] and pair.chosen.target_positions == [4, 5]


def test_of_a_conversation_only_the_assistants_turns_are_targets(tiny_model: Path) -> None:
    [pair] = tokenize_pairs(
        [row(chosen=said("5", "sure?", "yes"), rejected=said("5", "sure?", "no"))], tiny_model
    )
    assert text_of_targets(pair.chosen, tiny_model) == "5<|end|>yes<|end|>"
    assert text_of_targets(pair.rejected, tiny_model) == "5<|end|>no<|end|>"
    assert len(pair.chosen.tokens) > len(pair.chosen.target_positions) + len("a5") + len("sure?")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (row(), "row 3 of split 'train' has no pair of completions"),
        (
            row(chosen=said("7" * 2000), rejected=said("1")),
            r"row 3, column chosen: 200\d tokens, but the model",
        ),
        (row(chosen=said("1"), rejected=said("1")), "row 3: chosen and rejected have the same tokens"),
    ],
)
def test_an_unusable_row_is_named(tiny_model: Path, given: CanonicalRow, says: str) -> None:
    with pytest.raises(InvalidDataset, match=says):
        tokenize_pairs([given], tiny_model)


@pytest.mark.parametrize("num_ranks", [1, 2, 5])
def test_pairs_are_distributed_once_and_never_divided(tiny_model: Path, num_ranks: int) -> None:
    pairs = tokenize_pairs(preference_rows(7), tiny_model)
    shares = distribute_pairs(pairs, num_ranks=num_ranks, token_budget=40, flops=DEFAULT_FLOPS)
    assert len({len(share) for share in shares}) == 1
    positions = [pair.position for share in shares for packed in share for pair in packed]
    assert sorted(one for one in positions if one >= 0) == list(range(7))
    for packed in (microbatch for share in shares for microbatch in share):
        assert sum(len(side.tokens) for pair in packed for side in pair.examples) <= 40


def test_a_chunk_is_whole_wherever_a_run_resumes(tiny_model: Path) -> None:
    [one] = tokenize_pairs(preference_rows(1), tiny_model)
    pairs = [Pair(number, one.chosen, one.rejected) for number in range(3 * CHUNK_PAIRS)]
    found = chunks_of(pairs, {CHUNK_PAIRS + 3, 2 * CHUNK_PAIRS})
    assert [(len(chunk), chunk[0].position) for chunk in found] == [
        (CHUNK_PAIRS, CHUNK_PAIRS), (CHUNK_PAIRS, 2 * CHUNK_PAIRS),
    ]  # fmt: skip
