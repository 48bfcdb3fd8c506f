"""Agent sessions by the SDK and from a shell."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from oolong.client import AsyncClient, Client, Gone, NotAllowed, RetryPolicy, TooManyRequests, sessions
from tests.support.scripted_api import TOKEN, Answer, ScriptedApi, problem

ONCE = RetryPolicy(tries=1)
OPENED = {
    "id": "0-ab", "run_id": "run_1", "base_url": "/api/v1/runs/run_1/sessions/0-ab/v1", "api_key": "", "model": "run_1",
    "group_id": "0-1-0", "member": 0, "row": 1, "messages": [{"role": "user", "content": "1+1"}], "prompt": "1+1",
    "answer": "2", "temperature": 1.0, "max_tokens": 64, "timeout_seconds": 600.0,
}  # fmt: skip
STATE = {
    "id": "0-ab", "state": "ended", "why": "", "member": 0, "reward": 1.0, "completions": 2, "sampled_tokens": 9,
    "branches": [{"turn": 0, "because": "started"}],
}  # fmt: skip


def refusal(status: int, code: str) -> Answer:
    """As the endpoint says it, in OpenAI's form."""
    return Answer({"error": {"message": "no", "type": "x", "code": code, "param": None}}, status)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "ASK_AGAIN_SECONDS", 0.01)


def test_open_asks_again_while_the_gate_is_closed_or_the_node_away(api: ScriptedApi) -> None:
    away = Answer(problem("node_unavailable", "away"), 503)
    api.script["POST runs/run_1/sessions"] = [refusal(429, "staleness"), away, Answer(OPENED, 201)]
    with Client(api.url, TOKEN, retries=ONCE) as client:
        session = client.sessions.open("run_1", wait_seconds=600)
    assert (session.base_url, session.api_key) == (f"{api.url}/api/v1/runs/run_1/sessions/0-ab/v1", TOKEN)


@pytest.mark.parametrize(
    ("answer", "error", "code"),
    [
        (refusal(429, "concurrency"), TooManyRequests, "concurrency"),
        (refusal(410, "run_ending"), Gone, "run_ending"),
        (Answer(problem("missing_scope", "sessions:write"), 403), NotAllowed, "missing_scope"),
    ],
)
def test_what_ends_the_asking_is_typed_and_has_its_code(
    api: ScriptedApi, answer: Answer, error: Any, code: str
) -> None:
    api.script["POST runs/run_1/sessions"] = answer
    with Client(api.url, TOKEN, retries=ONCE) as client, pytest.raises(error) as raised:
        client.sessions.open("run_1", wait_seconds=0.05)
    assert raised.value.code == code


async def test_reward_and_end_of_both_clients(api: ScriptedApi) -> None:
    api.script["POST runs/run_1/sessions"] = Answer(OPENED, 201)
    api.script["PUT runs/run_1/sessions/0-ab/reward"] = Answer(STATE)
    api.script["POST runs/run_1/sessions/0-ab/end"] = Answer(STATE)
    api.script["GET runs/run_1/sessions/0-ab"] = Answer(STATE)
    with Client(api.url, TOKEN) as client:
        session = client.sessions.open("run_1")
        client.sessions.set_reward(session, 1.0)
        assert client.sessions.end(session, reward=0.5).branches[0].because == "started"
        client.sessions.discard(session)
    async with AsyncClient(api.url, TOKEN) as awaited:
        again = await awaited.sessions.open("run_1")
        await awaited.sessions.set_reward(again, 1.0)
        await awaited.sessions.end(again)
        assert (await awaited.sessions.get(again)).state == "ended"
    bodies = [json.loads(asked.body) for asked in api.asked if asked.path.endswith("/end")]
    assert bodies == [{"reward": 0.5}, {"discard": True}, {}]


def test_the_command_line_opens_and_ends(api: ScriptedApi, oolong: Callable[..., Any]) -> None:
    api.script["POST runs/run_1/sessions"] = Answer(OPENED, 201)
    api.script["POST runs/run_1/sessions/0-ab/end"] = Answer(STATE)
    assert json.loads(oolong("session", "open", "run_1").stdout)["answer"] == "2"
    assert json.loads(oolong("session", "end", "run_1", "0-ab", "--reward", "1").stdout)["state"] == "ended"
