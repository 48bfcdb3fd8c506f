"""The whole life of a run in simulated time: live changes, engines that crash or leave, pauses, crashes and resumes."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from gpu_agents.rollout.controller.controller import Controller
from gpu_agents.rollout.controller.snapshot import Snapshot
from oolong.contracts.runtime_overrides import RuntimeOverrides
from tests.unit.rollout.simulation import (
    World,
    assert_ledger_is_true,
    engines,
    new_controller,
    rules,
    through_bytes,
)

STEPS = 20
DISTURBANCES = 6  # of each attempt
DISTURBED_SECONDS = 40.0
HORIZON_SECONDS = 20_000.0  # of an attempt; the longest group takes 12 seconds


def bimodal(rng: random.Random) -> float:
    return 12.0 if rng.random() < 0.15 else 0.6 + rng.random()


@dataclass
class LifecycleObserver:
    """What became of a run."""

    trained_ids: list[str] = field(default_factory=list)  # in the order of their steps; of lost steps none
    dropped: dict[str, int] = field(default_factory=dict)
    exceeded: int = 0
    standstills: int = 0
    attempts: int = 0
    bounds: set[int] = field(default_factory=set)  # every max staleness that was ever in force
    stalenesses: list[int] = field(default_factory=list)


def play(
    policy: str, seed: int, *, at_restart: Callable[[Controller], None] = lambda controller: None
) -> LifecycleObserver:
    """One run until STEPS steps are trained. Raises AssertionError when it stands still.

    `at_restart` may change the controller that resumes an attempt before anything is announced to it.
    """
    rng = random.Random(f"{policy}-{seed}")
    batch, bound = rng.randint(1, 4), rng.randint(0, 6)
    told = LifecycleObserver(bounds={bound})
    the_rules = rules(
        groups_per_step=batch,
        max_staleness=bound,
        policy=policy,
        seed=seed,
        total_train_steps=rng.choice([STEPS, 10_000]),
        max_concurrent_groups=rng.choice([3, 1000]),
    )
    live = RuntimeOverrides()
    saved: Snapshot | None = None
    every = rng.randint(1, 4)
    trained: dict[int, list[str]] = {}
    version = 0
    while version < STEPS:
        told.attempts += 1
        controller = new_controller(the_rules, rows=40, restored=saved)
        controller.apply_overrides(live)
        if saved is not None:
            at_restart(controller)
        attempt = _Attempt(rng, controller, live, told, every=every)
        world = attempt.world
        steps = rng.randint(1, 6)
        paused = rng.random() < 0.5
        world.run(min(steps, STEPS - version), version=version, horizon=HORIZON_SECONDS)
        for offset, groups in enumerate(world.trained):
            trained[version + offset] = [group.group_id for group in groups]
        told.stalenesses += world.stalenesses
        told.standstills += controller.state.counters.forced_drops
        told.dropped = dict(controller.state.ledger.counts().dropped)
        told.exceeded = controller.state.consumed.exceeded
        live = attempt.live
        version = controller.state.versions.number
        if version >= STEPS:
            break
        if paused:
            saved = through_bytes(controller.trainer.snapshot(version))
        elif attempt.saved is not None:
            saved = attempt.saved
        version = saved.version if saved is not None else 0
    told.trained_ids = [group_id for step in range(STEPS) for group_id in trained[step]]
    return told


class _Attempt:
    """A world in which things happen at random moments, and a checkpoint is taken at some versions."""

    def __init__(
        self,
        rng: random.Random,
        controller: Controller,
        live: RuntimeOverrides,
        told: LifecycleObserver,
        *,
        every: int,
    ) -> None:
        self.live, self.saved = live, None
        self._rng, self._controller, self._told, self._every = rng, controller, told, every
        self._revisions = count(live.revision + 1)
        self.world = World(
            controller,
            rng,
            bimodal,
            engines(rng.randint(1, 2), places=rng.randint(2, 8), load_seconds=rng.choice([0.01, 1.0])),
            first_token_seconds=rng.choice([0.1, 4.0]),
            train_seconds=rng.choice([0.2, 1.0, 8.0]),
            fail_share=rng.choice([0.0, 0.2]),
            after_announce=self._after_announce,
        )
        for _ in range(DISTURBANCES):
            self.world.at(rng.random() * DISTURBED_SECONDS, self._disturb)

    saved: Snapshot | None

    def _after_announce(self, world: World) -> None:
        assert_ledger_is_true(self._controller)
        version = self._controller.state.versions.number
        if version and version % self._every == 0:
            self.saved = through_bytes(self._controller.trainer.snapshot(version))

    def _disturb(self) -> None:
        kind = self._rng.choice(["bound", "bound", "concurrency", "crash", "release"])
        if kind == "bound":
            self._change(max_staleness=self._rng.choice([0, 1, 2, 6]))
        elif kind == "concurrency":
            self._change(max_concurrent_groups=self._rng.choice([1, 4, 1000]))
        else:
            index = self._rng.randrange(len(self.world.engines))
            self.world.replace_engine(index, crashed=kind == "crash")

    def _change(self, *, max_staleness: int | None = None, max_concurrent_groups: int | None = None) -> None:
        self.live = RuntimeOverrides(
            revision=next(self._revisions),
            max_staleness=self.live.max_staleness if max_staleness is None else max_staleness,
            max_concurrent_groups=max_concurrent_groups or self.live.max_concurrent_groups,
        )
        self._controller.apply_overrides(self.live)
        self._told.bounds.add(self._controller.state.config.gate.max_staleness)


def check(policy: str, seed: int) -> LifecycleObserver:
    """A run of this seed goes to its end, trains every group once and keeps the bounds its policy promises."""
    told = play(policy, seed)
    where = f"policy {policy}, seed {seed}"
    assert len(told.trained_ids) == len(set(told.trained_ids)), where
    assert told.standstills == 0, where
    if policy != "keep":
        assert told.exceeded == 0, where
        assert max(told.stalenesses) <= max(told.bounds), where
    if policy != "drop":
        assert set(told.dropped) <= {"error"}, where
    return told
