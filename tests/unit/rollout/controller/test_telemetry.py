"""Which trajectories of a batch are sampled, and what is measured against which bound."""

from __future__ import annotations

import hashlib

from gpu_agents.rollout.controller.staleness_stats import BatchStaleness, ConsumedTotals
from gpu_agents.rollout.controller.telemetry import (
    RECORDED_TOKENS_PER_STEP,
    length_bucket,
    lengths,
    recorded_trajectories,
    sample_trajectories,
)
from oolong.contracts.rollout import Group, Trajectory


def trajectory(reward: float, *, length: int = 4, versions: int = 1) -> Trajectory:
    return Trajectory(
        token_ids=[1] * length, loss_mask=[1] * length, behavior_logprobs=[0.0] * length,
        policy_versions=[n % versions for n in range(length)], finish_reason="stop", reward=reward,
    )  # fmt: skip


def group(name: str, *trajectories: Trajectory) -> Group:
    return Group(
        group_id=name, row=0, prompt_token_ids=[1], prompt="p", answer="a", trajectories=list(trajectories)
    )


def picked(groups: list[Group]) -> dict[tuple[str, int], list[str]]:
    return {(s.group.group_id, s.index): s.reasons for s in sample_trajectories(groups)}


def test_two_groups_are_sampled_whole_and_the_extremes_of_the_batch_beside_them() -> None:
    names = sorted((f"0-{n}-0" for n in range(6)), key=lambda name: hashlib.sha256(name.encode()).digest())
    groups = [group(name, trajectory(0.5), trajectory(0.5)) for name in names[:2]]
    groups += [
        group(names[2], trajectory(0.5), trajectory(9.0)),
        group(names[3], trajectory(-9.0), trajectory(0.5)),
        group(names[4], trajectory(0.5, length=99), trajectory(0.5, versions=3)),
        group(names[5], trajectory(0.5), trajectory(0.5)),
    ]
    expected = {
        (names[0], 0): ["group"], (names[0], 1): ["group"], (names[1], 0): ["group"], (names[1], 1): ["group"],
        (names[2], 1): ["highest_reward"], (names[3], 0): ["lowest_reward"], (names[4], 0): ["longest"],
        (names[4], 1): ["widest_span"],
    }  # fmt: skip
    assert picked(groups) == expected
    assert picked(groups[::-1]) == expected  # the order of the batch does not matter


def test_of_equals_the_one_of_the_smallest_lot_stands_for_all() -> None:
    groups = [group(f"0-{n}-0", trajectory(1.0)) for n in range(5)]
    assert [why for why in picked(groups).values() if len(why) > 1] == [
        ["group", "highest_reward", "lowest_reward", "longest", "widest_span"]
    ]
    assert picked([]) == {}


def test_the_trainer_reports_its_values_for_sampled_trajectories_up_to_a_limit() -> None:
    groups = [group(f"0-{n}-0", trajectory(0.5), trajectory(1.0)) for n in range(3)]
    assert recorded_trajectories(groups) == list(picked(groups))
    length = RECORDED_TOKENS_PER_STEP // 4
    long = [group("0-0-0", *(trajectory(0.5, length=length) for _ in range(6)))]
    assert recorded_trajectories(long) == [("0-0-0", member) for member in range(4)]


def test_each_batch_is_measured_against_the_bound_of_its_take() -> None:
    batch = BatchStaleness(by_trajectory={1: 3, 4: 2}, by_token={}, spans=[], interrupted=0)
    totals = ConsumedTotals()
    totals.add(batch, bound=4)
    assert totals.exceeded == 0
    totals.add(batch, bound=2)  # lowered since: what was trained on before is not over it
    assert (totals.exceeded, totals.by_trajectory) == (2, {1: 6, 4: 4})


def test_lengths_are_counted_in_two_buckets_to_a_doubling() -> None:
    assert [length_bucket(n) for n in (0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 100, 1000)] == [
        0, 1, 2, 3, 4, 4, 6, 6, 8, 8, 12, 96, 768,
    ]  # fmt: skip
    batch = [
        group("a", trajectory(0.0, length=5), trajectory(0.0, length=4)),
        group("b", trajectory(0.0, length=9)),
    ]
    assert lengths(batch) == {4: 2, 8: 1}
