"""Dynamic filtering: groups without a signal leave at their submit, and others take their places."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count

import pytest
from msgspec.structs import replace as replace_fields

from gpu_agents.rewards.reward import Completion
from gpu_agents.rollout.controller.filtering import FilterConfig, FilterCounts, is_filtered
from gpu_agents.rollout.worker.config import WorkerConfig
from oolong.contracts.lifecycle import EndReason
from oolong.contracts.metrics import METRICS
from oolong.contracts.rollout import ClaimedGroup, Group, PublishedWeights
from oolong.contracts.run_spec import spec_errors
from oolong.contracts.telemetry import Histogram, Points
from tests.unit.rollout.fake_engine import FakeEngine
from tests.unit.rollout.harness import Harness
from tests.unit.rollout.simulation import (
    World,
    assert_ledger_is_true,
    engines,
    finished_group,
    new_controller,
    rules,
    usable_places,
)


def group_of(rewards: Sequence[float]) -> Group:
    claimed = ClaimedGroup(
        claim_id="c", group_id="0-0-0", row=0, prompt_token_ids=[1], prompt="", answer="",
        group_size=len(rewards), claim_version=0,
    )  # fmt: skip
    return finished_group(claimed, [0, 0], rewards=rewards)


@pytest.mark.parametrize(
    ("filter_rules", "rewards", "filtered"),
    [
        (FilterConfig(), [1, 1, 1, 1], False),
        (FilterConfig(kind="zero_variance"), [1, 1, 1, 1], True),
        (FilterConfig(kind="zero_variance"), [0.5, 0.5, 0.5, 0.4], False),
        (FilterConfig(kind="success_rate"), [1, 1, 1, 1], True),
        (FilterConfig(kind="success_rate"), [0, 0, 0, 0], True),
        (FilterConfig(kind="success_rate"), [0, 0, 0, 1], False),
        (FilterConfig(kind="success_rate"), [0.9, 0.8, 0.9, 0.7], True),
        (FilterConfig(kind="success_rate", success_score=0.8), [0.9, 0.8, 0.9, 0.7], False),
        (FilterConfig(kind="success_rate", low=0.25, high=0.75), [0, 0, 0, 1], True),
        (FilterConfig(kind="success_rate", low=0.25, high=0.75), [0, 0, 1, 1], False),
        (FilterConfig(kind="success_rate", low=0.25, high=0.75), [0, 1, 1, 1], True),
    ],
)
def test_which_groups_carry_a_signal(
    filter_rules: FilterConfig, rewards: list[float], filtered: bool
) -> None:
    assert is_filtered(filter_rules, group_of(rewards)) is filtered


def test_success_is_the_reward_functions_own_value_before_scale_and_bias() -> None:
    group = group_of([1.0, 0.0])
    scaled = [replace_fields(t, reward=10 * t.score + 1) for t in group.trajectories if t.score is not None]
    assert [t.reward for t in scaled] == [11.0, 1.0], "each a success by its reward"
    assert not is_filtered(FilterConfig(kind="success_rate"), replace_fields(group, trajectories=scaled))


def test_a_rollout_of_many_trajectories_counts_once_in_the_success_rate() -> None:
    """One of two sessions succeeded, in nine calls: 1/2, and not 9/10."""
    rewards = [1.0] * 9 + [0.0]
    group = group_of(rewards)
    calls = [replace_fields(t, rollout=int(place == 9)) for place, t in enumerate(group.trajectories)]
    sessions = replace_fields(group, trajectories=calls)
    within = FilterConfig(kind="success_rate", low=0.25, high=0.75)
    assert not is_filtered(within, sessions) and is_filtered(within, group)


def solved_or_mixed(rng: random.Random) -> Sequence[float]:
    return (1.0, 1.0) if rng.random() < 0.5 else (0.0, 1.0)


def test_filtered_groups_cost_no_places_and_every_batch_is_full_of_signal() -> None:
    """eta = 1, half of the groups filtered, 200 steps: after every version B * (eta + 1) places are usable."""
    controller = new_controller(rules(group_size=2, filter=FilterConfig(kind="zero_variance")), rows=5000)
    places: list[int] = []

    def count_places(world: World) -> None:
        assert_ledger_is_true(world.controller)
        places.append(usable_places(world.controller))

    world = World(
        controller,
        random.Random(1),
        lambda rng: 0.3 + rng.random(),
        engines(2),
        rewards=solved_or_mixed,
        after_announce=count_places,
    )
    world.run(200)
    counts = controller.state.ledger.counts()
    assert {t.reward for groups in world.trained for g in groups for t in g.trajectories} == {0.0, 1.0}
    assert all(len({t.reward for t in g.trajectories}) == 2 for groups in world.trained for g in groups)
    assert counts.trained == 800
    assert set(places) == {4 * 2}
    assert 0.45 < counts.dropped["filtered"] / counts.drawn < 0.55
    tokens = controller.state.tokens.counts()
    assert (
        tokens.dropped["filtered"] == sum(controller.state.groups.dropped.by_token["filtered"].values()) > 0
    )


def test_the_share_of_a_step_counts_the_groups_since_the_step_before() -> None:
    counts = FilterCounts()
    assert counts.fraction_since_last_step() is None
    for filtered in (True, False, False, True, True, True):
        counts.count(filtered=filtered)
    assert (counts.fraction_since_last_step(), counts.in_a_row) == (4 / 6, 3)
    counts.count(filtered=False)
    assert (counts.fraction_since_last_step(), counts.in_a_row) == (0.0, 0)


async def test_the_share_and_the_dropped_tokens_reach_the_outbox(
    new_harness: Callable[..., Harness],
    engine: FakeEngine,
    versions: Callable[[int], PublishedWeights],
) -> None:
    """Of even rows one member of two is right, of odd rows both are."""
    calls = count()

    def reward(completion: Completion) -> float:
        return float(completion.row % 2 or next(calls) % 2)

    async with new_harness(reward=reward, rollout={"filter": {"kind": "zero_variance"}}) as run:
        run.start_worker(engine.port, engine.api_key, change=one_by_one)
        await run.trainer.announce(versions(0), "none")
        for version in range(3):
            groups = await run.trainer.take(version)
            assert all(group.row % 2 == 0 for group in groups)
            await run.trainer.announce(versions(version + 1))
        lines = run.lines("controller")
        points = {
            name: value for line in lines if isinstance(line, Points) for name, value in line.values.items()
        }
        assert 0 < points["group/filtered_frac"] < 1
        assert 0 < points["staleness/dropped_token_frac"] < 1
        assert points["response_length/selection_bias"] == 1.0
        assert set(points) <= set(METRICS)
        dropped = [
            line for line in lines if isinstance(line, Histogram) and line.name == "staleness/dropped_tokens"
        ]
        assert (
            sum(sum(line.counts.values()) for line in dropped)
            <= run.controller.state.tokens.counts().dropped["filtered"]
        )
        assert dropped


def one_by_one(options: WorkerConfig) -> WorkerConfig:
    return replace(options, window=replace(options.window, max_rollouts=2))


async def test_a_run_whose_every_group_is_filtered_ends_with_that_cause(
    new_harness: Callable[..., Harness],
    engine: FakeEngine,
    versions: Callable[[int], PublishedWeights],
) -> None:
    """The scripted engine answers nothing right: every group is solved by none."""
    filtered = {"filter": {"kind": "success_rate", "max_consecutive": 20}}
    async with new_harness(rollout=filtered) as run:
        run.start_worker(engine.port, engine.api_key)
        await run.trainer.announce(versions(0), "none")
        reason, message = await asyncio.wait_for(run.server.wait_until_unrecoverable(), 600)
        assert reason is EndReason.ALL_FILTERED
        assert "filter.kind=success_rate" in message
        assert run.controller.state.ledger.counts().dropped["filtered"] >= 20
        assert_ledger_is_true(run.controller)


def test_bounds_that_leave_nothing_are_refused_with_the_field() -> None:
    document = {
        "name": "x",
        "model": {"base_model": "m"},
        "dataset": {"version": "d"},
        "rollout": {"filter": {"kind": "success_rate", "low": 0.8, "high": 0.2}},
    }
    [fault] = spec_errors(document)
    assert (fault.pointer, fault.code) == ("/rollout/filter/low", "filter_bounds")
