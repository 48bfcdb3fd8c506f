"""Interruption by `retract`, by `abort`, and none at all (SEMANTICS section 4), on servers with and without spans."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpu_agents.rollout.engines.errors import EngineTooOld
from oolong.contracts.rollout import Group, PublishedWeights, Trajectory
from tests.unit.rollout.fake_engine import FakeEngine
from tests.unit.rollout.harness import Harness
from tests.unit.rollout.simulation import assert_ledger_is_true

Make = Callable[..., Harness]
Versions = Callable[[int], PublishedWeights]

LONG = {"max_new_tokens": 300}
STALE = {"max": 4, "on_straggler": "keep"}
MOST_STEPS = 40


async def train(
    run: Harness,
    engine: FakeEngine,
    versions: Versions,
    *,
    steps: int,
    enough: Callable[[list[Group]], bool] = lambda _: True,
) -> list[Group]:
    """At least so many steps, and more until there is enough: a slow load finds fewer requests that still run."""
    run.start_worker(engine.port, engine.api_key)
    groups: list[Group] = []
    await run.trainer.announce(versions(0), "none")
    version = 0
    while version < steps or (version < MOST_STEPS and not enough(groups)):
        groups += await run.trainer.take(version)
        version += 1
        await run.trainer.announce(versions(version))
    assert_ledger_is_true(run.controller)
    return groups


def spanning(groups: list[Group]) -> list[Trajectory]:
    return [t for g in groups for t in g.trajectories if len(set(t.policy_versions)) > 1]


@pytest.mark.parametrize("spans", [True, False], ids=["with spans", "without spans"])
async def test_abort_goes_on_from_the_tokens_and_each_request_is_of_one_version(
    new_harness: Make, versions: Versions, spans: bool
) -> None:
    async with (
        FakeEngine(token_seconds=0.003, spans=spans) as engine,
        new_harness(staleness=STALE, rollout=LONG | {"interruption": "abort"}) as run,
    ):
        engine.spread = 200
        groups = await train(run, engine, versions, steps=6, enough=lambda seen: len(spanning(seen)) > 5)
        trajectories = [t for g in groups for t in g.trajectories]
        assert len(spanning(groups)) > 5
        assert all(t.policy_versions == sorted(t.policy_versions) for t in trajectories)
        assert all(t.interruptions >= len(set(t.policy_versions)) - 1 for t in trajectories)
        # The scripted tokens follow from their place in the request: a resumed one starts its alphabet again.
        first = spanning(groups)[0]
        switch = next(i for i, v in enumerate(first.policy_versions) if v != first.policy_versions[0])
        assert first.token_ids[switch] == 97
        assert len(engine.seen_rids) == len(set(engine.seen_rids)), "a request id was used again"
        await run.until(lambda: engine.paused is None)  # the last version may be loading still


async def test_without_interruption_a_server_without_spans_will_do(
    new_harness: Make, versions: Versions
) -> None:
    async with (
        FakeEngine(token_seconds=0.003, spans=False) as engine,
        new_harness(staleness=STALE, rollout=LONG | {"interruptible": False}) as run,
    ):
        engine.spread = 200
        groups = await train(run, engine, versions, steps=5)
        seen = [set(t.policy_versions) for g in groups for t in g.trajectories]
        assert all(len(versions_of_one) == 1 for versions_of_one in seen)
        assert len(set.union(*seen)) > 1
        assert sum(t.interruptions for g in groups for t in g.trajectories) == 0
        assert run.controller.state.ledger.counts().dropped == {}, "a load fell into a request"


async def test_retract_refuses_a_server_without_spans_and_names_the_way_out(
    new_harness: Make, versions: Versions
) -> None:
    async with FakeEngine(spans=False) as engine, new_harness() as run:
        worker = run.start_worker(engine.port, engine.api_key)
        await run.trainer.announce(versions(0), "none")
        with pytest.raises(EngineTooOld, match=r"rollout\.interruption: abort"):
            await worker.task
        run.workers.clear()
        await worker.client.close()


async def test_an_abort_while_a_request_is_on_its_way_takes_that_one_back_too(
    new_harness: Make, engine: FakeEngine, versions: Versions
) -> None:
    """Loads follow each other so fast that some requests have no token yet when they are taken back."""
    engine.token_seconds = 0.02
    async with new_harness(staleness={"max": 8}, rollout={"interruption": "abort"}) as run:
        run.start_worker(engine.port, engine.api_key)
        await run.trainer.announce(versions(0), "none")
        version = 0
        counts = run.controller.state.counters  # a load may skip some versions
        while version < 8 or (version < MOST_STEPS and counts.acks < 5):
            await run.trainer.take(version)
            version += 1
            await run.trainer.announce(versions(version))
        await run.until(lambda: counts.acks >= 5)
        assert run.controller.state.ledger.counts().dropped == {}
        assert_ledger_is_true(run.controller)
