"""Workflows of users over their socket: what they get, what they can do, and what they cannot.

The process here is a plain child without walls (`plain_process`); that it is walled in is tested with the sandbox.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import gpu_agents.rollout.worker.__main__ as worker_door
from gpu_agents.job import Job
from gpu_agents.rollout.workflows import sandbox_host, sandbox_launcher
from gpu_agents.rollout.workflows.user_workflow import UserWorkflow, declares_migratable
from oolong.contracts.attempt import AttemptFile, JobFile
from oolong.contracts.lifecycle import EndReason, JobKind
from oolong.contracts.rollout import PublishedWeights
from oolong.sandbox import Capabilities, ProbeResult
from oolong.workflow import WorkflowFailed
from tests.support.plain_workflow_process import plain_process
from tests.unit.rollout.fake_engine import FakeEngine
from tests.unit.rollout.harness import Harness, run_spec
from tests.unit.rollout.model_files import write_model, write_rows
from tests.unit.rollout.simulation import assert_ledger_is_true
from tests.unit.rollout.workflows.test_workflows import assert_three_turns, assert_token_exact

THREE_TURNS = """
async def run(episode, *, turns=3):
    for turn in range(turns):
        said = await episode.sample()
        assert episode.context_token_ids[-len(said.token_ids):] == said.token_ids
        if turn < turns - 1:
            await episode.append_environment_tokens([258, 97, 259])
    return await episode.score()
"""


class Talk:
    """An episode of no engine."""

    prompt, prompt_token_ids, answer, row, room_tokens = "p", [1], "a", 0, 10
    context_token_ids = (1,)

    async def score(self, text: str | None) -> float:
        return 2.0


@pytest.fixture
async def new_run(tmp_path: Path) -> AsyncIterator[Callable[..., Harness]]:
    model = write_model(tmp_path / "model")
    rows = write_rows(tmp_path / "rows.jsonl", 60)
    made: list[UserWorkflow] = []

    def make(
        source: str, reward: Any = None, options: dict[str, Any] | None = None, **sections: Any
    ) -> Harness:
        spec = run_spec(**sections)
        workflow = UserWorkflow(source, options or {}, plain_process, host_capacity=spec.rollout.group_size)
        made.append(workflow)
        return Harness(tmp_path / "attempt", spec, model, rows, reward=reward, workflow=workflow.workflow)

    yield make
    for workflow in made:
        await workflow.close()


Make = Callable[..., Harness]
Versions = Callable[[int], PublishedWeights]
FEW = {"max_new_tokens": 60, "engine_max_running_requests": 8, "max_concurrent_groups": 4}


async def test_the_tokens_of_an_uploaded_workflow_are_the_engines(
    new_run: Make, engine: FakeEngine, versions: Versions
) -> None:
    async with new_run(THREE_TURNS, options={"turns": 3}, rollout=FEW) as run:
        run.start_worker(engine.port, engine.api_key)
        await run.trainer.announce(versions(0), "none")
        for group in await run.trainer.take(0):
            assert_token_exact(engine, group)
            for trajectory in group.trajectories:
                assert_three_turns(trajectory)
                assert trajectory.reward is not None
        assert_ledger_is_true(run.controller)


async def test_an_uploaded_workflow_that_is_moved_goes_on_from_its_tokens(
    new_run: Make, engine: FakeEngine, versions: Versions
) -> None:
    engine.token_seconds = 0.006
    async with new_run(THREE_TURNS, rollout=FEW) as run:
        first = run.start_worker(engine.port, engine.api_key)
        await run.trainer.announce(versions(0), "none")
        await run.until(lambda: any(len(request.prompt) > 30 for request in engine.running))
        first.stop.set()
        await first.task
        given_back = {
            (held.group_id, partial.index): partial.trajectory.token_ids
            for held in run.controller.state.groups.waiting
            for partial in held.partial
        }
        assert max(len(ids) for ids in given_back.values()) > 20
        async with FakeEngine(token_seconds=0.0005) as other:
            run.start_worker(other.port, other.api_key, index=1)
            groups = await run.trainer.take(0)
        for group in groups:
            for index, trajectory in enumerate(group.trajectories):
                before = given_back.get((group.group_id, index), [])
                assert trajectory.token_ids[: len(before)] == before
        assert "error" not in run.controller.state.ledger.counts().dropped
        assert_ledger_is_true(run.controller)


async def test_a_workflow_may_handle_what_does_not_fit(
    new_run: Make, engine: FakeEngine, versions: Versions
) -> None:
    source = """
from oolong.workflow import OutOfRoom

async def run(episode):
    try:
        while True:
            await episode.sample()
            await episode.append_messages([{"role": "user", "content": "again"}])
    except OutOfRoom as error:
        assert error.room == episode.room_tokens
    return 0.25
"""
    async with new_run(source, rollout=FEW, workflow={"max_trajectory_tokens": 80}) as run:
        run.start_worker(engine.port, engine.api_key)
        await run.trainer.announce(versions(0), "none")
        trajectories = [t for group in await run.trainer.take(0) for t in group.trajectories]
    assert all(len(t.token_ids) <= 80 and t.reward == t.score == 0.25 for t in trajectories)
    assert max(len(t.turns) for t in trajectories) >= 3


@pytest.mark.parametrize(
    ("body", "kind", "says"),
    [
        ("    return {}['x']", "user_code", "workflow.py line 4: KeyError: 'x'"),
        ("    return True", "user_code", "run returned True"),
        ("    return float('nan')", "user_code", "run returned nan"),
        ("    await episode.append_environment_tokens([9999])", "misuse", "9999 is not a token id"),
        ("    await episode.append_messages([{'role': 'nobody'}])", "misuse", "needs a role and a content"),
        ("    await episode.sample(max_new_tokens=0)", "misuse", "max_new_tokens=0"),
        ("    await episode.sample([1, 2, 3])", "diverged", "do not begin with the context"),
        ("    await episode.execute('1')", "sandbox", "runs no code"),
        ("    import os; os._exit(3)", "sandbox", "ended with 3"),
        ("    await episode._socket.send(type='logprobs', episode=1)", "sandbox", "protocol"),
        ("    await episode._socket.send(type='hello', key='')", "sandbox", "second hello"),
        (
            "    episode._socket._writer.write(b'{\"a\":' * 100000 + b'\\n'); await episode.score()",
            "sandbox",
            "nested too deeply",
        ),
        ("    raise ValueError('a' + chr(0) + 'b')", "user_code", "ValueError: a\ufffdb"),
        ("    raise ValueError(chr(0xd800) + 'c')", "user_code", "ValueError: ?c"),
        ("    while True: await episode.score('x')", "too_many_calls", "30 calls"),
        ("    import asyncio; await asyncio.sleep(60)", "silent", "made no call"),
    ],
)
async def test_what_a_workflow_does_wrong_fails_its_group_with_its_kind_and_words(
    new_run: Make,
    engine: FakeEngine,
    versions: Versions,
    monkeypatch: pytest.MonkeyPatch,
    body: str,
    kind: str,
    says: str,
) -> None:
    monkeypatch.setattr(sandbox_host, "MAX_CALLS", 30)
    monkeypatch.setattr(sandbox_host, "IDLE_SECONDS", 60.0)
    failed: list[Any] = []
    source = f"\nasync def run(episode):\n    await episode.sample()\n{body}\n"
    one = {"engine_max_running_requests": 2, "max_concurrent_groups": 1}
    async with new_run(source, rollout=one) as run:
        fail = run.controller.workers.fail
        run.controller.workers.fail = lambda request, now: (failed.append(request), fail(request, now=now))[1]  # type: ignore[method-assign]
        run.start_worker(engine.port, engine.api_key)
        await run.trainer.announce(versions(0), "none")
        if kind == "silent":
            await run.until(lambda: any("probe" not in rid for rid in engine.seen_rids))
            monkeypatch.setattr(
                sandbox_host, "IDLE_SECONDS", 0.5
            )  # from its next question on, which never comes
        await run.until(lambda: bool(failed))
        assert (failed[0].reason, failed[0].kind) == ("workflow_error", kind)
        assert says in failed[0].message
        assert failed[0].generated_tokens > 0, "the tokens of a failed workflow are counted"
        assert not run.controller.state.groups.buffered


async def test_a_file_that_does_not_load_fails_with_its_line(
    new_run: Make, engine: FakeEngine, versions: Versions
) -> None:
    failed: list[str] = []
    async with new_run(
        "import nothing_of_this_name\n\nasync def run(episode):\n    return 1\n", rollout=FEW
    ) as run:
        fail = run.controller.workers.fail
        run.controller.workers.fail = lambda request, now: (
            failed.append(request.message),
            fail(request, now=now),
        )[1]  # type: ignore[method-assign]
        run.start_worker(engine.port, engine.api_key)
        await run.trainer.announce(versions(0), "none")
        await run.until(lambda: bool(failed))
    assert "workflow.py line 1: ModuleNotFoundError" in failed[0]


async def test_the_last_messages_of_a_process_are_read_by_a_stalled_loop() -> None:
    loop = asyncio.get_running_loop()

    def launch(program: str, common: dict[str, Any], path: Path, stop: Any) -> str:
        ended = threading.Event()
        loop.call_soon_threadsafe(ended.wait, 60)
        with socket.socket(socket.AF_UNIX) as process:
            process.connect(str(path))
            for said in ({"type": "hello", "key": common["key"]}, {"type": "unusable", "message": "why"}):
                process.sendall(msgspec.json.encode(said) + b"\n")
        threading.Timer(0.2, ended.set).start()  # when this end has been told too
        return ""

    workflow = UserWorkflow("", {}, launch, host_capacity=1)
    with pytest.raises(WorkflowFailed, match="the workflow's file cannot be loaded: why"):
        await workflow.workflow.run(Talk())  # type: ignore[arg-type]
    await workflow.close()


async def test_a_group_shares_one_process_and_a_full_process_ends_with_its_last_episode() -> None:
    started: list[Any] = []

    def launch(program: str, common: dict[str, Any], socket: Path, stop: Any) -> str:
        started.append(stop)
        return plain_process(program, common, socket, stop)

    source = "async def run(episode):\n    return await episode.score() / 4\n"
    workflow = UserWorkflow(source, {}, launch, host_capacity=3)
    worths = await asyncio.gather(*(workflow.workflow.run(Talk()) for _ in range(6)))  # type: ignore[arg-type]
    assert worths == [0.5] * 6
    assert len(started) == 2
    assert all(stop.wait(60) for stop in started)
    await workflow.close()


def test_a_workflow_says_whether_it_may_be_moved() -> None:
    assert declares_migratable(THREE_TURNS)
    assert not declares_migratable("MIGRATABLE = False\n" + THREE_TURNS)
    assert not declares_migratable("MIGRATABLE: bool = False\n" + THREE_TURNS)
    assert declares_migratable("if 1:\n    MIGRATABLE = False\n" + THREE_TURNS), "only at the top level"
    for word in ("True", "False"):
        source = UserWorkflow(f"MIGRATABLE = {word}\n{THREE_TURNS}", {}, plain_process, host_capacity=1)
        assert source.workflow.migratable is (word == "True")


async def test_a_workflow_that_always_fails_ends_the_run_with_its_last_words(
    new_run: Make, engine: FakeEngine, versions: Versions
) -> None:
    async with new_run("async def run(episode):\n    return 1 / 0\n", rollout=FEW) as run:
        hopeless = asyncio.create_task(run.server.wait_until_unrecoverable())
        run.start_worker(engine.port, engine.api_key)
        await run.trainer.announce(versions(0), "none")
        reason, message = await asyncio.wait_for(hopeless, 60)
        assert reason == EndReason.WORKFLOW_ERRORS
        assert "16 groups in a row" in message and "line 2: ZeroDivisionError" in message
        assert run.controller.state.counters.workflow_errors["user_code"] >= 16


def test_without_a_sandbox_the_worker_refuses_an_uploaded_workflow_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before an engine is started, and never by running it without one."""
    nothing = Capabilities(
        user_namespace=False, seccomp=False, memory_bound="none", process_bound="none", own_uid=False,
        message="no user namespace", command="sysctl -w user.max_user_namespaces=10000",
    )  # fmt: skip
    monkeypatch.setattr(
        sandbox_launcher, "probe_sandbox", lambda **_: ProbeResult(capabilities=nothing, sandbox=None)
    )
    source = tmp_path / "workflow.py"
    source.write_text(THREE_TURNS)
    spec = run_spec(workflow={"function": "mine@1"})
    job = Job(
        attempt=AttemptFile(
            run_id="run_1", attempt_id="att_1", attempt_number=1, epoch=1, spec=spec.model_dump(mode="json"),
            directory=str(tmp_path), model_directory=str(write_model(tmp_path / "model")),
            dataset_file=str(write_rows(tmp_path / "rows.jsonl", 4)), source_files={"workflow": str(source)},
            controller_url="http://127.0.0.1:9", reward_url="http://127.0.0.1:9", engine_ports=[9],
        ),
        job=JobFile(job_id="job_1", name="rollout-0", kind=JobKind.ROLLOUT),
        directory=tmp_path,
        began_at=0.0,
    )  # fmt: skip
    monkeypatch.setattr(worker_door, "read_arguments", lambda _: job)
    assert worker_door.main() == 1
    result = msgspec.json.decode((tmp_path / "result.json").read_bytes())
    assert result["reason"] == "config_rejected"
    assert "no user namespace" in result["message"]
    assert "Type: sysctl -w user.max_user_namespaces=10000" in result["message"]
