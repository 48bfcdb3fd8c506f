"""Interrupted generation on the real engine: whose weights made which token (SEMANTICS section 4)."""

from __future__ import annotations

import asyncio
import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpu_agents.rollout.engines.client import EngineClient
from gpu_agents.rollout.worker.config import WorkerConfig
from oolong.contracts.rollout import Group, Trajectory
from tests.integration.rollout.conformance import load_base
from tests.integration.rollout.conftest import LORA, RealEngine, TinyModel, run_with_node_python
from tests.unit.rollout.harness import Harness, run_spec
from tests.unit.rollout.model_files import seal, write_rows, write_safetensors
from tests.unit.rollout.simulation import assert_ledger_is_true

pytestmark = pytest.mark.engine

STEPS, MOST_STEPS = 5, 20
MOST_COMPARED = 40


def harness(tiny: TinyModel, directory: Path, **sections: Any) -> Harness:
    rows = write_rows(directory / "rows.jsonl", 60)
    rollout = {"group_size": 4, "max_new_tokens": 300, "engine_max_running_requests": 32}
    sections["rollout"] = rollout | sections.get("rollout", {})
    return Harness(directory / "attempt", run_spec(**sections), tiny.base, rows)


def unchanged(options: WorkerConfig) -> WorkerConfig:
    return options


async def train_steps(
    tiny: TinyModel,
    engine: RealEngine,
    directory: Path,
    *,
    change: Callable[[WorkerConfig], WorkerConfig] = unchanged,
    adapters: bool = False,
    enough: Callable[[list[Group]], bool] = lambda groups: True,
    **rollout: Any,
) -> list[Group]:
    """Groups of some steps during which versions are published as fast as batches come."""
    spec: dict[str, Any] = {"staleness": {"max": 4, "on_straggler": "keep"}, "rollout": rollout}
    if adapters:
        spec["model"] = {"lora": LORA.model_dump()}
    async with harness(tiny, directory, **spec) as run:
        worker = run.start_worker(engine.port, engine.api_key, change=change)
        await load_base(worker.client, tiny.base)
        groups: list[Group] = []
        await run.trainer.announce(tiny.publish(0, directory / "weights", adapter=adapters), "none")
        version = 0
        # A machine that stands still between two steps may let an engine finish all that it has: then some more.
        while version < STEPS or (not enough(groups) and version < MOST_STEPS):
            groups += await run.trainer.take(version)
            version += 1
            await run.trainer.announce(tiny.publish(version, directory / "weights", adapter=adapters))
        assert_ledger_is_true(run.controller)
    return groups


def spanning(groups: list[Group], span: int = 2) -> list[tuple[Group, Trajectory]]:
    """The trajectories with so many policy versions or more."""
    return [
        (group, trajectory)
        for group in groups
        for trajectory in group.trajectories
        if len(set(trajectory.policy_versions)) >= span
    ]


def compared(groups: list[Group], span: int = 2) -> list[tuple[Group, Trajectory]]:
    """Of those with so many versions or more, as many as are quickly computed again, from all steps alike."""
    found = spanning(groups, span)
    return found[:: max(1, math.ceil(len(found) / MOST_COMPARED))]


def span_versions(groups: list[Group]) -> bool:
    return len(compared(groups)) >= 10


def span_many_versions(groups: list[Group]) -> bool:
    found = [trajectory for _, trajectory in compared(groups)]
    versions = {version for trajectory in found for version in trajectory.policy_versions}
    tokens = sum(len(trajectory.token_ids) for trajectory in found)
    return span_versions(groups) and len(versions) >= 3 and tokens > 1000


def largest_difference(
    tiny: TinyModel,
    groups: list[Group],
    directory: Path,
    *,
    adapters: bool = False,
    temperature: float = 1.0,
    span: int = 2,
    least: int = 10,
) -> dict[str, Any]:
    """Over the trajectories that span versions, `span` of them or more."""
    found = [
        {
            "prompt": group.prompt_token_ids,
            "tokens": trajectory.token_ids,
            "logprobs": trajectory.behavior_logprobs,
            "versions": trajectory.policy_versions,
            "temperature": temperature,
            "weights": {
                str(v): str(tiny.adapter(v) if adapters else tiny.version(v))
                for v in set(trajectory.policy_versions)
            },
            "base": str(tiny.base),
        }
        for group, trajectory in compared(groups, span)
    ]
    assert len(found) >= least, "hardly any trajectory spans versions"
    file = directory / "trajectories.json"
    file.write_text(json.dumps(found))
    result: dict[str, Any] = json.loads(
        run_with_node_python(tiny.node_python, "recompute_logprobs.py", str(file))
    )
    return result


@pytest.mark.parametrize(
    ("adapters", "temperature"), [(False, 1.0), (True, 0.7)], ids=["whole weights", "adapters"]
)
async def test_every_token_has_the_log_probability_of_the_version_that_it_names(
    tiny: TinyModel, real_engine: RealEngine, tmp_path: Path, adapters: bool, temperature: float
) -> None:
    groups = await train_steps(
        tiny, real_engine, tmp_path, adapters=adapters, temperature=temperature, enough=span_many_versions
    )
    result = largest_difference(tiny, groups, tmp_path, adapters=adapters, temperature=temperature)
    assert len(result["by_version"]) >= 3
    assert result["tokens"] > 1000
    assert result["max"] < 1e-4, result
    print(result)


class BeforeSpans(EngineClient):
    """The real engine as one before 0.5.19 would look: the spans are cut out of its replies."""

    async def _post(self, path: str, body: dict[str, Any], timeout: float | None = None) -> bytes:
        content = await super()._post(path, body, timeout)
        if path != "generate":
            return content
        reply = json.loads(content)
        reply["meta_info"].pop("weight_versions", None)
        return json.dumps(reply).encode()


async def test_aborted_and_sent_anew_every_token_has_the_log_probability_of_its_version(
    tiny: TinyModel,
    real_engine: RealEngine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With spans the client checks them against the same word; here it has nothing else."""
    monkeypatch.setattr("tests.unit.rollout.harness.EngineClient", BeforeSpans)
    groups = await train_steps(
        tiny, real_engine, tmp_path, interruption="abort", temperature=0.7, enough=span_many_versions
    )
    result = largest_difference(tiny, groups, tmp_path, temperature=0.7)
    assert len(result["by_version"]) >= 3
    assert result["tokens"] > 1000
    assert result["max"] < 1e-4, result
    print(result)


async def test_without_interruption_no_trajectory_spans_versions_and_each_is_of_its_version(
    tiny: TinyModel, real_engine: RealEngine, tmp_path: Path
) -> None:
    groups = await train_steps(tiny, real_engine, tmp_path, interruptible=False, max_new_tokens=120)
    seen = [set(t.policy_versions) for g in groups for t in g.trajectories]
    assert {len(versions) for versions in seen} == {1}
    assert len(set.union(*seen)) > 1, "no version but the first was ever sampled from"
    assert largest_difference(tiny, groups, tmp_path, span=1)["max"] < 1e-4


async def test_negative_control_without_retraction_and_flush_they_differ(
    tiny: TinyModel, real_engine: RealEngine, tmp_path: Path
) -> None:
    """A load into a running batch leaves keys and values of the old weights: the test above would notice."""

    def stale_cache(options: WorkerConfig) -> WorkerConfig:
        return replace(options, pause_mode="in_place")

    groups = await train_steps(tiny, real_engine, tmp_path, change=stale_cache, enough=span_versions)
    assert largest_difference(tiny, groups, tmp_path)["max"] > 1e-2


async def test_negative_control_without_loads_nothing_spans_versions(
    tiny: TinyModel, real_engine: RealEngine, tmp_path: Path
) -> None:
    def no_loads(options: WorkerConfig) -> WorkerConfig:
        return replace(options, skip_loads=True)

    groups = await train_steps(tiny, real_engine, tmp_path, change=no_loads)
    assert {v for g in groups for t in g.trajectories for v in t.policy_versions} == {0}


async def test_a_directory_with_missing_tensors_never_reaches_the_engine(
    tiny: TinyModel, real_engine: RealEngine, tmp_path: Path
) -> None:
    weights = tmp_path / "weights"
    async with harness(tiny, tmp_path, staleness={"max": 2}) as run:
        worker = run.start_worker(real_engine.port, real_engine.api_key)
        await run.trainer.announce(tiny.publish(0, weights), "none")
        await run.trainer.take(0)
        await run.until(
            lambda: len(run.controller.state.groups.buffered) >= 4
        )  # the next batch: a STALE engine claims nothing
        half = weights / "v00000001"
        shutil.copytree(tiny.version(1), half)
        (half / "manifest.json").unlink()
        write_safetensors(half / "model.safetensors", {"model.norm.weight": (64,)})
        await run.trainer.announce(seal(half, 1, {"model.norm.weight": (64,)}))
        await run.until(lambda: run.controller.state.counters.failed_loads == 1)
        assert await worker.client.weight_version() == "0"
        await run.trainer.take(1)
        await run.trainer.announce(tiny.publish(2, weights))
        await run.until(lambda: not any(engine.stale for engine in run.controller.state.engines.all()))
        assert await worker.client.weight_version() == "2"


async def test_at_eta_0_two_engines_and_one_late_load_sample_only_the_batchs_version(
    tiny: TinyModel, real_engine: RealEngine, second_engine: RealEngine, tmp_path: Path
) -> None:
    import asyncio

    async with harness(tiny, tmp_path, staleness={"max": 0}, rollout={"max_new_tokens": 40}) as run:
        run.start_worker(real_engine.port, real_engine.api_key)
        late = run.start_worker(second_engine.port, second_engine.api_key, index=1)
        load = late.client.update_weights

        async def load_late(directory: str, *, version: int, flush_cache: bool) -> None:
            if version == 7:
                await asyncio.sleep(3.0)
            await load(directory, version=version, flush_cache=flush_cache)

        late.client.update_weights = load_late  # type: ignore[method-assign]
        await run.trainer.announce(tiny.publish(0, tmp_path / "weights"), "none")
        for version in range(20):
            groups = await run.trainer.take(version)
            seen = {v for g in groups for t in g.trajectories for v in t.policy_versions}
            assert seen == {version}
            await run.trainer.announce(tiny.publish(version + 1, tmp_path / "weights"))
        await run.until(
            lambda: run.controller.state.counters.acks > 20
        )  # that of the last version comes later


async def test_an_engine_joins_evaluates_takes_over_and_every_token_is_still_of_its_version(
    tiny: TinyModel, real_engine: RealEngine, second_engine: RealEngine, tmp_path: Path
) -> None:
    """The first engine begins alone; the second joins; one of them is leased for an evaluation; the first leaves in the
    middle of its groups, which the second finishes from their tokens."""
    evaluation = {
        "split": "train", "prompts": 6, "samples": 1, "every_steps": 2, "at_start": False, "at_end": False,
        "max_new_tokens": 40,
    }  # fmt: skip
    sections = {"evaluation": evaluation, "staleness": {"max": 4, "on_straggler": "keep"}}
    groups: list[Group] = []
    async with harness(tiny, tmp_path, **sections, rollout={"engines": 2}) as run:

        async def step() -> None:
            version = run.controller.state.versions.number
            groups.extend(await run.trainer.take(version))
            await run.trainer.announce(tiny.publish(version + 1, tmp_path / "weights"))

        first = run.start_worker(real_engine.port, real_engine.api_key)
        await run.trainer.announce(tiny.publish(0, tmp_path / "weights"), "none")
        await step()
        run.start_worker(second_engine.port, second_engine.api_key, index=1)
        await run.until(lambda: len(run.controller.state.engines.all()) == 2)
        await step()
        while not run.controller.state.evaluations.scores:
            await step()
            await run.until(
                lambda: run.controller.state.evaluations.pending is None
            )  # else the next one takes its place
        [(label, scores), *_] = run.controller.state.evaluations.scores.items()
        assert label == f"step-{scores.version}" and scores.version % 2 == 0
        assert (scores.prompts, scores.samples) == (6, 1)

        def held() -> set[str]:
            return {
                claim.group_id for claim in run.controller.state.groups.claims.all_of_worker("rollout-0/0")
            }

        async def has_tokens() -> bool:
            """Of members of groups: of the requests that run, one may be a load's probe, or all an evaluation's."""
            load = await first.client.load()
            generates = load is not None and load.running_requests > 1
            return generates and bool(held()) and run.controller.state.evaluations.pending is None

        while not await has_tokens():
            if not held():
                await step()
            await asyncio.sleep(0.05)
        before = run.controller.state.tokens.counts().generated
        first.stop.set()
        assert await first.task == "stopped"
        assert [e.worker_id for e in run.controller.state.engines.all()] == ["rollout-1/0"]
        assert run.controller.state.tokens.counts().generated > before, "it gave no tokens back"
        waiting = {held.group_id for held in run.controller.state.groups.waiting if held.partial}
        while waiting - {group.group_id for group in groups} or len(spanning(groups)) < 10:
            await step()
        assert run.controller.state.ledger.counts().dropped == {}
        assert_ledger_is_true(run.controller)
        moved = [group for group in groups if group.group_id in waiting]
    result = largest_difference(tiny, groups, tmp_path)
    assert result["max"] < 1e-4, result
    if moved:
        assert largest_difference(tiny, moved, tmp_path, span=1, least=1)["max"] < 1e-4
