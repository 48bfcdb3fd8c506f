"""The order in which prompts are drawn."""

from __future__ import annotations

import msgspec
import pytest

from gpu_agents.rollout.controller.prompt_order import PromptCursor, PromptOrder


def draws(order: PromptOrder, number: int) -> list[str]:
    return [order.next().group_id for _ in range(number)]


def test_each_data_epoch_draws_every_row_once_in_its_own_order() -> None:
    order = PromptOrder(list(range(20)), seed=3)
    first, second = draws(order, 20), draws(order, 20)
    assert sorted(first) == sorted(f"0-{row}-0" for row in range(20))
    assert sorted(second) == sorted(f"1-{row}-0" for row in range(20))
    assert [d.split("-")[1] for d in first] != [d.split("-")[1] for d in second]


def test_the_same_seed_gives_the_same_order_and_another_seed_another() -> None:
    assert draws(PromptOrder(list(range(50)), seed=1), 80) == draws(PromptOrder(list(range(50)), seed=1), 80)
    assert draws(PromptOrder(list(range(50)), seed=1), 50) != draws(PromptOrder(list(range(50)), seed=2), 50)


@pytest.mark.parametrize("drawn", [0, 1, 19, 20, 21, 57])
def test_a_restored_cursor_goes_on_without_gap_or_repeat(drawn: int) -> None:
    whole = draws(PromptOrder(list(range(20)), seed=9), 60)
    order = PromptOrder(list(range(20)), seed=9)
    draws(order, drawn)
    cursor = msgspec.msgpack.decode(msgspec.msgpack.encode(order.cursor), type=PromptCursor)
    assert draws(PromptOrder(list(range(20)), seed=9, cursor=cursor), 60 - drawn) == whole[drawn:]


def test_no_rows_is_an_error_that_names_the_field() -> None:
    with pytest.raises(ValueError, match=r"dataset\.split"):
        PromptOrder([], seed=1)
