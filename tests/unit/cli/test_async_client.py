"""The asynchronous client: the same calls, the same rules."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import httpx
import pytest

from oolong.client import AsyncClient, Invalid, NotAllowed, RetryPolicy, StreamGap, Unreachable, models
from tests.support.scripted_api import TOKEN, Answer, Asked, ScriptedApi, page, problem, run, shaped
from tests.unit.cli.test_client import checkpoint, events

QUICK = RetryPolicy(tries=4, first_seconds=0.01, longest_seconds=0.5)


@pytest.fixture
async def client(api: ScriptedApi) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(api.url, TOKEN, retries=QUICK) as client:
        yield client


async def test_calls_pages_and_errors(api: ScriptedApi, client: AsyncClient) -> None:
    api.script["GET runs/run_1"] = [Answer(problem("busy", "busy"), 503), Answer(run("SUCCEEDED"))]
    assert (await client.runs.wait("run_1")).status == "SUCCEEDED"

    def runs(asked: Asked) -> Answer:
        return Answer(page(run(id="run_2")) if asked.query.get("cursor") else page(run(), cursor="next"))

    api.script["GET runs"] = runs
    assert [found.id async for found in client.runs.list()] == ["run_1", "run_2"]
    api.script["POST runs"] = Answer(problem("invalid_spec", "bad"), 422)
    with pytest.raises(Invalid):
        await client.runs.create({})


async def test_a_wait_has_a_limit(api: ScriptedApi, client: AsyncClient) -> None:
    api.script["GET runs/run_1"] = Answer(run("RUNNING"))
    with pytest.raises(TimeoutError):
        await client.runs.wait("run_1", timeout_seconds=0.05, poll_seconds=0.02)


async def test_an_upload_is_streamed_and_repeated(
    api: ScriptedApi, client: AsyncClient, tmp_path: Path
) -> None:
    content = bytes(range(256)) * 4096
    (tmp_path / "rows.jsonl").write_bytes(content)
    answer = Answer(shaped(models.Upload, id="upl_1", filename="rows.jsonl", bytes=len(content)), 201)
    api.script["POST uploads"] = [Answer(problem("unavailable", "away"), 503), answer]
    assert (await client.upload(tmp_path / "rows.jsonl", purpose="dataset")).id == "upl_1"
    assert [asked.body for asked in api.asked] == [content, content]
    assert api.asked[0].headers["X-Content-SHA256"] == hashlib.sha256(content).hexdigest()


async def test_a_broken_download_goes_on(api: ScriptedApi, client: AsyncClient, tmp_path: Path) -> None:
    content = bytes(range(256)) * 8192
    api.script["GET checkpoints/ckpt_1"] = Answer(checkpoint(content))

    def download(asked: Asked) -> Answer:
        begin = int(asked.headers.get("Range", "bytes=0-").removeprefix("bytes=").removesuffix("-"))
        return Answer(content[begin:], 206 if begin else 200, cut_after=None if begin else 700_000)

    api.script["GET checkpoints/ckpt_1/download"] = download
    target = await client.checkpoints.download("ckpt_1", tmp_path / "c.tar")
    assert target.read_bytes() == content


async def test_a_stream_is_resumed_and_a_gap_is_an_error(api: ScriptedApi, client: AsyncClient) -> None:
    parts = [
        events((1, "points", {})),
        events((2, "points", {})),
        events((9, "gap", {"from": 3, "to": 9})),
    ]
    api.script["GET stream"] = lambda asked: Answer(parts.pop(0))
    stream = client.runs.stream("run_1")
    assert [(await anext(stream)).seq, (await anext(stream)).seq] == [1, 2]
    with pytest.raises(StreamGap):
        await anext(stream)


class Body(httpx.AsyncByteStream):
    """An answer without an end, that knows whether it was left."""

    left = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield events((1, "points", {}), (2, "points", {}))
        await asyncio.Event().wait()

    async def aclose(self) -> None:
        self.left = True


async def test_a_stream_that_is_left_closes_its_connection() -> None:
    body = Body()
    transport = httpx.MockTransport(lambda _: httpx.Response(200, stream=body))
    async with AsyncClient("http://127.0.0.1:1", TOKEN, transport=transport) as client:
        async with aclosing(client.runs.stream("run_1", after_seq=0)) as frames:
            assert (await anext(frames)).seq == 1
            assert not body.left
        assert body.left
        assert [kept async for kept in frames] == []


async def test_a_list_that_is_left_asks_for_no_further_page(api: ScriptedApi, client: AsyncClient) -> None:
    api.script["GET runs"] = Answer(page(run(), cursor="next"))
    async for _ in client.runs.list():
        break
    assert api.paths().count("GET runs") == 1


async def test_an_export_comes_piece_by_piece_and_says_when_it_broke_off(
    api: ScriptedApi, client: AsyncClient
) -> None:
    lines = b'{"number": 1}\n{"number": 2}\n'
    api.script["GET audit/export"] = Answer(lines)
    assert b"".join([data async for data in client.audit.export(action="run.*")]) == lines
    assert api.asked[-1].query == {"format": "jsonl", "action": "run.*"}
    api.script["GET audit/export"] = Answer(lines, cut_after=20)
    with pytest.raises(Unreachable, match="broke off"):
        [data async for data in client.audit.export()]
    api.script["GET audit/export"] = Answer(problem("forbidden", "no"), 403)
    with pytest.raises(NotAllowed):
        [data async for data in client.audit.export()]
