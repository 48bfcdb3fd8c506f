from __future__ import annotations

import pytest

from trainers.examples import Example
from trainers.sft.train_loop import distribute_examples


@pytest.mark.parametrize("num_ranks", [1, 2, 5])
def test_examples_are_distributed_once_with_equal_counts_under_the_budget(num_ranks: int) -> None:
    examples = [Example(tokens=[number] * (number + 2), target_positions=[1]) for number in range(12)]
    shares = distribute_examples(examples, num_ranks=num_ranks, token_budget=20)
    assert len({len(share) for share in shares}) == 1
    dealt = [one for share in shares for packed in share for one in packed if one.target_positions]
    assert sorted(one.tokens[0] for one in dealt) == list(range(12))
    assert all(sum(len(one.tokens) for one in packed) <= 20 for share in shares for packed in share)
