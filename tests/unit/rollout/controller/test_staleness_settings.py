"""Synchronous, one-step overlap and asynchronous are one mechanism at eta = 0, 1 and more; what `keep`, `drop` and
`wait` train on and what they leave out is accounted for by tokens (SEMANTICS section 3)."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from gpu_agents.rollout.controller.staleness_stats import (
    DroppedTotals,
    SelectionBias,
    fraction_over,
    measure_batch,
)
from gpu_agents.rollout.controller.telemetry import summary
from oolong.contracts.rollout import Group, Trajectory
from tests.unit.rollout.simulation import (
    World,
    assert_ledger_is_true,
    engines,
    new_controller,
    rules,
    through_bytes,
)


def bimodal(rng: random.Random) -> float:
    return 6.0 if rng.random() < 0.2 else 0.5 + rng.random()


def world_at(eta: int, *, policy: str = "wait", length=bimodal, steps: int = 60) -> World:
    controller = new_controller(rules(groups_per_step=4, max_staleness=eta, policy=policy), rows=5000)
    world = World(
        controller, random.Random(7), length, engines(2, places=8), train_seconds=1.0, tokens_per_second=10.0
    )
    world.run(steps)
    assert_ledger_is_true(controller)
    return world


def lags_of(batches: list[list[Group]]) -> Counter[int]:
    return Counter(
        version - token_version
        for version, groups in enumerate(batches)
        for group in groups
        for trajectory in group.trajectories
        for token_version in trajectory.policy_versions
    )


def test_eta_is_the_only_difference_between_synchronous_and_asynchronous() -> None:
    worlds = {eta: world_at(eta) for eta in (0, 1, 4)}
    for eta, world in worlds.items():
        assert max(world.stalenesses) == eta
    # eta = 0: generation and training take turns, so a step lasts as long as both.
    generated_at_once = lags_of(worlds[0].trained)
    assert set(generated_at_once) == {0}
    seconds = {eta: world.now for eta, world in worlds.items()}
    assert seconds[0] > 1.2 * seconds[1] > 1.2 * seconds[4], seconds


@pytest.mark.parametrize("policy", ["keep", "drop", "wait"])
def test_the_histogram_of_what_was_trained_on_counts_every_token(policy: str) -> None:
    world = world_at(1, policy=policy)
    consumed = world.controller.state.consumed
    steps = world.controller.state.versions.number
    assert consumed.by_token == lags_of(world.trained[:steps])
    assert sum(consumed.by_token.values()) == world.controller.state.tokens.counts().trained
    over = sum(count for lag, count in consumed.by_token.items() if lag > 1)
    assert (over > 0) == (policy == "keep")


def test_the_histogram_of_what_was_dropped_counts_every_token_and_shows_the_selection_bias() -> None:
    world = world_at(1, policy="drop")
    groups, tokens = world.controller.state.groups, world.controller.state.tokens.counts()
    stale = groups.dropped.by_token["stale"]
    assert sum(stale.values()) == tokens.dropped["stale"] > 0
    assert max(stale) > 1, "nothing that was dropped as stale was over the bound"
    bias = groups.selection_bias
    taken = sum(held.tokens for held in world.controller.state.groups.taken.values())
    assert bias.kept_tokens == tokens.trained + taken
    assert bias.mean_dropped is not None
    assert bias.mean_trained is not None
    assert bias.mean_dropped > 2 * bias.mean_trained, "the long ones are those that are too late"
    assert bias.ratio is not None
    assert bias.ratio < 0.95
    told = summary(world.controller.state)["staleness"]
    assert (told["mean_tokens_dropped"], told["mean_tokens_kept"]) == (bias.mean_dropped, bias.mean_trained)
    assert told["dropped_token_histogram"] == {"stale": {str(lag): stale[lag] for lag in sorted(stale)}}
    consumed = world.controller.state.consumed.by_token
    assert told["token_histogram"] == {str(lag): consumed[lag] for lag in sorted(consumed)}


@pytest.mark.parametrize("policy", ["keep", "wait"])
def test_without_drops_there_is_no_selection_bias(policy: str) -> None:
    bias = world_at(1, policy=policy).controller.state.groups.selection_bias
    assert (bias.dropped_trajectories, bias.mean_dropped) == (0, None)
    assert bias.ratio == 1.0


def test_the_environments_tokens_are_in_no_histogram_and_the_oldest_token_is_a_trajectorys_age() -> None:
    trajectory = Trajectory(
        token_ids=[1, 2, 3, 4], loss_mask=[1, 0, 0, 1], behavior_logprobs=[0.0] * 4, policy_versions=[1, 1, 1, 3],
        finish_reason="stop", reward=1.0,
    )  # fmt: skip
    group = Group(
        group_id="0-0-0", row=0, prompt_token_ids=[1], prompt="", answer="", trajectories=[trajectory]
    )
    batch = measure_batch([group], version=4)
    assert (batch.by_token, batch.by_trajectory) == ({3: 1, 1: 1}, {3: 1})
    totals = DroppedTotals()
    totals.add("stale", [trajectory], version=5)
    assert (totals.by_token, totals.by_trajectory) == ({"stale": {4: 1, 2: 1}}, {"stale": {4: 1}})


def test_what_is_at_the_bound_is_not_over_it() -> None:
    assert [fraction_over({0: 2, 1: 1, 2: 1}, bound) for bound in (0, 1, 2)] == [0.5, 0.25, 0.0]


def test_the_bias_of_a_worked_example() -> None:
    """Three kept of 10 tokens, one dropped of 50: 10 is trained on where 20 was made, 0.5."""
    bias = SelectionBias(dropped_trajectories=1, dropped_tokens=50, kept_trajectories=3, kept_tokens=30)
    assert (bias.mean_trained, bias.mean_dropped, bias.ratio) == (10.0, 50.0, 0.5)


def test_totals_outlive_a_recovery() -> None:
    world = world_at(1, policy="drop", steps=20)
    before = world.controller.state.groups
    restored = new_controller(
        world.controller.state.config,
        rows=5000,
        restored=through_bytes(world.controller.trainer.snapshot(world.controller.state.versions.number)),
    )
    assert restored.state.groups.dropped == before.dropped
    assert restored.state.groups.selection_bias == before.selection_bias
    assert restored.state.consumed == world.controller.state.consumed
