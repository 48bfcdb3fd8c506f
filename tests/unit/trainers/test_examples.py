from __future__ import annotations

from trainers.examples import batch_at


def test_each_epoch_has_every_row_once_in_a_new_order() -> None:
    passes = [
        [
            number
            for step in range(first, first + 5)
            for number in batch_at(step, rows=20, batch_size=4, seed=1, kind="sft")
        ]
        for first in (0, 5)
    ]
    assert sorted(passes[0]) == sorted(passes[1]) == list(range(20)) and passes[0] != passes[1]


def test_batch_may_span_two_epochs_and_depends_on_its_step_only() -> None:
    batches = [batch_at(step, rows=10, batch_size=4, seed=1, kind="sft") for step in range(5)]
    flat = [number for batch in batches for number in batch]
    assert sorted(flat[:10]) == sorted(flat[10:]) == list(range(10))
    assert batch_at(2, rows=10, batch_size=4, seed=1, kind="sft") == batches[2]
    assert batch_at(2, rows=10, batch_size=4, seed=2, kind="sft") != batches[2]
