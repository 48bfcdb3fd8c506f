"""Workflows of users in the real sandbox: they reach the worker through their socket, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gpu_agents.rewards.sandboxes import Sandboxes
from gpu_agents.rewards.service import InThisProcess, RewardService
from gpu_agents.rollout.worker.code_execution import SandboxedPython, SandboxUnavailable
from gpu_agents.rollout.workflows.sandbox_launcher import sandbox_launcher
from gpu_agents.rollout.workflows.user_workflow import UserWorkflow
from oolong.sandbox import Sandbox
from oolong.system.rpc import RpcClient
from oolong.workflow import PolicyTurn, WorkflowFailed
from tests.sandbox.conftest import Baits


class Talk:
    """An episode of no engine: the policy says what it is asked for, once."""

    prompt, prompt_token_ids, answer, row = "p", [1, 2], "a", 7

    def __init__(self) -> None:
        self.context_token_ids = [1, 2]
        self.room_tokens = 10
        self.scored: list[str | None] = []

    async def sample(self, prompt_ids: Any = None, *, max_new_tokens: Any = None) -> PolicyTurn:
        self.context_token_ids += [5, 6]
        self.room_tokens -= 2
        return PolicyTurn(token_ids=[5, 6], text="said", finish_reason="stop")

    async def score(self, text: str | None) -> float:
        self.scored.append(text)
        return 0.5


async def play(sandbox: Sandbox, body: str, *, episodes: int = 1) -> tuple[list[Any], list[Talk]]:
    source = "async def run(episode, **options):\n" + "\n".join(f"    {line}" for line in body.splitlines())
    workflow = UserWorkflow(source, {"depth": 3}, sandbox_launcher(sandbox), host_capacity=episodes)
    talks = [Talk() for _ in range(episodes)]
    try:
        results = await asyncio.gather(
            *(workflow.workflow.run(talk) for talk in talks),  # type: ignore[arg-type]
            return_exceptions=True,
        )
    finally:
        await workflow.close()
    return list(results), talks


async def test_a_workflow_in_the_sandbox_samples_and_scores_over_its_socket(sandbox: Sandbox) -> None:
    body = """said = await episode.sample()
assert (said.text, said.token_ids, episode.context_token_ids, episode.room_tokens) == ("said", [5, 6], [1, 2, 5, 6], 8)
return options["depth"] * await episode.score("mine") + episode.row"""
    results, talks = await play(sandbox, body, episodes=2)
    assert results == [8.5, 8.5]
    assert [talk.scored for talk in talks] == [["mine"], ["mine"]]


async def test_a_workflow_reaches_no_network_no_file_and_no_other_socket(
    sandbox: Sandbox, baits: Baits
) -> None:
    body = f"""import os, socket
reached = []
for family, address in ((socket.AF_INET, ("127.0.0.1", {baits.port})), (socket.AF_UNIX, {baits.socket!r}),
                        (socket.AF_UNIX, "\\0{baits.abstract}")):
    try:
        socket.socket(family).connect(address)
        reached.append(address)
    except OSError:
        pass
for path in ({baits.secret!r}, "/etc/passwd", "/proc/self/environ"):
    if os.path.exists(path):
        reached.append(path)
if "PLANTED_SECRET" in os.environ:
    reached.append("environment")
await episode.score(repr(reached))
return 1"""
    results, talks = await play(sandbox, body)
    assert results == [1.0]
    assert talks[0].scored == ["[]"]
    assert not baits.hits


async def test_a_workflow_that_eats_memory_fails_and_its_worker_lives(sandbox: Sandbox) -> None:
    ((result,), _) = await play(sandbox, "await episode.sample()\nkept = bytearray(900 * 1024**2)\nreturn 1")
    assert isinstance(result, WorkflowFailed)
    assert result.kind in ("sandbox", "user_code"), result
    ((result,), _) = await play(sandbox, "return 1")
    assert result == 1.0


async def test_a_second_process_cannot_take_the_socket_over(sandbox: Sandbox) -> None:
    """One connection per sandbox: a child that connects again is shown the door."""
    body = """import json, socket
other = socket.socket(socket.AF_UNIX)
try:
    other.connect("/run/service.sock")
    other.sendall(json.dumps({"type": "hello", "key": "guessed"}).encode() + b"\\n")
    heard = other.recv(100)
except OSError:
    heard = b""
await episode.score(repr(heard))
return 1"""
    results, talks = await play(sandbox, body)
    assert results == [1.0]
    assert talks[0].scored == ["b''"]


@pytest.mark.parametrize("episodes", [4])
async def test_hosts_wait_for_a_free_sandbox_and_all_are_played(sandbox: Sandbox, episodes: int) -> None:
    """Of two sandboxes at a time; each host has one seat here."""
    source = "async def run(episode):\n    return await episode.score()\n"
    workflow = UserWorkflow(source, {}, sandbox_launcher(sandbox), host_capacity=1)
    results = await asyncio.gather(*(workflow.workflow.run(Talk()) for _ in range(episodes)))  # type: ignore[arg-type]
    await workflow.close()
    assert results == [0.5] * episodes


@asynccontextmanager
async def reward_service(sandboxes: Sandboxes | None) -> AsyncIterator[RpcClient]:
    service = RewardService(InThisProcess(lambda _: 0.0), token="t", sandboxes=sandboxes)
    port = await service.rpc.start("127.0.0.1", 0)
    peer = RpcClient("the reward service", f"http://127.0.0.1:{port}", "t", connect_seconds=5)
    try:
        yield peer
    finally:
        await peer.close()
        await service.rpc.close()
        if sandboxes is not None:
            await sandboxes.close()


async def test_code_of_the_policy_runs_in_the_reward_services_sandbox(sandbox: Sandbox) -> None:
    sandboxes = Sandboxes(slots=2)
    sandboxes.start()
    async with reward_service(sandboxes) as peer:
        python = SandboxedPython(peer, seconds=60.0)
        await python.require()
        assert await python.execute("x = 6\nprint('six')\nx * 7") == "six\n42"
        failed = await python.execute("print('before')\nraise KeyError('k')")
        assert failed.startswith("before\nTraceback") and failed.endswith("KeyError: 'k'")
        hasty = SandboxedPython(peer, seconds=2.0)
        assert await hasty.execute("while True: pass") == "Error: the program ran longer than 2 s"
        unreachable = await python.execute("import socket\nsocket.create_connection(('127.0.0.1', 22))")
        assert "Error" in unreachable
        assert "exceeds 262144 bytes" in await python.execute("#" * 300_000)


async def test_without_a_sandbox_a_workflow_with_tools_is_refused_with_the_reason() -> None:
    async with reward_service(None) as peer:
        with pytest.raises(SandboxUnavailable, match="this reward service has no sandbox"):
            await SandboxedPython(peer, seconds=2.0).require()
