"""The worker as the agent starts it, with the scripted engine as its child: who dies with whom, who comes back."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import psutil
import pytest

from control_plane.runs.attempt_certificate import create_certificate
from gpu_agents.job import listen_for_peers
from gpu_agents.rollout.chat_template import ChatTemplate
from gpu_agents.rollout.controller.engine_registry import ENGINE_TIMEOUT_SECONDS
from gpu_agents.rollout.controller.stall_aware_clock import StallAwareClock
from gpu_agents.rollout.controller.weight_server import WeightServer
from oolong.contracts.attempt import READY_FILE, JobFile, PeerListenerFile, read_attempt
from oolong.contracts.lifecycle import JobKind
from oolong.contracts.rollout import PublishedWeights
from oolong.contracts.telemetry import Note, Points
from oolong.sandbox import probe_sandbox
from tests.support.isolation import require_isolation
from tests.support.outboxes import written_lines
from tests.support.ports import reserve_port
from tests.support.waiting import eventually
from tests.unit.rollout.harness import TOKEN, Harness, run_spec
from tests.unit.rollout.model_files import publish, write_model, write_rows
from tests.unit.rollout.simulation import assert_ledger_is_true

ROOT = Path(__file__).resolve().parents[3]


class TestClock(StallAwareClock):
    """The controller's: it stands still, so that nobody falls silent because a machine is slow."""

    __test__ = False
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class WorkerProcess:
    process: subprocess.Popen[bytes]
    directory: Path
    engine_port: int

    @property
    def engines(self) -> list[psutil.Process]:
        """Every process that was started for this engine port, wherever it hangs in the tree."""
        return [
            process
            for process in psutil.process_iter(["cmdline", "status"])
            if str(self.engine_port) in (process.info["cmdline"] or [])
            and process.info["status"] != psutil.STATUS_ZOMBIE
        ]

    def hold(self, tokens: int, *, probes: bool = False) -> None:
        """From now on no request of its engine gets more tokens than these, so that none ends."""
        new = self.directory / "hold.new"
        new.write_text(json.dumps({"tokens": tokens, "probes": probes}))
        new.replace(self.directory / "hold.json")

    def let_go(self) -> None:
        (self.directory / "hold.json").unlink()

    @property
    def held(self) -> list[int]:
        """Tokens of each request of the engine, since it is held."""
        file = self.directory / "tokens.json"
        tokens: list[int] = json.loads(file.read_text()) if file.exists() else []
        return tokens

    @property
    def reason(self) -> str:
        return str(json.loads((self.directory / "result.json").read_text())["reason"])

    @property
    def message(self) -> str:
        return str(json.loads((self.directory / "result.json").read_text())["message"])

    @property
    def notes(self) -> list[str]:
        return [line.kind for line in written_lines(self.directory) if isinstance(line, Note)]


async def until(condition: Callable[[], bool], what: str) -> None:
    """For states that stay: the engines are held, and the controller's clock stands still."""
    await eventually(condition, what)


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture
def harness(tmp_path: Path, clock: TestClock) -> Harness:
    spec = run_spec(staleness={"max": 2}, rollout={"max_new_tokens": 60, "engine_max_running_requests": 8})
    rows = write_rows(tmp_path / "rows.jsonl", 60)
    return Harness(tmp_path / "attempt", spec, write_model(tmp_path / "model"), rows, clock=clock)


@pytest.fixture
def versions(tmp_path: Path) -> Callable[[int], PublishedWeights]:
    return lambda version: publish(tmp_path / "weights", version)


@pytest.fixture
def start(harness: Harness, tmp_path: Path) -> Iterator[Callable[..., WorkerProcess]]:
    """Start `python -m gpu_agents.rollout.worker` for the harness's attempt."""
    started: list[subprocess.Popen[bytes]] = []

    def start_worker(
        *,
        token_seconds: float,
        hold_at: int | None = None,
        die_at_boot: bool = False,
        index: int = 0,
        workflow_source: str = "",
        evaluates: str = "",
        elsewhere: dict[str, str] | None = None,  # what attempt.json says on another node than the trainer's
    ) -> WorkerProcess:
        jobs = tmp_path / "jobs"
        name = f"evaluator-{index}" if evaluates else f"rollout-{index}"
        directory = jobs / f"{name}-0"
        directory.mkdir(parents=True)
        (jobs / "token_seconds").write_text(str(token_seconds))
        if die_at_boot:
            (jobs / "die_at_boot").touch()
        node_python = tmp_path / "node-python"
        script = ROOT / "tests" / "unit" / "rollout" / "fake_sglang_launch.py"
        node_python.write_text(
            f'#!/bin/sh\nPYTHONPATH="{ROOT}/platform:{ROOT}" exec "{sys.executable}" "{script}" "$@"\n'
        )
        node_python.chmod(0o755)
        port = reserve_port()
        (tmp_path / "workflow.py").write_text(workflow_source)
        attempt = msgspec.structs.replace(
            read_attempt(harness.directory / "attempt.json"),
            source_files={"workflow": str(tmp_path / "workflow.py")} if workflow_source else {},
            engine_ports=[],  # each comes with a port of its own, as one that joins a live run
            node_python=str(node_python),
            controller_url=f"http://127.0.0.1:{harness._ports[0]}",
            reward_url=f"http://127.0.0.1:{harness._ports[1]}",
        )
        attempt = msgspec.structs.replace(attempt, **(elsewhere or {}))
        attempt_file = tmp_path / f"attempt-{index}.json"
        attempt_file.write_bytes(msgspec.json.encode(attempt))
        job = JobFile(
            job_id=f"job_{index}",
            name=name,
            kind=JobKind.ROLLOUT,
            index=index,
            engine_port=port,
            evaluates=evaluates,
        )
        (directory / "job.json").write_bytes(msgspec.json.encode(job))
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "PYTHONPATH": f"{ROOT}/platform:{ROOT}",
        }
        files = ["--attempt", str(attempt_file), "--job", str(directory)]
        if hold_at is not None:
            (directory / "hold.json").write_text(json.dumps({"tokens": hold_at, "probes": False}))
        with (directory / "output.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "gpu_agents.rollout.worker", *files],
                env=environment, cwd=directory, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        started.append(process)
        return WorkerProcess(process, directory, port)

    yield start_worker
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()


async def test_a_killed_engine_is_started_again_and_the_run_goes_on_with_the_current_version(
    harness: Harness, start: Callable[..., WorkerProcess], versions: Callable[[int], PublishedWeights]
) -> None:
    async with harness as run:
        worker = start(token_seconds=0.01)
        await run.trainer.announce(versions(0), "none")
        await run.trainer.take(0)
        worker.hold(3)
        await run.trainer.announce(versions(1))
        await until(lambda: len(run.controller.state.groups.running) >= 4, "the engine is full")
        for engine in worker.engines:
            engine.kill()
        worker.let_go()
        await until(
            lambda: worker.notes[1:2] == ["engine_restarted"], "it is said that the engine was restarted"
        )
        await run.trainer.take(1)
        await run.trainer.announce(versions(2))
        groups = await run.trainer.take(2)
        assert {v for g in groups for t in g.trajectories for v in t.policy_versions} <= {0, 1, 2}
        assert run.controller.state.ledger.counts().dropped == {}
        assert_ledger_is_true(run.controller)
        await run.trainer.end()
        await until(lambda: worker.process.poll() == 0, "the worker ends with the run")
        assert worker.reason == "completed"
        assert worker.notes == ["engine_serves", "engine_restarted", "engine_serves"]
        assert worker.engines == []


async def test_an_engine_that_keeps_dying_ends_the_worker_with_that_reason(
    harness: Harness, start: Callable[..., WorkerProcess]
) -> None:
    async with harness:
        worker = start(token_seconds=0.01, die_at_boot=True)
        await until(lambda: worker.process.poll() is not None, "the worker gives up")
        assert worker.process.returncode == 1
        assert worker.reason == "rollout_crash_loop"
        assert worker.notes == ["engine_boot_failed"] * 2
        assert "failed to boot 3 times in a row" in worker.message
        assert worker.message.endswith("no memory for this engine"), "its log's end is part of the reason"
        assert not (worker.directory / READY_FILE).exists()


async def test_sigterm_gives_the_groups_back_before_the_engine_is_ended(
    harness: Harness, start: Callable[..., WorkerProcess], versions: Callable[[int], PublishedWeights]
) -> None:
    async with harness as run:
        worker = start(token_seconds=0.01, hold_at=3)
        await run.trainer.announce(versions(0), "none")
        await until(lambda: worker.held == [3] * 8, "both members of four groups have tokens")
        os.killpg(worker.process.pid, signal.SIGTERM)  # as an agent that signals the whole group
        await until(lambda: worker.process.poll() is not None, "the worker ends")
        assert (worker.process.returncode, worker.reason) == (0, "stopped_by_user")
        assert run.controller.state.ledger.counts().waiting == 4
        assert run.controller.state.tokens.counts().in_hand == 4 * 2 * 3
        assert worker.engines == []
        assert_ledger_is_true(run.controller)


async def test_an_engine_dies_with_a_worker_that_is_killed(
    harness: Harness, start: Callable[..., WorkerProcess], versions: Callable[[int], PublishedWeights]
) -> None:
    async with harness as run:
        worker = start(token_seconds=0.01, hold_at=3)
        await run.trainer.announce(versions(0), "none")
        await until(lambda: len(run.controller.state.groups.running) == 4, "the engine is full")
        assert worker.engines
        worker.process.kill()
        await until(lambda: worker.engines == [], "the engine is gone")


async def test_a_worker_that_is_stopped_while_it_loads_keeps_its_version_on_disk_and_no_other(
    harness: Harness,
    start: Callable[..., WorkerProcess],
    versions: Callable[[int], PublishedWeights],
    tmp_path: Path,
) -> None:
    """At most two versions and one for each engine that loads (SEMANTICS section 4)."""

    def on_disk() -> list[str]:
        return sorted(path.name for path in (tmp_path / "weights").iterdir())

    async with harness as run:
        worker = start(token_seconds=0.01)
        await run.trainer.announce(versions(0), "none")
        await until(
            lambda: len(run.controller.state.groups.buffered) == 12, "all that the gate admits: three batches"
        )
        await until(lambda: run.controller.state.counters.acks == 1, "version 0 is acknowledged")
        worker.hold(3, probes=True)  # a load ends with the last token of its probe
        await run.trainer.take(0)
        await run.trainer.announce(versions(1))
        await until(lambda: run.controller.state.versions.loading == 1, "the worker loads version 1")
        worker.process.send_signal(signal.SIGSTOP)
        for version in (1, 2):
            await run.trainer.take(version)
            weights = versions(version + 1)
            assert len(on_disk()) <= 2 + run.controller.state.versions.loading
            await run.trainer.announce(weights)
            names = ["v00000001", f"v{weights.version:08d}"]
            await until(lambda names=names: on_disk() == names, f"{names} alone are left")  # type: ignore[misc]
        worker.let_go()
        worker.process.send_signal(signal.SIGCONT)
        await until(lambda: on_disk() == ["v00000003"], "the newest version alone is left")
        await run.trainer.take(3)
        assert run.controller.state.ledger.counts().dropped == {}
        assert_ledger_is_true(run.controller)


@asynccontextmanager
async def peer_servers(run: Harness, weights: Path, node: Path) -> AsyncIterator[dict[str, str]]:
    """The attempt listens for other nodes, at an address of its own. What it says to a worker on `node`."""
    own = create_certificate("attempt", now=datetime.now(UTC))
    listener = PeerListenerFile(
        address="127.0.0.2", certificate=own.certificate, private_key=own.private_key, weights_port=0
    )
    for rpc, port in zip((run.server.rpc, run.reward_service.rpc), run._ports, strict=True):
        await listen_for_peers(rpc, listener, port=port)
    server = WeightServer(weights, token=TOKEN)
    port = await asyncio.to_thread(server.start, listener)
    (node / "weights").mkdir(parents=True)
    yield {
        "directory": str(node),
        "controller_url": f"https://127.0.0.2:{run._ports[0]}",
        "reward_url": f"https://127.0.0.2:{run._ports[1]}",
        "weights_url": f"https://127.0.0.2:{port}",
        "certificate": own.certificate,
    }
    await asyncio.to_thread(server.close)


async def test_a_worker_on_another_node_fetches_every_version_and_its_loss_requeues_its_groups(
    harness: Harness,
    start: Callable[..., WorkerProcess],
    versions: Callable[[int], PublishedWeights],
    clock: TestClock,
    tmp_path: Path,
) -> None:
    """The other node shares no path with the trainer's, and is lost at one blow while it generates."""
    node = tmp_path / "another node"

    def fetched() -> list[str]:
        return sorted(path.name for path in (node / "weights").glob("v*"))

    async with harness as run, peer_servers(run, tmp_path / "weights", node) as elsewhere:
        remote = start(token_seconds=0.01, elsewhere=elsewhere)
        weights = versions(0)
        await run.trainer.announce(weights, "none")
        await run.trainer.take(0)
        assert fetched() == ["v00000000"]
        for file in sorted(Path(weights.directory).iterdir()):
            assert (node / "weights" / "v00000000" / file.name).read_bytes() == file.read_bytes()
        remote.hold(3)
        await run.trainer.announce(versions(1))
        await until(lambda: run.controller.state.counters.acks == 2, "version 1 is loaded too")
        await until(lambda: fetched() == ["v00000001"], "the older version is removed")
        await until(lambda: len(run.controller.state.groups.running) == 4, "its engine is full")
        claimed = {
            claim.group_id for claim in run.controller.state.groups.claims.all_of_worker("rollout-0/0")
        }

        def seconds() -> list[int]:
            lines = written_lines(remote.directory)
            return [line.x for line in lines if isinstance(line, Points) and line.axis == "time"]

        await until(lambda: bool(seconds()), "it reports metrics")
        assert min(seconds()) > 1e9, "seconds since the attempt began: its controller says at 0"

        os.killpg(remote.process.pid, signal.SIGKILL)
        for engine in remote.engines:
            engine.kill()
        local = start(token_seconds=0.01, index=1)
        await until(
            lambda: run.controller.state.counters.acks == 3, "an engine on the trainer's node has joined"
        )
        clock.now += ENGINE_TIMEOUT_SECONDS + 1
        trained: set[str] = set()
        while not claimed <= trained:
            version = run.controller.state.versions.number
            trained |= {group.group_id for group in await run.trainer.take(version)}
            await run.trainer.announce(versions(version + 1))
        assert run.controller.state.ledger.counts().dropped == {}
        assert_ledger_is_true(run.controller)
        await run.trainer.end()
        await until(lambda: local.process.poll() == 0, "the worker ends with the run")


async def test_engines_join_and_leave_a_live_run_and_no_group_is_lost(
    harness: Harness,
    start: Callable[..., WorkerProcess],
    versions: Callable[[int], PublishedWeights],
    clock: TestClock,
) -> None:
    """Two begin; a third joins; the first is stopped and gives its tokens back; the second is killed outright."""
    harness.spec = run_spec(
        staleness={"max": 2}, rollout={"max_new_tokens": 60, "engine_max_running_requests": 2}
    )  # one group, and another beside its last member: three engines cannot have all that the gate admits
    trained: list[str] = []

    async def step(run: Harness) -> None:
        version = run.controller.state.versions.number
        trained.extend(group.group_id for group in await run.trainer.take(version))
        await run.trainer.announce(versions(version + 1))

    async def busy(run: Harness, name: str, *others: WorkerProcess) -> set[str]:
        """Its groups. The others are held: they have their places full, so what the gate admits is for this one."""

        def groups() -> set[str]:
            return {claim.group_id for claim in run.controller.state.groups.claims.all_of_worker(name)}

        for other in others:
            other.hold(0)
        while not groups():
            await until(
                lambda: bool(groups()) or len(run.controller.state.groups.buffered) >= 4,
                f"{name} has groups, or a batch is full",
            )
            if not groups():
                await step(run)
        return groups()

    async with harness as run:
        first, second = (start(token_seconds=0.01, index=index) for index in (0, 1))
        await until(lambda: run.controller.state.engines.joined == 2, "two have joined")
        await run.trainer.announce(versions(0), "none")
        await step(run)
        await step(run)

        third = start(token_seconds=0.01, hold_at=3, index=2)
        await until(lambda: run.controller.state.engines.joined == 3, "the third has joined")
        for group_id in await busy(run, "rollout-2/0", first, second):
            assert run.controller.state.groups.running[group_id].claim_version >= 2, (
                "it had not the current weights"
            )

        first.hold(3)
        await busy(run, "rollout-0/0")
        await until(lambda: any(first.held), "the first has tokens")  # more than three, of what it had before
        os.killpg(first.process.pid, signal.SIGTERM)
        await until(lambda: first.process.poll() == 0, "the first has ended")
        assert "rollout-0/0" not in {e.worker_id for e in run.controller.state.engines.all()}
        await until(
            lambda: any(
                group.partial
                for group in [
                    *run.controller.state.groups.waiting,
                    *run.controller.state.groups.running.values(),
                ]
            ),
            "what the first had sampled is released",
        )
        assert_ledger_is_true(run.controller)

        held = await busy(run, "rollout-1/0")
        second.process.kill()
        await until(lambda: second.engines == [], "its engine has died with it")
        third.let_go()
        while len(run.controller.state.engines.all()) > 1:
            clock.now += 20  # less than a silence: the third renews before the next one
            await until(
                lambda: heard(run, "rollout-2/0", since=clock.now), "the third has renewed its claims"
            )
            await until(lambda: not silent(run, now=clock.now), "the clock has ended what is silent")
        assert [e.worker_id for e in run.controller.state.engines.all()] == ["rollout-2/0"]
        while held - set(trained):
            await step(run)
            assert_ledger_is_true(run.controller)
        assert len(trained) == len(set(trained))
        counts = run.controller.state.ledger.counts()
        assert (counts.dropped, counts.late_submits) == ({}, 0)
        assert counts.trained == len(trained)
        await run.trainer.end()
        await until(lambda: third.process.poll() == 0, "the third ends with the run")
        assert third.reason == "completed"


def silent(run: Harness, *, now: float) -> bool:
    return bool(
        run.controller.state.engines.expired(now=now) or run.controller.state.groups.claims.expired(now=now)
    )


def heard(run: Harness, worker_id: str, *, since: float) -> bool:
    claims = run.controller.state.groups.claims.all_of_worker(worker_id)
    engines = [engine for engine in run.controller.state.engines.all() if engine.worker_id == worker_id]
    return all(one.last_seen_at >= since for one in engines) and all(c.renewed_at >= since for c in claims)


TWO_TURNS = """
async def run(episode, *, answer_with):
    await episode.sample()
    await episode.append_messages([{"role": "user", "content": answer_with}])
    await episode.sample()
    return await episode.score() + 0.5
"""


async def test_an_uploaded_workflow_is_played_in_the_sandbox_and_leaves_no_process(
    harness: Harness, start: Callable[..., WorkerProcess], versions: Callable[[int], PublishedWeights]
) -> None:
    probe_result = probe_sandbox(slots=1)
    require_isolation(probe_result.capabilities)
    harness.spec = run_spec(
        workflow={"function": "two-turns@1", "options": {"answer_with": "No."}},
        rollout={"max_new_tokens": 60, "engine_max_running_requests": 8, "max_concurrent_groups": 4},
        trainer={"groups_per_step": 4, "total_train_steps": 1},
    )
    feedback = ChatTemplate(harness.model_directory).encode("<|user|>No.<|assistant|>")
    async with harness as run:
        worker = start(token_seconds=0.001, workflow_source=TWO_TURNS)
        await run.trainer.announce(versions(0), "none")
        boxes: list[psutil.Process] = []

        def sandbox_runs() -> bool:
            descendants = psutil.Process(worker.process.pid).children(recursive=True)
            boxes.extend(process for process in descendants if is_live_sandbox(process))
            return bool(boxes)

        # Watched from the start: once the last group is done, its sandboxes may end.
        groups, _ = await asyncio.gather(
            run.trainer.take(0), until(sandbox_runs, "the workflow runs in the sandbox")
        )
        for trajectory in [t for group in groups for t in group.trajectories]:
            assert [turn.sampled for turn in trajectory.turns] == [True, False, True]
            start_of_feedback = trajectory.turns[0].tokens
            assert trajectory.token_ids[start_of_feedback:][: len(feedback)] == feedback
            assert (trajectory.score, trajectory.reward) == (0.0, 0.5)
        await run.trainer.announce(versions(1))
        await run.trainer.end()
        await until(lambda: worker.process.poll() is not None, "the worker ends with the run")
        assert worker.reason == "completed"
        assert not worker.engines
    await until(lambda: not any(map(lives, boxes)), "the sandboxes have ended with the worker")


def is_live_sandbox(process: psutil.Process) -> bool:
    try:
        return lives(process) and process.name() == "bwrap"
    except psutil.NoSuchProcess:
        return False


def lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def test_an_evaluator_scores_its_version_beside_the_runs_engine_outlives_its_own_and_ends(
    harness: Harness, start: Callable[..., WorkerProcess], versions: Callable[[int], PublishedWeights]
) -> None:
    evaluation = {
        "split": "train", "prompts": 6, "samples": 1, "every_steps": 1, "at_start": False, "at_end": False,
        "allow_blocking": True, "max_new_tokens": 200,
    }  # fmt: skip
    harness.spec = run_spec(evaluation=evaluation, rollout={"max_new_tokens": 20}, staleness={"max": 2})
    async with harness as run:
        plan = run.controller.state.evaluations.plan
        assert plan is not None
        run.controller.state.evaluations.plan = replace(plan, evaluator_seconds=3600.0)
        run_engine = start(token_seconds=0.005)
        await run.trainer.announce(versions(0), "none")
        await run.trainer.take(0)
        await run.trainer.announce(versions(1))
        evaluator = start(token_seconds=0.005, hold_at=3, index=1, evaluates="step-1-v1")
        evaluations = run.controller.state.evaluations
        await until(lambda: evaluations.worker_id == "evaluator-1/0", "the evaluator has begun")
        [engine] = evaluator.engines
        engine.kill()
        evaluator.let_go()
        await until(lambda: evaluator.notes == ["engine_restarted"], "its engine is started again")
        await run.trainer.take(1)
        await run.trainer.announce(versions(2))
        await until(lambda: "step-1" in evaluations.scores, "it has scored")
        assert (evaluations.scores["step-1"].version, evaluations.scores["step-1"].prompts) == (1, 6)
        await until(lambda: evaluator.process.poll() is not None, "it ends")
        assert (evaluator.process.returncode, evaluator.reason) == (0, "completed")
        assert evaluator.engines == [] and evaluations.evaluators.all() == []
        assert {one.worker_id for one in run.controller.state.engines.all()} == {"rollout-0/0"}
        assert run.controller.state.engines.joined == 1
        await run.trainer.take(2)  # the run's own engine went on all the time
        assert_ledger_is_true(run.controller)
        run_engine.process.send_signal(signal.SIGTERM)
        await until(lambda: run_engine.process.poll() is not None, "the run's own worker ends")
