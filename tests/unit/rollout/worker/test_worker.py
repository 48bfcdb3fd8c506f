"""The worker against the scripted engine: loads, spans, full slots, give-back, errors (SEMANTICS sections 2 and 4)."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gpu_agents.rewards.reward import Completion, Score
from gpu_agents.rollout.engines.client import EngineClient
from gpu_agents.rollout.worker.config import WorkerConfig
from gpu_agents.rollout.worker.episode import completion_seed
from gpu_agents.rollout.worker.weight_loader import WeightLoader
from gpu_agents.rollout.workflows.workflow import Workflow
from oolong.contracts.rollout import Group, PublishedWeights, ScoreReply
from oolong.contracts.telemetry import Histogram
from oolong.workflow import Episode
from tests.support import failing_reward
from tests.unit.rollout.fake_engine import FakeEngine
from tests.unit.rollout.harness import Harness
from tests.unit.rollout.model_files import SHAPES, publish, write_rows
from tests.unit.rollout.simulation import assert_ledger_is_true

Make = Callable[..., Harness]
Versions = Callable[[int], PublishedWeights]


def token_versions(groups: list[Group]) -> set[int]:
    return {v for group in groups for t in group.trajectories for v in t.policy_versions}


def stale_engines(run: Harness) -> list[str]:
    return [engine.worker_id for engine in run.controller.state.engines.all() if engine.stale]


async def test_versions_follow_each_other_and_every_one_is_probed(
    new_harness: Make, engine: FakeEngine, versions: Versions
) -> None:
    async with new_harness(staleness={"max": 2}) as run:
        run.start_worker(engine.port, engine.api_key)
        await run.trainer.announce(versions(0), "none")
        for version in range(4):
            groups = await run.trainer.take(version)
            assert len(groups) == 4
            assert all(t.reward is not None for g in groups for t in g.trajectories)
            await run.trainer.announce(versions(version + 1))
            await run.until(lambda version=version: run.controller.state.counters.acks == version + 2)  # type: ignore[misc]
        probes = await run.trainer.probes()
        assert [p.version for p in probes] == [0, 1, 2, 3, 4]
        assert all(len(p.probe.token_ids) == len(p.probe.logprobs) == 32 for p in probes)
        assert_ledger_is_true(run.controller)
        await run.trainer.end()
        await run.until(lambda: run.controller.state.end_acked_by_all(now=time.monotonic()))
    assert run.controller.state.ledger.counts().trained == 16
    assert engine.loads == ["0", "1", "2", "3", "4"]
    assert all(engine.flushed), "keys and values of old weights"


@pytest.mark.parametrize("repeatable", [True, False])
async def test_every_completion_has_the_seed_of_its_run_group_and_rollout(
    repeatable: bool, new_harness: Make, engine: FakeEngine, versions: Versions
) -> None:
    """Interrupted requests go on with the same seed, so there are no others than those of the groups."""
    wanted: set[int | None] = set()
    async with new_harness(
        staleness={"max": 2}, rollout={"repeatable_sampling": repeatable, "interruption": "abort"}
    ) as run:
        run.start_worker(engine.port, engine.api_key)
        await run.trainer.announce(versions(0), "none")
        for version in range(3):
            for group in await run.trainer.take(version):
                wanted |= {completion_seed(run.spec.seed, group.group_id, member) for member in range(2)}
            await run.trainer.announce(versions(version + 1))
        await run.trainer.end()
        await run.until(lambda: run.controller.state.end_acked_by_all(now=time.monotonic()))
    seen = {seed for rid, seed in engine.seen_seeds.items() if not rid.startswith("probe")}
    if not repeatable:
        assert seen == {None}
        return
    assert len(wanted) == 24 and wanted <= seen
    groups = {f"0-{row}-0" for row in range(1000)}
    every = {completion_seed(run.spec.seed, group, member) for group in groups for member in range(2)}
    assert seen - {None} <= every | wanted


def test_seeds_differ_by_run_group_and_rollout() -> None:
    seeds = {
        completion_seed(run, f"0-{row}-0", member)
        for run in (1, 2)
        for row in range(50)
        for member in range(8)
    }
    assert len(seeds) == 800 and all(0 <= seed < 2**63 for seed in seeds)


async def test_an_engine_whose_probe_is_of_other_weights_than_it_says_is_stale(
    new_harness: Make, versions: Versions
) -> None:
    class LoadsNothing(FakeEngine):
        async def _update(self, call: web.Request) -> web.Response:
            before = self.version
            reply = await super()._update(call)
            self.version = "0" if before == "0" else self.version
            return reply

    async with LoadsNothing() as engine, new_harness(staleness={"max": 2}) as run:
        run.start_worker(engine.port, engine.api_key)
        await run.trainer.announce(versions(0), "none")
        await run.trainer.take(0)
        await run.trainer.announce(versions(1))
        await run.until(lambda: len(stale_engines(run)) == 1)
        notes = [line.message for line in run.lines("controller") if type(line).__name__ == "Note"]
        assert any("the probe of version 1 was sampled by [0]" in note for note in notes)
        assert [probe.version for probe in await run.trainer.probes()] == [0]


async def test_old_weights_are_deleted_once_nobody_loads_them(
    new_harness: Make, engine: FakeEngine, versions: Versions, tmp_path: Path
) -> None:
    async with new_harness() as run:
        run.start_worker(engine.port, engine.api_key)
        await run.trainer.announce(versions(0), "none")
        for version in range(3):
            await run.trainer.take(version)
            await run.trainer.announce(versions(version + 1))
        await run.until(lambda: run.controller.state.counters.acks >= 2)
        await run.until(lambda: [p.name for p in (tmp_path / "weights").iterdir()] == ["v00000003"])


async def test_a_running_trajectory_spans_the_versions_that_made_it(
    new_harness: Make, engine: FakeEngine, versions: Versions
) -> None:
    engine.token_seconds, engine.spread = 0.003, 200
    long = {"max_new_tokens": 300}
    async with new_harness(staleness={"max": 4, "on_straggler": "keep"}, rollout=long) as run:
        run.start_worker(engine.port, engine.api_key)
        await run.trainer.announce(versions(0), "none")
        for version in range(6):
            groups = await run.trainer.take(version)
            await run.trainer.announce(versions(version + 1))
        await run.until(lambda: run.controller.state.consumed.trajectories_spanning_versions > 0)
        assert run.controller.state.consumed.interruptions > 0
        assert run.workers[0].engine.counters.retractions == 0, "a load is no want of memory"
        for trajectory in [t for group in groups for t in group.trajectories]:
            assert trajectory.policy_versions == sorted(trajectory.policy_versions)


async def test_without_loads_no_trajectory_spans_versions(
    new_harness: Make, engine: FakeEngine, versions: Versions
) -> None:
    def without_loads(options: WorkerConfig) -> WorkerConfig:
        return replace(options, skip_loads=True)

    engine.token_seconds, engine.spread = 0.003, 200
    long = {"max_new_tokens": 300}
    async with new_harness(staleness={"max": 4, "on_straggler": "keep"}, rollout=long) as run:
        run.start_worker(engine.port, engine.api_key, change=without_loads)
        await run.trainer.announce(versions(0), "none")
        for version in range(5):
            assert token_versions(await run.trainer.take(version)) == {0}
            await run.trainer.announce(versions(version + 1))
        assert run.controller.state.consumed.trajectories_spanning_versions == 0
        assert run.controller.state.counters.acks == 1


async def test_without_interruption_no_trajectory_spans_versions_although_every_version_is_loaded(
    new_harness: Make, engine: FakeEngine, versions: Versions
) -> None:
    engine.token_seconds, engine.spread = 0.003, 200
    whole = {"max_new_tokens": 300, "interruptible": False}
    async with new_harness(staleness={"max": 4, "on_straggler": "keep"}, rollout=whole) as run:
        run.start_worker(engine.port, engine.api_key)
        await run.trainer.announce(versions(0), "none")
        seen = set()
        for version in range(5):
            seen |= token_versions(await run.trainer.take(version))
            await run.trainer.announce(versions(version + 1))
        await run.until(lambda: run.controller.state.counters.acks >= 3)
        assert run.controller.state.consumed.trajectories_spanning_versions == 0
        assert len(seen) > 1
        assert run.controller.state.ledger.counts().dropped == {}, "a load fell into a request"


async def test_without_interruption_nothing_new_is_sent_until_what_runs_has_ended_and_the_load_is_done(
    new_harness: Make, engine: FakeEngine, versions: Versions
) -> None:
    last: list[str] = []
    engine.may_decode = lambda request: request.rid not in last  # type: ignore[method-assign]
    async with new_harness(staleness={"max": 4}, rollout={"interruptible": False}) as run:
        worker = run.start_worker(engine.port, engine.api_key)
        await run.trainer.announce(versions(0), "none")
        await run.until(lambda: len(engine.running) >= 16)
        last.append(engine.running[-1].rid)
        await run.trainer.take(0)
        await run.trainer.announce(versions(1))
        await run.until(lambda: not worker.engine.is_open)
        await run.until(lambda: [request.rid for request in engine.running] == last)
        seen = len(engine.seen_rids)
        await asyncio.sleep(1)  # virtual: a thousand tokens
        assert (len(engine.seen_rids), engine.loads) == (seen, ["0"])
        last.clear()
        await run.until(lambda: engine.loads == ["0", "1"] and len(engine.seen_rids) > seen)


async def test_the_worker_fills_the_engine_up_to_its_limit(
    new_harness: Make, engine: FakeEngine, versions: Versions
) -> None:
    engine.token_seconds = 0.003
    async with new_harness(staleness={"max": 8}) as run:
        run.start_worker(engine.port, engine.api_key)
        await run.trainer.announce(versions(0), "none")
        for version in range(3):
            await run.trainer.take(version)
            await run.trainer.announce(versions(version + 1))
    assert engine.most_running in (16, 17)  # 16 places, groups of 2, and perhaps the probe


async def test_slow_scores_hold_no_place_in_the_engine(
    new_harness: Make, engine: FakeEngine, versions: Versions
) -> None:
    """With a reward service that never answers, groups pile up at scoring while the engine takes new ones."""
    async with new_harness(staleness={"max": 8}, rollout={"engine_max_running_requests": 4}) as run:
        never = asyncio.Event()

        run.start_worker(engine.port, engine.api_key)
        run.workers[0].worker._context.scorer.score = hang_forever(never)  # type: ignore[method-assign]
        await run.trainer.announce(versions(0), "none")
        await run.until(lambda: len(run.controller.state.groups.running) >= 12)
        never.set()
        await run.until(lambda: len(run.controller.state.groups.buffered) >= 4)


def hang_forever(event: asyncio.Event) -> Any:
    async def score(**_: Any) -> ScoreReply:
        await event.wait()
        return ScoreReply(status="ok", score=0.0)

    return score


async def test_the_parts_of_a_reward_and_its_result_stay_with_the_trajectory(
    new_harness: Make, engine: FakeEngine, versions: Versions
) -> None:
    scored = Score(value=0.5, parts={"exact_match": 1.0, "length": -0.5}, result="exact")
    async with new_harness(reward=lambda completion: scored, staleness={"max": 1}) as run:
        run.start_worker(engine.port, engine.api_key)
        await run.trainer.announce(versions(0), "none")
        groups = await run.trainer.take(0)
        trajectories = [t for group in groups for t in group.trajectories]
        assert {(t.reward, t.score, t.reward_result, *t.reward_parts.items()) for t in trajectories} == {
            (0.5, 0.5, "exact", ("exact_match", 1.0), ("length", -0.5))
        }


async def test_reward_errors_are_exactly_the_groups_that_raise(
    new_harness: Make, engine: FakeEngine, versions: Versions
) -> None:
    reward = failing_reward.build({})
    async with new_harness(reward=reward, staleness={"max": 1}) as run:
        run.start_worker(engine.port, engine.api_key)
        await run.trainer.announce(versions(0), "none")
        for version in range(6):
            groups = await run.trainer.take(version)
            assert all(group.row % 3 for group in groups)
            await run.trainer.announce(versions(version + 1))
        counts = run.controller.state.ledger.counts()
        drawn = [*run.controller.state.groups.running, *run.controller.state.groups.buffered]
        assert counts.trained == 24
        assert counts.dropped["error"] == counts.errors["reward_error"] > 4
        assert counts.drawn == 24 + counts.dropped["error"] + len(drawn)
        assert_ledger_is_true(run.controller)


async def test_a_worker_that_stops_gives_its_groups_back_and_another_goes_on_from_their_tokens(
    new_harness: Make, engine: FakeEngine, versions: Versions
) -> None:
    engine.may_decode = lambda request: len(request.output) < 4  # type: ignore[method-assign]  # none ends
    async with new_harness(staleness={"max": 2}) as run:
        first = run.start_worker(engine.port, engine.api_key)
        await run.trainer.announce(versions(0), "none")
        await run.until(lambda: sum(len(request.output) > 3 for request in engine.running) >= 16)
        first.stop.set()
        assert await first.task == "stopped"
        assert run.controller.state.engines.left == 1, "it says goodbye: nobody waits for its silence"
        assert run.controller.state.ledger.counts().waiting == 8
        tokens = run.controller.state.tokens.counts()
        assert tokens.in_hand == tokens.generated > 16
        left = [request.rid for request in engine.running if not request.rid.startswith("probe")]
        assert not left, "the engine still works for a worker that is gone"

        async with FakeEngine(token_seconds=0.0005) as other:
            other.spread = 2000  # none stops before its limit
            before = {held.group_id: held.tokens for held in run.controller.state.groups.waiting}
            run.start_worker(other.port, other.api_key, index=1)
            groups = await run.trainer.take(0)
            assert {group.group_id for group in groups} <= set(before)
            resumed = [ids for ids in other.seen_inputs if len(ids) > 6]
            assert resumed, "no request went on from given-back tokens"
            assert all(t.interruptions >= 1 for group in groups for t in group.trajectories)
            assert {len(t.token_ids) for group in groups for t in group.trajectories} == {30}, (
                "the turn's bound"
            )
            assert_ledger_is_true(run.controller)


async def test_an_engine_that_dies_costs_the_tokens_that_it_had_not_returned_and_no_group(
    new_harness: Make, engine: FakeEngine, versions: Versions
) -> None:
    engine.may_decode = lambda request: len(request.output) < 4 or request.rid.startswith("probe")  # type: ignore[method-assign]
    async with FakeEngine() as next_one, new_harness(staleness={"max": 2}) as run:
        worker = run.start_worker(engine.port, engine.api_key)
        await run.trainer.announce(versions(0), "none")
        await run.until(lambda: run.controller.state.counters.acks == 1)
        await run.until(lambda: sum(len(request.output) > 3 for request in engine.running) >= 16)
        running = set(run.controller.state.groups.running)
        worker.engine.close()
        await engine.die()
        next_one.version = "0"
        again = EngineClient(next_one.port, next_one.api_key, worker.client._limits)
        worker.engine.open(again, 0)
        groups = await run.trainer.take(0)
        assert {group.group_id for group in groups} <= running
        assert all(len(ids) <= 6 for ids in next_one.seen_inputs), "each restarts from its prompt"
        assert run.controller.state.ledger.counts().dropped == {}
        assert_ledger_is_true(run.controller)
        await again.close()


async def test_incomplete_weights_never_reach_the_engine(
    new_harness: Make, engine: FakeEngine, versions: Versions, tmp_path: Path
) -> None:
    half = dict(list(SHAPES.items())[:1])
    async with new_harness(staleness={"max": 2}) as run:
        run.start_worker(engine.port, engine.api_key)
        await run.trainer.announce(versions(0), "none")
        await run.trainer.take(0)
        await run.trainer.announce(publish(tmp_path / "weights", 1, shapes=half))
        await run.until(lambda: run.controller.state.counters.failed_loads == 1)
        assert engine.loads == ["0"]
        assert len(stale_engines(run)) == 1
        # Groups that run on are finished with the old weights; a newer, whole version makes the engine good again.
        await run.trainer.take(1)
        await run.trainer.announce(versions(2))
        await run.until(lambda: not any(engine.stale for engine in run.controller.state.engines.all()))
        assert engine.loads == ["0", "2"]
        notes = [line.message for line in run.lines("controller") if type(line).__name__ == "Note"]
        assert any("lacks 1 of 2 tensors, first model.norm.weight" in note for note in notes)


async def test_a_load_that_the_engine_refuses_leaves_it_going_on_and_stale(
    new_harness: Make, engine: FakeEngine, versions: Versions
) -> None:
    async with new_harness(staleness={"max": 2}) as run:
        run.start_worker(engine.port, engine.api_key)
        await run.trainer.announce(versions(0), "none")
        await run.trainer.take(0)
        engine.fail_loads = True
        await run.trainer.announce(versions(1))
        await run.until(lambda: len(stale_engines(run)) == 1)
        assert engine.paused is None


async def test_a_lost_claim_aborts_its_requests(
    new_harness: Make, engine: FakeEngine, versions: Versions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpu_agents.rollout.worker.worker.RENEW_SECONDS", 0.02)
    engine.may_decode = lambda request: len(request.output) < 3 or request.rid.startswith("probe")  # type: ignore[method-assign]
    async with new_harness(staleness={"max": 2}) as run:
        run.start_worker(engine.port, engine.api_key)
        await run.trainer.announce(versions(0), "none")
        await run.until(lambda: len(engine.running) >= 16 and len(engine.running[0].output) > 1)
        run.controller.state.groups.requeue_worker("rollout-0/0")
        await run.until(lambda: run.controller.state.ledger.late_submits >= 1)
        assert run.controller.state.tokens.counts().dropped["stale_claim"] > 0
        assert_ledger_is_true(run.controller)


async def test_at_eta_0_two_engines_with_one_late_load_sample_only_the_batchs_version(
    new_harness: Make, engine: FakeEngine, versions: Versions
) -> None:
    async with FakeEngine() as late, new_harness(staleness={"max": 0}) as run:
        late.load_delay = 0.1
        run.start_worker(engine.port, engine.api_key)
        run.start_worker(late.port, late.api_key, index=1)
        await run.trainer.announce(versions(0), "none")
        for version in range(8):
            assert token_versions(await run.trainer.take(version)) == {version}
            await run.trainer.announce(versions(version + 1))


async def test_an_evaluation_scores_every_prompt_at_its_version(
    new_harness: Make, engine: FakeEngine, versions: Versions, tmp_path: Path
) -> None:
    spec = {"evaluation": {"split": "train", "prompts": 10, "samples": 2}}
    async with new_harness(staleness={"max": 1}, **spec) as run:
        run.start_worker(engine.port, engine.api_key)
        await run.trainer.announce(versions(0), "none")
        await run.trainer.take(0)
        scores = run.controller.state.evaluations.scores["start"]
        assert (scores.version, scores.prompts) == (0, 10)
        assert run.controller.state.ledger.counts().drawn <= 8
        await run.trainer.announce(versions(1))
        await run.trainer.end()
        await run.until(lambda: run.controller.state.ended)
        assert run.controller.state.evaluations.scores["end"].version == 1


async def test_an_evaluation_has_its_own_file_greedy_and_sampled_and_the_rewards_own_value(
    new_harness: Make, engine: FakeEngine, versions: Versions, tmp_path: Path
) -> None:
    async def half(episode: Episode) -> float:
        await episode.sample()
        return 0.5 * await episode.score()

    asked: list[Completion] = []
    own = write_rows(tmp_path / "own.jsonl", 3)
    evaluation = {"split": "train", "prompts": 9, "samples": 2, "temperature": 0.5, "at_end": False}
    harness = new_harness(reward=lambda c: float(asked.append(c) or 1.0), evaluation=evaluation)
    harness.workflow = Workflow(run=half)
    harness.evaluation_file = own
    async with harness as run:
        run.start_worker(engine.port, engine.api_key)
        await run.trainer.announce(versions(0), "none")
        await run.until(lambda: "start" in run.controller.state.evaluations.scores)
        scores = run.controller.state.evaluations.scores["start"]
        assert (scores.prompts, scores.greedy, scores.sampled) == (3, 1.0, 1.0)
        assert Counter(c.row for c in asked if c.purpose == "evaluation") == {0: 3, 1: 3, 2: 3}
        seen = Counter(t for rid, t in engine.seen_temperatures.items() if not rid.startswith("probe"))
        assert (seen[0.0], seen[0.5]) == (3, 6)
        groups = await run.trainer.take(0)
        assert {t.reward for group in groups for t in group.trajectories} == {0.5}
        assert len(run.controller.state.groups.prompts._sources[""]._rows) == 60


async def test_an_evaluation_with_tokens_of_another_version_is_refused(
    new_harness: Make, engine: FakeEngine, versions: Versions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpu_agents.rollout.controller.evaluations.ATTEMPTS", 1)
    evaluation = {"split": "train", "prompts": 6, "samples": 0, "at_end": False}
    engine.may_decode = lambda request: len(request.output) < 3 or engine.version == "7"  # type: ignore[method-assign]
    async with new_harness(evaluation=evaluation) as run:
        run.start_worker(engine.port, engine.api_key)
        await run.until(lambda: bool(run.controller.state.engines.all()))
        monkeypatch.setattr(WeightLoader, "_probe", nothing)
        await run.trainer.announce(versions(0), "none")
        await run.until(lambda: sum(len(request.output) == 3 for request in engine.running) >= 6)
        engine.version = "7"  # as if somebody else had loaded it
        await run.until(lambda: run.controller.state.evaluations.pending is None)
        assert run.controller.state.evaluations.scores == {}
        failure = run.controller.state.evaluations.failure
        assert failure is not None and failure.cause == "engine"
        assert "sampled by versions [0, 7], not by 0 alone" in failure.message


async def nothing(*_: Any) -> None:
    return None


async def test_an_evaluation_whose_engine_dies_is_done_again_by_the_next_one(
    new_harness: Make, engine: FakeEngine, versions: Versions
) -> None:
    dead = asyncio.Event()
    engine.may_decode = lambda request: dead.is_set() or request.rid.startswith("probe")  # type: ignore[method-assign]
    evaluation = {"split": "train", "prompts": 6, "samples": 0, "at_end": False}
    async with new_harness(evaluation=evaluation) as run:
        worker = run.start_worker(engine.port, engine.api_key)
        await run.trainer.announce(versions(0), "none")
        await run.until(lambda: len(engine.running) >= 6)
        worker.engine.close()
        await run.until(lambda: not worker.worker._loader.pinned.locked())
        dead.set()
        worker.engine.open(worker.client, 0)
        await run.until(lambda: "start" in run.controller.state.evaluations.scores)


async def test_what_the_controller_leaves_in_its_outbox(
    new_harness: Make, engine: FakeEngine, versions: Versions
) -> None:
    async with new_harness(staleness={"max": 2}) as run:
        run.start_worker(engine.port, engine.api_key)
        await run.trainer.announce(versions(0), "none")
        for version in range(3):
            await run.trainer.take(version)
            await run.trainer.announce(versions(version + 1))
        await run.trainer.end()
        await run.until(lambda: run.controller.state.end_acked_by_all(now=time.monotonic()))
        run.telemetry.close(run.controller.state)
    lines = run.lines("controller")
    kinds = Counter(type(line).__name__ for line in lines)
    assert kinds["TrajectoryLine"] == 3 * 2 * 2  # steps, groups sampled of each, members
    steps = [line.x for line in lines if type(line).__name__ == "Points" and line.axis == "step"]
    assert steps == [1, 2, 3]
    summaries = {line.name: line.value for line in lines if type(line).__name__ == "Summary"}
    assert summaries["controller"]["ledger"]["balances"] and summaries["controller"]["tokens"]["balances"]
    assert sum(summaries["controller"]["staleness"]["histogram"].values()) == 24
    reported: Counter[str] = Counter()
    for line in lines:
        if isinstance(line, Histogram):
            reported[line.name] += sum(line.counts.values())
    assert reported["staleness/consumed_trajectories"] == reported["response_length/tokens"] == 24
    assert reported["staleness/consumed_tokens"] == run.controller.state.tokens.counts().trained
    sample = next(line for line in lines if type(line).__name__ == "TrajectoryLine")
    assert "".join(sample.version_texts) == sample.completion
