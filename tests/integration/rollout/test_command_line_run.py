"""A whole attempt from the command line: controller, reward service, worker, SGLang, trainer; killed and resumed.

First attempt: the engine is killed in the middle of generation, later the trainer. Second attempt: continues from the
last committed checkpoint to the end. Every third row's reward raises. The reward is 1 for a completion that stops
by itself, which the random model does now and then.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from gpu_agents.rollout.controller.prompt_order import PromptOrder, one_source
from oolong.contracts.run_spec import RunSpec
from oolong.contracts.telemetry import AnyLine, Note, Points, StateSnapshot, TrajectoryLine
from tests.integration.rollout.conftest import TinyModel
from tests.support import failing_reward
from tests.support.tiny_specs import tiny_run_spec
from tests.tools.local_attempt import LocalAttempt

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(900)]  # three boots of an engine

BATCH, MORE = 8, 5  # it continues for so many steps after the checkpoint
MOST_STALE = 3
ROWS = 300


@dataclass
class Story:
    """Both attempts, over."""

    first: LocalAttempt
    second: LocalAttempt
    results: dict[str, Any]
    summaries: dict[str, Any]
    resumed_at: int

    @property
    def steps(self) -> int:
        return self.resumed_at + MORE


def spec(*, steps: int) -> RunSpec:
    return tiny_run_spec(
        {
            "name": "command line",
            "model": {"base_model": "tiny"},
            "dataset": {"version": "rows"},
            "reward": {
                "name": "exact_match",
                "options": {"extract": "regex", "pattern": "()"},
                "max_error_rate": 1.0,
            },
            "rollout": {"group_size": 4, "max_new_tokens": 100, "engine_max_running_requests": 32},
            "staleness": {"max": MOST_STALE},
            "trainer": {"total_train_steps": steps, "groups_per_step": BATCH, "minibatches": 2},
            "checkpoint": {"every_steps": 3},
        }
    )


@pytest.fixture(scope="module")
def story(tiny: TinyModel, tmp_path_factory: pytest.TempPathFactory) -> Story:
    directory = tmp_path_factory.mktemp("run")
    dataset = directory / "rows.jsonl"
    with dataset.open("w") as file:
        for row in range(ROWS):
            messages = [{"role": "user", "content": f"{row}"}]
            line = {"row": row, "split": "train", "messages": messages, "answer": "", "completion": None}
            file.write(json.dumps(line) + "\n")

    def attempt(name: str, *, steps: int, resume: Path | None = None) -> LocalAttempt:
        return LocalAttempt(
            directory=directory / name,
            spec=spec(steps=steps),
            model_directory=tiny.base,
            dataset_file=dataset,
            node_python=str(tiny.node_python),
            reward_module=failing_reward.MODULE,
            resume_directory=resume,
        )

    first = attempt("first", steps=1000)  # however late it is killed, it is in the middle
    try:
        first.start_all()
        until(first, lambda: trained_steps(first) >= 2)
        kill_engine(first)
        until(first, lambda: told_restarts(first)[-1:] == [1.0])
        # More than the buffer can hold: the engine is at work again.
        back = trained_steps(first) + MOST_STALE + 2
        until(first, lambda: trained_steps(first) >= back)
        until(first, lambda: newest_checkpoint(first) >= first_spanning_step(first))
        kill_trainer(first)
    finally:
        first.stop()
    resumed_at = newest_checkpoint(first)
    newest = first.directory / "checkpoints" / f"step-{resumed_at:08d}"
    second = attempt("second", steps=resumed_at + MORE, resume=newest)
    try:
        second.start_all()
        results = second.wait(timeout=300)
    finally:
        second.stop()
    return Story(first, second, results, second.summaries(), resumed_at)


def until(attempt: LocalAttempt, condition: Callable[[], bool], *, seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        for job in attempt.jobs.values():
            assert job.process.poll() is None, (
                f"{job.name}: {(job.directory / 'output.log').read_text()[-3000:]}"
            )
        assert time.monotonic() < deadline, {
            j.name: (j.directory / "output.log").read_text()[-1500:] for j in attempt.jobs.values()
        }
        time.sleep(0.1)


def log_of(attempt: LocalAttempt, job: str) -> str:
    return (attempt.jobs[job].directory / "output.log").read_text()


def trained_ids(attempt: LocalAttempt) -> dict[int, list[str]]:
    found = re.findall(r"version (\d+) was trained on (.*)", log_of(attempt, "controller"))
    return {int(version): ids.split() for version, ids in found}


def trained_steps(attempt: LocalAttempt) -> int:
    return max(trained_ids(attempt), default=0)


def told_restarts(attempt: LocalAttempt) -> list[float]:
    """As the worker of the engine wrote them down."""
    return [
        line.values["engine/restarts"]
        for line in lines(attempt, "rollout-0")
        if isinstance(line, Points) and "engine/restarts" in line.values
    ]


def newest_checkpoint(attempt: LocalAttempt) -> int:
    """Its step, 0 if there is none."""
    committed = (attempt.directory / "checkpoints").glob("step-*")
    return max((int(path.name.split("-")[1]) for path in committed), default=0)


def first_spanning_step(attempt: LocalAttempt) -> float:
    """The first that was trained on a trajectory of several versions: each step shows the widest of its own."""
    found = [
        line.step
        for line in lines(attempt, "controller")
        if isinstance(line, TrajectoryLine) and len(set(line.policy_versions[::2])) > 1
    ]
    return min(found, default=math.inf)


def kill_engine(attempt: LocalAttempt) -> None:
    """Its scheduler, which is where a crash in the model happens, while requests run."""
    worker = psutil.Process(attempt.jobs["rollout-0"].process.pid)
    schedulers = [
        p for p in worker.children(recursive=True) if "scheduler" in " ".join(p.cmdline() or [p.name()])
    ]
    assert schedulers, [p.cmdline() for p in worker.children(recursive=True)]
    schedulers[0].kill()


def kill_trainer(attempt: LocalAttempt) -> None:
    """torchrun and its ranks, which are sessions of their own and would wait for the controller otherwise."""
    launcher = psutil.Process(attempt.jobs["trainer"].process.pid)
    for process in [launcher, *launcher.children(recursive=True)]:
        process.kill()


def lines(attempt: LocalAttempt, job: str) -> list[AnyLine]:
    return attempt.jobs[job].lines()


def test_the_second_attempt_completes(story: Story) -> None:
    reasons = {name: result and result["reason"] for name, result in story.results.items()}
    assert reasons["trainer"] == reasons["controller"] == reasons["rollout-0"] == "completed"
    assert story.summaries["trainer"]["policy_version"] == story.steps


def test_every_group_is_trained_once_across_the_recovery(story: Story) -> None:
    before = {v: ids for v, ids in trained_ids(story.first).items() if v <= story.resumed_at}
    after = trained_ids(story.second)
    assert sorted([*before, *after]) == list(range(1, story.steps + 1))
    trained = [group_id for ids in [*before.values(), *after.values()] for group_id in ids]
    assert len(trained) == len(set(trained)) == BATCH * story.steps
    ledger = story.summaries["controller"]["ledger"]
    order = PromptOrder(one_source(range(ROWS)), seed=1)
    drawn = {order.next().group_id for _ in range(ledger["drawn"])}
    assert set(trained) <= drawn
    left = ledger["drawn"] - len(trained)
    assert left == sum(ledger["dropped_by_reason"].values())


def test_reward_errors_are_exactly_the_rows_that_raise(story: Story) -> None:
    ledger = story.summaries["controller"]["ledger"]
    assert ledger["errors"] == {"reward_error": ledger["dropped_by_reason"]["error"]}
    trained = [group_id for ids in trained_ids(story.second).values() for group_id in ids]
    assert all(int(group_id.split("-")[1]) % 3 for group_id in trained)


def test_ledgers_balance_and_what_recovery_lost_is_named(story: Story) -> None:
    summary = story.summaries["controller"]
    assert summary["ledger"]["balances"] and summary["tokens"]["balances"]
    assert summary["ledger"]["trained"] == BATCH * story.steps
    assert summary["tokens"]["lost_to_recovery"] >= 0


def test_the_killed_engine_was_restarted_and_loaded_the_current_version_first(story: Story) -> None:
    notes = [line for line in lines(story.first, "rollout-0") if isinstance(line, Note)]
    assert [n.kind for n in notes if n.kind != "engine_serves"] == ["engine_restarted"]
    assert told_restarts(story.first)[-1] == 1.0
    assert "before any load" not in log_of(story.first, "rollout-0")


def test_trajectories_span_versions_and_engine_and_trainer_agree(story: Story) -> None:
    # Of the whole run: what the first attempt had seen by its checkpoint counts.
    assert story.summaries["controller"]["trajectories_spanning_versions"] > 0
    mismatch = story.summaries["trainer"]["engine_mismatch"]
    assert mismatch["tokens_compared"] >= 2 * 32  # a slow engine skips versions, but not all of them
    assert mismatch["max"] < 1e-4
    # Every load is acknowledged, except one that ends after the controller: the run is over then.
    acks = story.summaries["controller"]["acks"]
    assert acks <= story.summaries["rollout-0"]["loads"] <= acks + 1


def test_no_engine_outlives_its_worker_and_old_weights_are_gone(story: Story) -> None:
    ports = {str(p) for attempt in (story.first, story.second) for p in attempt.attempt.engine_ports}
    left = [
        p.info["cmdline"] for p in psutil.process_iter(["cmdline"]) if ports & set(p.info["cmdline"] or [])
    ]
    assert left == []
    weights = Path(story.second.attempt.directory) / "weights"
    assert [path.name for path in weights.iterdir()] == [f"v{story.steps:08d}"]


def test_the_live_document_shows_the_pipeline(story: Story) -> None:
    documents = [line.value for line in lines(story.second, "controller") if isinstance(line, StateSnapshot)]
    assert documents[-1]["ended"]
    assert all(document["ledger"]["balances"] for document in documents)
    assert {"prompts", "running", "buffer", "training"} <= set(documents[0]["stages"])
