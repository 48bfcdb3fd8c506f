"""The reward `http`: every completion gets the score of its own id, or an error, and never another's."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_agents.rewards.remote.counts import RemoteCounts
from gpu_agents.rewards.remote.endpoint import RemoteContext
from gpu_agents.rewards.remote.http_protocol import read_answer, request_document
from gpu_agents.rewards.remote.http_reward import HttpReward
from gpu_agents.rewards.reward import Completion, Score, ScoringError
from tests.support.score_server import Reply, ScoreServer, Seen, scores


def completion(text: str, **fields: Any) -> Completion:
    return Completion(**{"prompt": "p", "answer": "a", "finish_reason": "stop", **fields}, text=text)


@pytest.fixture
def server() -> Iterator[ScoreServer]:
    with ScoreServer(lambda seen: scores(seen, lambda item: float(item["completion"]))).serving() as serving:
        yield serving


@asynccontextmanager
async def reward(server: ScoreServer, *, timeout: float = 60.0, **options: Any) -> AsyncIterator[HttpReward]:
    context = RemoteContext(
        origins=frozenset({server.origin}), counts=RemoteCounts(), backoff_seconds=(0.005, 0.01)
    )
    made = HttpReward({"url": server.origin + "/score", **options}, context, timeout_seconds=timeout)
    await made.start()
    try:
        yield made
    finally:
        await made.close()


async def test_the_request_is_the_documented_one(server: ScoreServer) -> None:
    async with reward(server) as http:
        score = await http.score(completion("0.5", row=7, finish_reason="length", purpose="evaluation"))
    assert score == Score(value=0.5)
    (seen,) = server.seen
    (item,) = seen.document["items"]
    assert seen.document["version"] == 1 and item.pop("id")
    assert item == {
        "prompt": "p", "completion": "0.5", "answer": "a", "row": 7, "finish_reason": "length", "purpose": "evaluation"
    }  # fmt: skip


async def test_completions_that_wait_go_together_and_the_first_does_not_wait(server: ScoreServer) -> None:
    go = asyncio.Event()
    loop = asyncio.get_running_loop()

    def script(seen: Seen) -> Reply:
        if len(server.seen) == 1:
            asyncio.run_coroutine_threadsafe(go.wait(), loop).result(30)
        return scores(seen, lambda item: float(item["completion"]))

    server.script = script
    async with reward(server, concurrency=1, batch_size=4) as http:
        first = asyncio.create_task(http.score(completion("0")))
        while not server.seen:
            await asyncio.sleep(0.005)
        others = [asyncio.create_task(http.score(completion(str(n)))) for n in range(1, 7)]
        await asyncio.sleep(0)
        go.set()
        assert [(await task).value for task in (first, *others)] == [0, 1, 2, 3, 4, 5, 6]
    assert [len(seen.document["items"]) for seen in server.seen] == [1, 4, 2]


async def test_a_request_that_is_sent_again_has_the_same_ids(server: ScoreServer) -> None:
    server.script = lambda seen: (
        Reply(status=503) if len(server.seen) == 1 else scores(seen, lambda item: 1.0)
    )
    async with reward(server) as http:
        assert (await http.score(completion("x"))).value == 1.0
    assert server.seen[0].document == server.seen[1].document


def wrong(change: Callable[[list[dict[str, Any]]], Any]) -> Callable[[Seen], Reply]:
    def script(seen: Seen) -> Reply:
        items = [{"id": item["id"], "score": 1.0} for item in seen.document["items"]]
        return Reply(document={"version": 1, "items": change(items)})

    return script


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (wrong(lambda items: []), "lacks 1 of 1 ids"),
        (wrong(lambda items: [{**items[0], "id": "other"}]), "'other', which was not asked"),
        (wrong(lambda items: [{**items[0], "id": None}]), "the id None"),
        (wrong(lambda items: [*items, items[0]]), "twice"),
        (wrong(lambda items: "none"), "a list of items"),
        (wrong(lambda items: [{"id": items[0]["id"]}]), "score must be a finite number, got None"),
        (wrong(lambda items: [{**items[0], "score": "1"}]), "must be a finite number, got '1'"),
        (wrong(lambda items: [{**items[0], "score": 10**400}]), "must be a finite number"),
        (wrong(lambda items: [{**items[0], "score": float("nan")}]), "NaN is not JSON"),
        (wrong(lambda items: [{**items[0], "parts": {"a": None}}]), r"parts\['a'\] must be a finite"),
        (wrong(lambda items: [{**items[0], "text": 3}]), "text must be a text"),
        (wrong(lambda items: [{**items[0], "error": "no GPU is free"}]), "no score: no GPU is free"),
        (lambda seen: Reply(document={"version": 2, "items": []}), "version 2"),
        (lambda seen: Reply(raw=b"<html>"), "no JSON"),
        (lambda seen: Reply(raw=b"[1]"), "must be an object"),
        (lambda seen: Reply(raw=b"[" * 10_000), "no JSON"),
    ],
)
async def test_an_answer_that_is_wrong_is_an_error_and_no_score(
    server: ScoreServer, script: Callable[[Seen], Reply], message: str
) -> None:
    server.script = script
    async with reward(server) as http:
        with pytest.raises(ScoringError, match=message):
            await http.score(completion("x"))
    assert len(server.seen) == 1, "it is not sent again: the service would answer the same"


async def test_parts_and_text_belong_to_the_score(server: ScoreServer) -> None:
    server.script = wrong(lambda items: [{**items[0], "parts": {"style": 0.25}, "text": "short\0"}])
    async with reward(server) as http:
        assert await http.score(completion("x")) == Score(
            value=1.0, parts={"style": 0.25}, text="short\ufffd"
        )


async def test_no_score_is_lost_or_given_to_another_completion_by_a_service_that_fails_at_random(
    server: ScoreServer,
) -> None:
    """It refuses, drops and reorders answers, has errors for single items, and some callers give up."""
    draw = random.Random(5)

    def script(seen: Seen) -> Reply:
        chance = draw.random()
        if chance < 0.15:
            return Reply(status=503)
        if chance < 0.3:
            return Reply(drop=True)
        items: list[dict[str, Any]] = [
            {"id": item["id"], "error": "odd"}
            if float(item["completion"]) % 10 == 3
            else {"id": item["id"], "score": float(item["completion"])}
            for item in seen.document["items"]
        ]
        draw.shuffle(items)
        return Reply(document={"version": 1, "items": items})

    server.script = script
    async with reward(server, concurrency=4, batch_size=5, attempts=10) as http:
        tasks = [asyncio.create_task(http.score(completion(str(n)))) for n in range(200)]
        await asyncio.sleep(0)
        for number in range(0, 200, 17):
            tasks[number].cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    for number, result in enumerate(results):
        if number % 17 == 0:
            assert isinstance(result, asyncio.CancelledError)
        elif number % 10 == 3:
            assert isinstance(result, ScoringError) and "odd" in str(result)
        else:
            assert isinstance(result, Score) and result.value == number


async def test_closing_settles_what_still_waits(server: ScoreServer) -> None:
    def hang(seen: Seen) -> Reply:
        server.released.wait(60)
        return Reply(status=500)

    server.script = hang
    async with reward(server, concurrency=1, attempts=1) as http:
        asked = asyncio.create_task(http.score(completion("1")))
        while not server.seen:
            await asyncio.sleep(0.005)
    await asyncio.wait([asked])
    assert asked.cancelled()


ODD = st.sampled_from([None, True, [], {}, {"a": 1}, {"a": None}, "0", "", 3])


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_whatever_the_service_answers_each_id_has_its_own_score_or_an_error(data: st.DataObject) -> None:
    items = {str(n): completion(str(n)) for n in range(data.draw(st.integers(1, 3)))}
    listed = data.draw(st.lists(st.fixed_dictionaries({"id": st.sampled_from([*items, "x"])}, optional={
        "score": st.floats() | st.integers() | st.none() | st.text(max_size=2),
        "error": st.none() | st.text(max_size=3), "parts": ODD, "text": ODD,
    }), max_size=4))  # fmt: skip
    document = data.draw(ODD | st.just({"version": 1, "items": listed}))
    try:
        results = read_answer(json.dumps(document).encode(), items)
    except ScoringError:
        return
    assert results.keys() == items.keys()
    by_id = {item["id"]: item for item in document["items"]}
    for identity, result in results.items():
        if isinstance(result, Score):
            assert result.value == by_id[identity]["score"]


def test_the_request_holds_each_completion_under_its_id() -> None:
    document = request_document({"i": completion("x"), "j": completion("y")})
    assert {item["id"]: item["completion"] for item in document["items"]} == {"i": "x", "j": "y"}
