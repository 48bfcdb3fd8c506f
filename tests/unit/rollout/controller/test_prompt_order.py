"""The order in which prompts are drawn."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from gpu_agents.rollout.controller.prompt_order import PromptCursor, PromptOrder, PromptSource, one_source


def draws(order: PromptOrder, number: int) -> list[str]:
    return [order.next().group_id for _ in range(number)]


def test_each_data_epoch_draws_every_row_once_in_its_own_order() -> None:
    order = PromptOrder(one_source(range(20)), seed=3)
    first, second = draws(order, 20), draws(order, 20)
    assert sorted(first) == sorted(f"0-{row}-0" for row in range(20))
    assert sorted(second) == sorted(f"1-{row}-0" for row in range(20))
    assert [d.split("-")[1] for d in first] != [d.split("-")[1] for d in second]


def test_the_same_seed_gives_the_same_order_and_another_seed_another() -> None:
    def first(number: int, *, seed: int) -> list[str]:
        return draws(PromptOrder(one_source(range(50)), seed=seed), number)

    assert first(80, seed=1) == first(80, seed=1)
    assert first(50, seed=1) != first(50, seed=2)


MIXED = {
    "math": PromptSource(list(range(20)), 3.0),
    "code": PromptSource(list(range(20, 27)), 1.0),
    "chat": PromptSource(list(range(27, 60)), 0.5),
}


def source_of(group_id: str) -> str:
    row = int(group_id.split("-")[1])
    return next(name for name, source in MIXED.items() if row in source.rows)


@pytest.mark.parametrize("number", [9, 45, 450])
def test_sources_are_sampled_in_proportion_to_their_weights_whatever_their_sizes(number: int) -> None:
    drawn = Counter(map(source_of, draws(PromptOrder(MIXED, seed=4), number)))
    assert drawn == {"math": number * 6 // 9, "code": number * 2 // 9, "chat": number // 9}


def test_a_weighted_source_comes_to_its_next_epoch_alone_and_no_group_twice() -> None:
    drawn = draws(PromptOrder(MIXED, seed=4), 450)
    assert len(set(drawn)) == 450
    epochs = {name: {int(g.split("-")[0]) for g in drawn if source_of(g) == name} for name in MIXED}
    assert {name: max(found) for name, found in epochs.items()} == {"math": 14, "code": 14, "chat": 1}


@pytest.mark.parametrize("sources", [one_source(range(20)), MIXED], ids=["one source", "three"])
@pytest.mark.parametrize("drawn", [0, 1, 19, 20, 21, 57])
def test_restored_cursors_go_on_without_gap_or_repeat(drawn: int, sources: dict[str, PromptSource]) -> None:
    whole = draws(PromptOrder(sources, seed=9), 60)
    order = PromptOrder(sources, seed=9)
    draws(order, drawn)
    cursors = msgspec.msgpack.decode(msgspec.msgpack.encode(order.cursors), type=dict[str, PromptCursor])
    assert draws(PromptOrder(sources, seed=9, cursors=cursors), 60 - drawn) == whole[drawn:]


@pytest.mark.parametrize("sources", [{}, {"math": PromptSource([])}])
def test_no_rows_is_an_error_that_names_the_field(sources: dict[str, PromptSource]) -> None:
    with pytest.raises(ValueError, match=r"dataset\.split"):
        PromptOrder(sources, seed=1)
