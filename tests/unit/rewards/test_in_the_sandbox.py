"""What else the service runs in the sandbox: uploaded reward functions, and code as a tool of a workflow."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gpu_agents.rewards.code_tests import CodeTests
from gpu_agents.rewards.reward import Completion, SandboxFailed, Score, ScoringError, VerifierFailed
from gpu_agents.rewards.sandboxes import Sandboxes
from gpu_agents.rewards.service import InThisProcess, RewardService
from gpu_agents.rewards.user_function import UserFunction
from oolong.contracts.rollout import ExecuteReply, ExecuteRequest, ScoreReply, ScoreRequest
from oolong.sandbox import Capabilities, ProbeResult, Sandbox, SandboxUnsupported
from oolong.system.rpc import RpcClient, RpcError
from tests.support.isolation import require_isolation


async def grade(sandboxes: Sandboxes, source: str, *, timeout_seconds: float = 60.0, **options: Any) -> Score:
    function = UserFunction(source, options, sandboxes=sandboxes, timeout_seconds=timeout_seconds)
    return await function.score(
        Completion(prompt="2 + 2?", text="it is 4", answer="4", finish_reason="stop", row=1)
    )


async def test_an_uploaded_function_scores(sandboxes: Sandboxes) -> None:
    source = """
import re
def score(prompt, completion, answer, bonus=0.0):
    return float(re.findall(r"\\d+", completion)[-1] == answer) + bonus
"""
    assert (await grade(sandboxes, source)).value == 1.0
    assert (await grade(sandboxes, source, bonus=0.5)).value == 1.5


async def test_it_may_tell_the_parts(sandboxes: Sandboxes) -> None:
    source = 'def score(prompt, completion, answer):\n    return {"score": 1, "parts": {"brief": 0.5}}'
    assert await grade(sandboxes, source) == Score(value=1.0, parts={"brief": 0.5})


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("1 / 0", 'File "reward.py", line 2, in score'),
        ("while True: pass", "(cpu|wall)_limit"),
        ("import os; os._exit(3)", "ended with failed"),
        ("import socket; socket.create_connection(('127.0.0.1', 80))", "Permission|Operation|Network"),
    ],
)
async def test_a_function_that_fails_is_an_error_and_not_0(
    sandboxes: Sandboxes, body: str, message: str
) -> None:
    with pytest.raises(VerifierFailed, match=message):
        await grade(
            sandboxes,
            f"def score(prompt, completion, answer):\n    {body}",
            timeout_seconds=1.0 if "while" in body else 60.0,
        )


@pytest.mark.parametrize(
    "result",
    [
        "'1'", "None", "[1]", "{'score': 'high'}", "{'score': 1, 'parts': 2}", "10**400",
        "{'score': 1, 'parts': {'brief': float('nan')}}", "{'score': 1, 'parts': {'brief': float('inf')}}",
    ],
)  # fmt: skip
async def test_what_is_no_number_is_no_score(sandboxes: Sandboxes, result: str) -> None:
    with pytest.raises(ScoringError):
        await grade(sandboxes, f"def score(prompt, completion, answer):\n    return {result}")


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ("{'\\ud800': 1}", "can't encode|surrogate"),
        ("{'a\\0b': 1}", "printable"),
        ("{'x' * 61: 1}", "at most 60 characters"),
        ("{'': 1}", "not empty"),
        ("{str(n): 1 for n in range(65)}", "has 65 names, at most 64"),
    ],
)
async def test_a_part_with_a_name_that_no_document_keeps_is_no_score(
    sandboxes: Sandboxes, parts: str, says: str
) -> None:
    with pytest.raises(ScoringError, match=says):
        await grade(
            sandboxes,
            f"def score(prompt, completion, answer):\n    return {{'score': 1, 'parts': {parts}}}",
        )


# --- /execute ---------------------------------------------------------------------------------------------


class Served:
    def __init__(self, sandboxes: Sandboxes | None) -> None:
        self.service = RewardService(InThisProcess(lambda _: 0.0), token="secret", sandboxes=sandboxes)

    async def __aenter__(self) -> Served:
        port = await self.service.rpc.start("127.0.0.1", 0)
        self.peer = RpcClient("reward", f"http://127.0.0.1:{port}", "secret", connect_seconds=60)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.peer.close()
        await self.service.rpc.close()

    async def execute(self, code: str, **more: Any) -> ExecuteReply:
        request = ExecuteRequest(**{"code": code, "wall_seconds": 60.0, **more})
        return await self.peer.call("execute", request, ExecuteReply, timeout=120)


@pytest.fixture
async def served(sandboxes: Sandboxes) -> AsyncIterator[Served]:
    async with Served(sandboxes) as served:
        yield served


async def test_code_gives_its_output_and_the_value_of_its_last_expression(served: Served) -> None:
    reply = await served.execute("x = 6\nprint('seen', input())\nx * 7", stdin="this\n")
    assert (reply.status, reply.stdout, reply.value) == ("ok", "seen this\n", "42")
    assert (await served.execute("y = 1")).value is None


async def test_half_a_character_that_code_reports_comes_back_as_it_was_written(served: Served) -> None:
    code = "import os; os.write(3, b'\"' + bytes([92]) + b'ud800\"'); None"
    assert (await served.execute(code)).value == '"\\ud800"'


async def test_an_exception_comes_back_as_a_traceback_of_the_code_alone(served: Served) -> None:
    reply = await served.execute("def f():\n    return 1 / 0\nf()")
    assert reply.status == "failed" and reply.value is None
    assert 'File "code.py", line 2, in f' in reply.stderr and "program.py" not in reply.stderr
    assert "SyntaxError" in (await served.execute("def")).stderr


async def test_code_has_limits_and_nothing_stays_between_calls(served: Served) -> None:
    assert (await served.execute("while True: pass", wall_seconds=0.5)).status in ("wall_limit", "cpu_limit")
    assert (await served.execute("x = b'x' * 10**9", memory_bytes=64 * 1024**2)).status == "memory_limit"
    await served.execute("open('/tmp/kept', 'w').close(); kept = 1")
    assert (await served.execute("import os; ('kept' in globals(), os.listdir('/tmp'))")).value == (
        "(False, ['.stdin'])"
    )


async def test_without_a_sandbox_code_is_refused_with_the_command_and_scores_go_on() -> None:
    command = "sudo sysctl -w kernel.unprivileged_userns_clone=1"
    capabilities = Capabilities(
        user_namespace=False, seccomp=False, memory_bound="none", process_bound="none", own_uid=False,
        message="no sandbox can be made", command=command,
    )  # fmt: skip
    none = Sandboxes.of(ProbeResult(capabilities=capabilities, sandbox=None), slots=1)
    async with Served(none) as served:
        with pytest.raises(RpcError, match=f"no_sandbox.*{command}") as refused:
            await served.execute("1 + 1")
        assert refused.value.code == "no_sandbox"
        request = ScoreRequest(prompt="", completion="4", answer="4", finish_reason="stop")
        assert (await served.peer.call("score", request, ScoreReply)).score == 0.0
    with pytest.raises(SandboxUnsupported, match=command):
        await CodeTests({}, none).start()
    with pytest.raises(SandboxUnsupported, match=command):
        await UserFunction("", {}, sandboxes=none, timeout_seconds=1.0).start()


async def test_a_sandbox_that_breaks_by_itself_is_a_failure_of_the_sandbox(probe_result: ProbeResult) -> None:
    require_isolation(probe_result.capabilities)
    runtime_files = dataclasses.replace(probe_result.sandbox.runtime_files, python=Path("/nowhere/python3"))
    broken = Sandbox(runtime_files, probe_result.sandbox.isolation, slots=1)
    sandboxes = Sandboxes.of(ProbeResult(capabilities=probe_result.capabilities, sandbox=broken), slots=1)
    with pytest.raises(SandboxFailed, match="/nowhere/python3"):
        await grade(sandboxes, "def score(prompt, completion, answer):\n    return 1")
    assert (sandboxes.failed, sandboxes.tests) == (1, {"sandbox_error": 1})
    await sandboxes.close()


async def test_code_that_is_too_long_and_limits_that_are_none_are_refused(served: Served) -> None:
    with pytest.raises(RpcError, match="too_large"):
        await served.execute("#" * 300_000)
    with pytest.raises(RpcError, match="memory_bytes=-1"):
        await served.execute("1", memory_bytes=-1)
