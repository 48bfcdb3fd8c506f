"""SEMANTICS sections 1-3 and 6 in simulated worlds."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from gpu_agents.rollout.controller.ledger import DropReason
from tests.unit.rollout.simulation import (
    World,
    assert_ledger_is_true,
    engines,
    new_controller,
    rules,
    through_bytes,
    usable_places,
)


def bimodal(rng: random.Random) -> float:
    return 12.0 if rng.random() < 0.15 else 0.6 + rng.random()


def test_drops_at_take_cost_no_places_over_500_steps() -> None:
    """eta = 1 with about 20 % dropped: after every version B * (eta + 1) groups may be in flight again."""
    controller = new_controller(rules(groups_per_step=4, max_staleness=1, policy="drop"))
    places: list[int] = []

    def count_places(world: World) -> None:
        assert_ledger_is_true(world.controller)
        places.append(usable_places(world.controller))

    world = World(
        controller,
        random.Random(1),
        lambda rng: 4.0 if rng.random() < 0.25 else 0.3 + rng.random(),
        engines(2),
        after_announce=count_places,
    )
    world.run(500)
    counts = controller.state.ledger.counts()
    dropped = counts.dropped[DropReason.STALE] / counts.drawn
    assert 0.15 < dropped < 0.30
    assert set(places) == {4 * 2}
    assert max(world.stalenesses) <= 1
    assert counts.trained == 2000


def test_at_eta_0_every_token_is_of_the_batchs_version_although_one_engine_loads_late() -> None:
    two = engines(2, places=3)
    two[1].load_seconds = 3.0
    controller = new_controller(rules(groups_per_step=6, max_staleness=0))
    world = World(controller, random.Random(2), lambda rng: 2 + 4 * rng.random(), two, train_seconds=0.5)
    world.run(20)
    for version, groups in enumerate(world.trained):
        assert {v for g in groups for t in g.trajectories for v in t.policy_versions} == {version}
    prompt, late = two
    assert prompt.submitted > late.submitted > 0


@pytest.mark.parametrize("block", range(10))
def test_wait_is_never_above_eta_and_never_stuck_in_1000_worlds(block: int) -> None:
    for seed in range(100 * block, 100 * block + 100):
        rng = random.Random(seed)
        bound = rng.randint(0, 3)
        controller = new_controller(
            rules(groups_per_step=rng.randint(1, 3), max_staleness=bound, policy="wait", seed=seed)
        )
        world = World(
            controller,
            rng,
            bimodal,
            engines(rng.randint(1, 2), places=rng.randint(2, 8), load_seconds=rng.choice([0.01, 1.0])),
            first_token_seconds=rng.choice([0.1, 4.0]),
            train_seconds=rng.choice([0.2, 1.0, 3.0]),
            fail_share=rng.choice([0.0, 0.2]),
        )
        world.run(8)
        assert max(world.stalenesses) <= bound, f"seed {seed}"


def test_keep_trains_stragglers_over_the_bound_and_reports_them() -> None:
    controller = new_controller(rules(groups_per_step=4, max_staleness=1, policy="keep"))
    world = World(controller, random.Random(3), bimodal, engines(1, places=8), train_seconds=0.5)
    world.run(60)
    assert max(world.stalenesses) > 1
    consumed = controller.state.consumed.by_trajectory
    assert Counter(world.stalenesses[: sum(consumed.values())]) == consumed


def test_the_ledger_equals_the_enumerated_ids_after_every_version() -> None:
    for seed in range(30):
        rng = random.Random(seed)
        controller = new_controller(
            rules(
                groups_per_step=rng.randint(1, 5),
                max_staleness=rng.randint(0, 4),
                policy=rng.choice(["keep", "drop", "wait"]),
            )
        )
        world = World(
            controller,
            rng,
            bimodal,
            engines(2, places=4),
            fail_share=0.1,
            after_announce=lambda world: assert_ledger_is_true(world.controller),
        )
        world.run(25)


@pytest.mark.parametrize("seed", range(8))
def test_a_restored_run_trains_every_group_once(seed: int) -> None:
    """Kill at a random step and restore: the trained ids have no gap and no repeat."""
    rng = random.Random(seed)
    the_rules = rules(groups_per_step=4, max_staleness=2)
    first = World(new_controller(the_rules, rows=40), rng, bimodal, engines(2))
    at = rng.randint(3, 8)
    first.run(at)
    snapshot = through_bytes(first.controller.trainer.snapshot(at))
    trained = [group.group_id for groups in first.trained[:at] for group in groups]

    second = World(new_controller(the_rules, rows=40, restored=snapshot), rng, bimodal, engines(1))
    assert_ledger_is_true(second.controller)
    second.run(10, version=at)
    trained += [group.group_id for groups in second.trained[:10] for group in groups]
    assert len(trained) == len(set(trained)) == 4 * (at + 10)

    counts = second.controller.state.ledger.counts()
    assert counts.dropped == {}
    unfinished = counts.waiting + counts.running + counts.buffered + counts.taken
    assert counts.drawn == len(trained) + unfinished, "a group was lost"


def test_unfinished_groups_are_claimed_again_first_and_in_order() -> None:
    the_rules = rules(groups_per_step=4, max_staleness=2)
    world = World(new_controller(the_rules), random.Random(5), bimodal, engines(2))
    world.run(5)
    before = world.controller
    snapshot = through_bytes(before.trainer.snapshot(5))
    restored = new_controller(the_rules, restored=snapshot)
    unfinished = sorted(
        [*before.state.groups.taken.values(), *before.state.groups.running.values()],
        key=lambda held: held.order,
    )
    assert [held.group_id for held in restored.state.groups.waiting] == [held.group_id for held in unfinished]
    assert restored.state.tokens.balances
