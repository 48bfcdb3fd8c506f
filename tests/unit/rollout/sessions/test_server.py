"""Sessions over HTTP around a scripted engine: the gate, the capture, the ends, and who may call."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpu_agents.rollout.chat_template import ChatTemplate
from gpu_agents.rollout.sessions import manager
from oolong.contracts.rollout import PublishedWeights
from tests.unit.rollout.fake_engine import EOS, FakeEngine
from tests.unit.rollout.harness import TOKEN, Harness
from tests.unit.rollout.simulation import assert_ledger_is_true

Make = Callable[..., Harness]
Versions = Callable[[int], PublishedWeights]
Json = dict[str, Any]


class Agents:
    """A run that serves sessions, and HTTP to its door."""

    def __init__(self, run: Harness, http: httpx.AsyncClient) -> None:
        self.run = run
        self.http = http

    async def open(self) -> httpx.Response:
        return await self.http.post("/sessions")

    async def opened(self) -> Json:
        """Waits, as an agent does, while the gate is closed."""
        async with asyncio.timeout(60):
            while (reply := await self.open()).status_code == 429:
                assert reply.headers["Retry-After"]
                await asyncio.sleep(0.01)
        assert reply.status_code == 201, reply.text
        return reply.json()  # type: ignore[no-any-return]

    async def chat(self, session: Json, messages: list[Json], **more: Any) -> httpx.Response:
        return await self.http.post(
            f"/sessions/{session['id']}/v1/chat/completions", json={"messages": messages, **more}
        )

    async def end(self, session: Json, **body: Any) -> httpx.Response:
        return await self.http.post(f"/sessions/{session['id']}/end", json=body)


@pytest.fixture
def serve(new_harness: Make, engine: FakeEngine, versions: Versions) -> Callable[..., Any]:
    @asynccontextmanager
    async def serve(
        *, workflow: Json | None = None, reward: Json | None = None, **sections: Any
    ) -> AsyncIterator[Agents]:
        made = new_harness(workflow={"name": "agent_session", **(workflow or {})}, **sections)
        scaled = made.spec.reward.model_copy(update=reward or {})
        made.spec = made.spec.model_copy(update={"reward": scaled})
        async with made as run:
            running = run.start_worker(engine.port, engine.api_key)
            assert running.session_server is not None
            port = await running.session_server.start(0)
            await run.trainer.announce(versions(0), "none")
            await run.until(lambda: run.controller.state.counters.acks == 1)
            headers = {"Authorization": f"Bearer {TOKEN}"}
            async with httpx.AsyncClient(
                base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60, trust_env=False
            ) as http:
                yield Agents(run, http)
            await running.session_server.close()

    return serve


async def test_sessions_of_one_prompt_become_a_group_that_is_trained(serve: Any, tmp_path: Path) -> None:
    one = {"groups_per_step": 1}
    async with serve(trainer=one, reward={"scale": 2.0, "bias": -1.0}) as agents:
        first, second = await agents.opened(), await agents.opened()
        assert first["group_id"] == second["group_id"] and [first["member"], second["member"]] == [0, 1]
        replies = []
        for session, reward in ((first, 1.0), (second, 0.0)):
            assert session["messages"][0]["content"].endswith(session["answer"])
            reply = (await agents.chat(session, session["messages"])).json()
            replies.append(reply)
            ended = await agents.end(session, reward=reward)
            assert ended.status_code == 200 and ended.json()["state"] == "ended"
        (group,) = await agents.run.trainer.take(0)
        assert [t.reward for t in group.trajectories] == [1.0, -1.0]
        template = ChatTemplate(tmp_path / "model")
        prompt = template.encode(template.render(first["messages"]))
        for trajectory, reply in zip(group.trajectories, replies, strict=True):
            tokens = group.prompt_token_ids + trajectory.token_ids
            sampled = [
                id for id, mask in zip(trajectory.token_ids, trajectory.loss_mask, strict=True) if mask
            ]
            assert tokens == prompt + sampled
            assert template.decode(sampled) == reply["choices"][0]["message"]["content"]
            assert reply["usage"]["completion_tokens"] == len(sampled) == sum(trajectory.loss_mask)
            assert trajectory.token_ids[-1] == EOS and reply["choices"][0]["finish_reason"] == "stop"
        assert_ledger_is_true(agents.run.controller)
        told = (await agents.http.get(f"/sessions/{first['id']}")).json()
        assert (told["state"], told["completions"], told["reward"]) == ("ended", 1, 1.0)


async def test_what_the_policy_sampled_is_never_tokenised_again(serve: Any, engine: FakeEngine) -> None:
    async with serve() as agents:
        session = await agents.opened()
        first = (await agents.chat(session, session["messages"])).json()
        seen = engine.seen_inputs[-1]
        (turn,) = agents.run.workers[0].session_server._manager.find(session["id"])[0].tree.turns
        answer = turn.sampled.token_ids
        assert turn.context_ids == seen
        messages = [
            *session["messages"],
            first["choices"][0]["message"],
            {"role": "user", "content": "again"},
        ]
        second = (await agents.chat(session, messages)).json()
        assert engine.seen_inputs[-1][: len(seen) + len(answer)] == seen + answer
        assert second["oolong"]["because"] == "continued" and second["oolong"]["continues"] == 0
        # An agent that rewrites what was said starts a branch.
        messages[-2] = {"role": "assistant", "content": "something else"}
        third = (await agents.chat(session, messages)).json()
        assert (third["oolong"]["because"], third["oolong"]["continues"]) == ("history_rewritten", None)
        shown = (await agents.http.get(f"/sessions/{session['id']}")).json()
        assert shown["branches"] == [
            {"turn": 0, "because": "started"},
            {"turn": 2, "because": "history_rewritten"},
        ]


async def test_a_closed_gate_answers_429_with_its_reason(serve: Any) -> None:
    sections = {"trainer": {"groups_per_step": 1}, "staleness": {"max": 0}, "rollout": {"group_size": 2}}
    async with serve(**sections) as agents:
        for _ in range(2):
            await agents.opened()
        reply = await agents.open()
        assert reply.status_code == 429 and reply.headers["Retry-After"] == "1"
        assert reply.json()["error"]["code"] == "staleness"
        running = agents.run.workers[0]
        assert running.session_server is not None
        values = running.session_server._manager.metrics()
        assert (values["session/open"], values["session/refused_staleness"]) == (2.0, 1.0)


async def test_a_stream_gives_the_same_text_in_parts(serve: Any) -> None:
    async with serve() as agents:
        session = await agents.opened()
        body = {"messages": session["messages"], "stream": True, "stream_options": {"include_usage": True}}
        path = f"/sessions/{session['id']}/v1/chat/completions"
        events = []
        async with agents.http.stream("POST", path, json=body) as reply:
            assert reply.headers["Content-Type"].startswith("text/event-stream")
            async for line in reply.aiter_lines():
                if line:
                    events.append(line.removeprefix("data: "))
        assert events.pop() == "[DONE]"
        chunks = [json.loads(event) for event in events]
        choices = [chunk["choices"][0] for chunk in chunks if chunk["choices"]]
        assert choices[0]["delta"]["role"] == "assistant" and choices[-1]["finish_reason"] == "stop"
        text = "".join(choice["delta"].get("content", "") for choice in choices)
        (turn,) = agents.run.workers[0].session_server._manager.find(session["id"])[0].tree.turns
        assert chunks[-1]["usage"]["completion_tokens"] == len(turn.sampled.token_ids)
        template = ChatTemplate(agents.run.model_directory)
        assert text == template.decode(turn.sampled.token_ids)
        # The next call continues from it as from any other.
        messages = [
            *session["messages"],
            {"role": "assistant", "content": text},
            {"role": "user", "content": "b"},
        ]
        assert (await agents.chat(session, messages)).json()["oolong"]["because"] == "continued"


async def test_a_stop_string_ends_text_and_tokens_alike(serve: Any) -> None:
    async with serve() as agents:
        session = await agents.opened()
        whole = (await agents.chat(session, session["messages"])).json()["choices"][0]["message"]["content"]
        stop = whole[2:4]
        reply = (await agents.chat(session, session["messages"], stop=stop)).json()
        assert reply["choices"][0]["message"]["content"] == whole[: whole.find(stop)]
        turn = agents.run.workers[0].session_server._manager.find(session["id"])[0].tree.turns[-1]
        text = ChatTemplate(agents.run.model_directory).decode(turn.sampled.token_ids)
        assert text == whole[: whole.find(stop) + len(stop)]
        assert reply["choices"][0]["finish_reason"] == "stop"


async def test_max_tokens_bounds_the_call_and_the_run_bounds_max_tokens(
    serve: Any, engine: FakeEngine
) -> None:
    engine.spread = 2000
    async with serve() as agents:
        session = await agents.opened()
        for asked, given in ((3, 3), (1000, 30), (None, 30)):
            more = {"max_tokens": asked} if asked else {}
            reply = (await agents.chat(session, [{"role": "user", "content": "zz"}], **more)).json()
            assert reply["usage"]["completion_tokens"] == given
            assert reply["choices"][0]["finish_reason"] == "length"
        long = [{"role": "user", "content": "x" * 1100}]
        refused = await agents.chat(session, long)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "context_length_exceeded")


async def test_another_temperature_than_the_runs_is_refused_with_the_reason(serve: Any) -> None:
    async with serve(rollout={"temperature": 0.7}) as agents:
        session = await agents.opened()
        assert session["temperature"] == 0.7
        refused = await agents.chat(session, session["messages"], temperature=1.0)
        error = refused.json()["error"]
        assert (refused.status_code, error["param"]) == (400, "temperature") and "0.7" in error["message"]
        assert (await agents.chat(session, session["messages"], temperature=0.7)).status_code == 200


async def test_a_session_left_alone_drops_its_group_and_is_no_reward_of_zero(serve: Any) -> None:
    async with serve(workflow={"session_timeout_seconds": 600}) as agents:
        done, left = await agents.opened(), await agents.opened()
        await agents.chat(done, done["messages"])
        await agents.end(done, reward=1.0)
        await agents.chat(left, left["messages"])
        find = agents.run.workers[0].session_server._manager.find
        find(left["id"])[0].touched_at -= 601
        counts = agents.run.controller.state.ledger.counts
        await agents.run.until(lambda: counts().dropped.get("error") == 1)
        assert counts().errors == {"workflow_error": 1}
        late = await agents.end(left, reward=1.0)
        assert (late.status_code, late.json()["error"]["code"]) == (410, "session_dropped")
        assert "was idle" in late.json()["error"]["message"]
        assert counts().buffered == 0
        assert_ledger_is_true(agents.run.controller)
        # And members that no agent comes for drop the group too.
        alone = await agents.opened()
        await agents.chat(alone, alone["messages"])
        await agents.end(alone, reward=1.0)
        find(alone["id"])[1].touched_at -= 601
        await agents.run.until(lambda: counts().dropped.get("error") == 2)


async def test_a_session_ends_only_with_a_reward_and_something_sampled(serve: Any) -> None:
    async with serve() as agents:
        session = await agents.opened()
        assert (await agents.end(session)).json()["error"]["code"] == "no_reward"
        assert (await agents.end(session, reward=1.0)).json()["error"]["code"] == "nothing_sampled"
        for wrong in ("1", True, None, float("1e999")):
            body = json.dumps({"reward": wrong}).replace("Infinity", "1e999")
            reply = await agents.http.put(f"/sessions/{session['id']}/reward", content=body)
            assert reply.status_code == 400, wrong
        given_up = await agents.end(session, discard=True)
        assert given_up.json()["state"] == "dropped"
        assert (await agents.end(session, discard=True)).status_code == 200  # also when it was dropped before
        assert (await agents.chat(session, session["messages"])).status_code == 410
        await agents.run.until(lambda: agents.run.controller.state.ledger.counts().dropped.get("error") == 1)


async def test_who_may_talk_to_a_session(serve: Any) -> None:
    async with serve() as agents:
        mine, other = await agents.opened(), await agents.opened()
        path = f"/sessions/{mine['id']}/v1/models"
        for key, status in (
            ("", 401),
            (f"Bearer {mine['api_key']}", 200),
            (f"Bearer {other['api_key']}", 401),
            (f"Bearer {TOKEN}", 200),
        ):
            assert (await agents.http.get(path, headers={"Authorization": key})).status_code == status
        key = {"Authorization": f"Bearer {mine['api_key']}"}
        assert (await agents.http.post("/sessions", headers=key)).status_code == 401
        assert (await agents.http.get("/sessions/0-none")).status_code == 404
        assert (await agents.http.get("/sessions/0-none", headers={"Authorization": "x"})).status_code == 401
        large = await agents.http.post(
            f"/sessions/{mine['id']}/v1/chat/completions", content=b"x" * (4 * 2**20 + 1)
        )
        assert large.status_code == 413


async def test_an_agent_that_hangs_up_leaves_nothing_in_the_engine(serve: Any, engine: FakeEngine) -> None:
    engine.spread = 2000
    engine.may_decode = lambda request: len(request.output) < 5 or request.rid.startswith("probe")  # type: ignore[method-assign]
    async with serve(rollout={"max_new_tokens": 500}) as agents:
        session = await agents.opened()
        calling = asyncio.create_task(agents.chat(session, [{"role": "user", "content": "zz"}]))
        await agents.run.until(lambda: len(engine.running) == 1)
        calling.cancel()
        await agents.run.until(lambda: not engine.running)
        shown = (await agents.http.get(f"/sessions/{session['id']}")).json()
        assert (shown["state"], shown["completions"]) == ("open", 0)


async def test_a_session_has_so_many_calls_at_a_time(
    serve: Any, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manager, "MAX_CONCURRENT_CALLS", 1)
    engine.spread, engine.token_seconds = 2000, 0.01
    async with serve(rollout={"max_new_tokens": 500}) as agents:
        session = await agents.opened()
        first = asyncio.create_task(agents.chat(session, [{"role": "user", "content": "zz"}]))
        await agents.run.until(lambda: len(engine.running) == 1)
        second = await agents.chat(session, [{"role": "user", "content": "zz"}])
        assert (second.status_code, second.json()["error"]["code"]) == (409, "too_many_calls")
        assert len(engine.running) == 1
        first.cancel()
        await agents.run.until(lambda: not engine.running)


async def test_a_completion_goes_on_through_a_new_version(
    serve: Any, engine: FakeEngine, versions: Versions
) -> None:
    """Interrupted by a load: the agent notices nothing, the tokens know both versions."""
    engine.spread, engine.token_seconds = 2000, 0.03
    sections = {"trainer": {"groups_per_step": 1}, "rollout": {"max_new_tokens": 150, "group_size": 2}}
    async with serve(**sections, staleness={"max": 4}) as agents:
        for _ in range(2):
            session = await agents.opened()
            await agents.chat(session, session["messages"], max_tokens=2)
            await agents.end(session, reward=1.0)
        session = await agents.opened()
        calling = asyncio.create_task(agents.chat(session, [{"role": "user", "content": "zz"}]))
        await agents.run.until(lambda: any(request.output for request in engine.running))
        await agents.run.trainer.take(0)
        await agents.run.trainer.announce(versions(1))
        reply = (await calling).json()
        assert reply["oolong"]["policy_versions"] == [0, 1] and reply["usage"]["completion_tokens"] == 150


async def test_a_worker_that_stops_gives_its_sessions_groups_back(serve: Any) -> None:
    async with serve() as agents:
        session = await agents.opened()
        await agents.chat(session, session["messages"])
        agents.run.workers[0].stop.set()
        await agents.run.until(lambda: agents.run.controller.state.ledger.counts().waiting == 1)
        reply = await agents.chat(session, session["messages"])
        assert reply.status_code == 410 and "stops" in reply.json()["error"]["message"]
        assert (await agents.open()).json()["error"]["code"] == "run_ending"
        tokens = agents.run.controller.state.tokens.counts()
        assert tokens.generated > 0 and sum(tokens.dropped.values()) == tokens.generated
        assert_ledger_is_true(agents.run.controller)


async def test_a_session_left_open_at_the_end_sends_nobody_away(serve: Any) -> None:
    """Its group fails in the end, and somebody must be there to fill another."""
    one = {"groups_per_step": 1, "total_train_steps": 1}
    async with serve(trainer=one) as agents:
        left, other = await agents.opened(), await agents.opened()
        refused = await agents.open()
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "last_groups")
        await agents.end(left, discard=True)
        await agents.run.until(lambda: sum(agents.run.controller.state.ledger.counts().dropped.values()) == 1)
        assert (await agents.chat(other, other["messages"])).status_code == 410
        for reward in (1.0, 0.0):
            session = await agents.opened()
            await agents.chat(session, session["messages"])
            await agents.end(session, reward=reward)
        await agents.run.until(lambda: agents.run.controller.state.ledger.counts().buffered == 1)
        over = await agents.open()
        assert (over.status_code, over.json()["error"]["code"]) == (410, "run_ending")


async def test_individual_export_makes_a_trajectory_of_every_call(serve: Any) -> None:
    workflow = {"session_export": "individual"}
    async with serve(workflow=workflow, trainer={"groups_per_step": 1}) as agents:
        for reward in (1.0, 0.0):
            session = await agents.opened()
            messages = session["messages"]
            for _ in range(2):
                reply = (await agents.chat(session, messages)).json()["choices"][0]["message"]
                messages = [*messages, reply, {"role": "user", "content": "again"}]
            await agents.end(session, reward=reward)
        (group,) = await agents.run.trainer.take(0)
        assert [t.reward for t in group.trajectories] == [1.0, 1.0, 0.0, 0.0]
        assert [t.rollout for t in group.trajectories] == [0, 0, 1, 1]
        assert [len([turn for turn in t.turns if turn.sampled]) for t in group.trajectories] == [1, 1, 1, 1]
