from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from channels.db import database_sync_to_async
from django.test import AsyncClient, Client

from control_plane.accounts.models import ApiToken, StreamTicket
from control_plane.accounts.tokens.token_hashing import digest
from control_plane.core.infra import clock
from control_plane.core.stream.event_hub import hub
from control_plane.telemetry.stream import sse
from control_plane.telemetry.stream.credentials import Credential
from oolong.contracts import telemetry as contract
from oolong.contracts.agent import BATCH_BYTES, BATCH_HEAD_BYTES, ChunkReply, TelemetryBatchReply
from oolong.contracts.metrics import METRICS
from tests.support.telemetry_batch import single_chunk
from tests.unit.control_plane.telemetry.streaming import apublish, points
from tests.unit.control_plane.telemetry.world import World, build_world, encode, step

FILE = "main-0.jsonl"


@pytest.fixture
def world(db: None) -> World:
    return build_world()


def ship(
    client: Client, world: World, body: bytes, *, offset: int = 0, job: str = "", file: str = FILE
) -> ChunkReply:
    response = post(
        client, single_chunk(job or world.trainer.pk, file, body, offset=offset), world.credential
    )
    assert response.status_code == 200, response.content
    [reply] = msgspec.json.decode(response.content, type=TelemetryBatchReply).chunks
    return reply


def post(client: Client, body: bytes, credential: str) -> Any:
    return client.post(
        "/api/v1/agent/telemetry",
        data=body,
        content_type="application/octet-stream",
        headers={"Authorization": f"Bearer {credential}"},
    )


@pytest.fixture
def read(world: World, client: Client) -> Callable[..., Any]:
    token = world.token()

    def read(path: str, **query: Any) -> Any:
        return client.get(f"/api/v1/{path}", query, headers={"Authorization": f"Bearer {token}"})

    return read


def test_an_agent_ships_and_a_reader_reads(world: World, client: Client, read: Callable[..., Any]) -> None:
    body = encode(
        step(1, reward_mean=0.25),
        contract.Histogram(at=1.0, name="staleness/consumed_tokens", x=1, counts={"0": 3}),
        contract.StateSnapshot(at=1.0, name="pipeline", value={"refusal": None}),
    )
    assert ship(client, world, body) == ChunkReply(status=200, offset=len(body))
    assert ship(client, world, b"hello\n", file="output.log#0") == ChunkReply(status=200, offset=6)

    run = f"runs/{world.run.pk}"
    answer = read(f"{run}/metrics", names="reward/mean").json()
    assert answer["series"][0]["value"] == [0.25] and answer["seq"] == 3
    assert [row["name"] for row in read(f"{run}/metric-names").json()["data"]] == ["reward/mean"]
    assert read(f"{run}/histograms", name="staleness/consumed_tokens").json()["data"][0]["counts"] == {"0": 3}
    assert read(f"{run}/state/pipeline").json()["value"] == {"refusal": None}
    assert [row["name"] for row in read(f"{run}/state").json()["data"]] == ["pipeline"]
    assert read(f"{run}/state", name="pipeline").json()["data"][0]["value"] == {"refusal": None}
    assert read(f"{run}/state", name="reward_service").json() == {"data": []}
    assert read(f"{run}/trajectories").json() == {"data": [], "next_cursor": None, "has_more": False}
    assert read(f"{run}/logs").json()["data"][0]["bytes"] == 6
    assert read(f"{run}/logs", job=world.trainer.pk).json()["text"] == "hello\n"
    catalog = [{"name": one.name, "unit": one.unit, "help": one.help} for one in METRICS.values()]
    assert read("metrics/definitions").json() == {"data": catalog}
    assert answer["series"][0]["unit"] == METRICS["reward/mean"].unit


def test_a_gap_is_answered_with_409_and_the_offset(world: World, client: Client) -> None:
    gap = ChunkReply(status=409, offset=0)
    assert ship(client, world, encode(step(1)), offset=100) == gap
    assert ship(client, world, b"x", offset=100, file="output.log#0") == gap


def test_batch_without_offset_or_above_the_limit_is_rejected(world: World, client: Client) -> None:
    whole = single_chunk(world.trainer.pk, FILE, b"x" * 10)
    for body in (
        whole.replace(b'"offset":0', b'"offset":-1'),
        whole.replace(b'"offset":0', b'"offset":"many"'),
    ):
        assert body != whole and post(client, body, world.credential).status_code == 422
    huge = b"x" * (BATCH_HEAD_BYTES + BATCH_BYTES + 1)
    assert post(client, huge, world.credential).status_code == 413


def test_only_the_node_of_the_job_may_ship(world: World, client: Client) -> None:
    other = build_world("two")
    assert ship(client, world, encode(step(1)), job=other.trainer.pk).status == 404
    body = single_chunk(world.trainer.pk, FILE, encode(step(1)))
    assert post(client, body, "").status_code == 401
    assert post(client, body, world.token()).status_code == 401


@pytest.mark.parametrize(
    "path",
    ["metrics", "metric-names", "histograms?name=h", "state", "state/d", "trajectories", "logs"],
)
def test_a_foreign_run_does_not_exist(world: World, client: Client, path: str) -> None:
    other = build_world("two")
    token = other.token()
    answer = client.get(f"/api/v1/runs/{world.run.pk}/{path}", headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 404
    assert client.get(f"/api/v1/runs/{world.run.pk}/{path}").status_code == 401


def test_a_wrong_query_names_its_field(read: Callable[..., Any], world: World) -> None:
    for query in ({"axis": "sideways"}, {"limit": "0"}, {"after_x": "x"}, {"max_points": "99999999"}):
        answer = read(f"runs/{world.run.pk}/metrics", **query)
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["pointer"] == f"/{next(iter(query))}"
    unnamed = read(f"runs/{world.run.pk}/histograms")
    assert (unnamed.status_code, unnamed.json()["errors"][0]["pointer"]) == (422, "/name")
    assert "staleness/consumed_tokens" in unnamed.json()["detail"]


# --- server-sent events -----------------------------------------------------------------------------------


@pytest_asyncio.fixture
async def stream_world(transactional_db: None) -> AsyncIterator[World]:
    yield await database_sync_to_async(build_world)()
    await hub().close()


async def events(
    world: World, *, enough: int, headers: dict[str, str] | None = None, **query: Any
) -> list[dict[str, str]]:
    """The first `enough` events of a stream, or all of them when it ends before."""
    token = await database_sync_to_async(world.token)()
    answer = await AsyncClient().get(
        "/api/v1/stream", query, headers={"Authorization": f"Bearer {token}", **(headers or {})}
    )
    assert answer.status_code == 200, answer.content
    found: list[dict[str, str]] = []
    async with asyncio.timeout(60):
        async for chunk in answer.streaming_content:
            text = chunk.decode()
            if not text.startswith(":"):
                found.append(dict(line.split(": ", 1) for line in text.strip().splitlines()))
            if len(found) == enough:
                break
    await answer.streaming_content.aclose()
    return found


async def test_server_sent_events_replay_and_follow(stream_world: World) -> None:
    topic = f"run:{stream_world.run.pk}"
    await apublish(topic, points(1), points(2))
    following = asyncio.create_task(events(stream_world, enough=4, topic=topic, after_seq=0))
    await asyncio.sleep(0.2)
    await apublish(topic, points(3))
    found = await following
    assert [event["event"] for event in found] == ["subscribed", "points", "points", "points"]
    assert [event["id"] for event in found[1:]] == ["1", "2", "3"]


async def test_a_reconnecting_reader_goes_on_after_its_last_event(stream_world: World) -> None:
    topic = f"run:{stream_world.run.pk}"
    await apublish(topic, points(1), points(2), points(3))
    found = await events(stream_world, enough=2, topic=topic, headers={"Last-Event-ID": "2"})
    assert found[1]["id"] == "3"


async def test_the_stream_of_an_ended_run_ends_with_its_status(stream_world: World) -> None:
    topic = f"run:{stream_world.run.pk}"
    stream_world.run.status = "SUCCEEDED"
    await stream_world.run.asave()
    await apublish(topic, points(1))
    found = await events(stream_world, enough=99, topic=topic, after_seq=0)
    assert [event["event"] for event in found] == ["subscribed", "points", "end"]
    assert '"status":"SUCCEEDED"' in found[-1]["data"]


async def test_a_polled_stream_ends_with_what_there_is(stream_world: World) -> None:
    topic = f"run:{stream_world.run.pk}"
    await apublish(topic, points(1), points(2))
    found = await events(stream_world, enough=99, topic=topic, after_seq=0, poll=60)
    assert [event["event"] for event in found] == ["subscribed", "points", "points"]
    nothing = await events(stream_world, enough=99, topic=topic, after_seq=2, poll=1)
    assert [event["event"] for event in nothing] == ["subscribed"]
    stream_world.run.status = "SUCCEEDED"
    await stream_world.run.asave()
    over = await events(stream_world, enough=99, topic=topic, after_seq=2, poll=60)
    assert [event["event"] for event in over] == ["subscribed", "end"]


async def test_a_quiet_stream_stays_alive(stream_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "KEEP_ALIVE_SECONDS", 0.05)
    token = await database_sync_to_async(stream_world.token)()
    answer = await AsyncClient().get(
        "/api/v1/stream", {"topic": "pool"}, headers={"Authorization": f"Bearer {token}"}
    )
    async with asyncio.timeout(60):
        async for chunk in answer.streaming_content:
            if chunk.decode().startswith(":"):
                break
    await answer.streaming_content.aclose()


async def test_a_stream_is_refused_with_the_reason(stream_world: World) -> None:
    other = await database_sync_to_async(build_world)("two")
    token = await database_sync_to_async(other.token)()
    bearer = {"Authorization": f"Bearer {token}"}
    client = AsyncClient()
    assert (await client.get("/api/v1/stream", {"topic": "pool"})).status_code == 401
    foreign = await client.get("/api/v1/stream", {"topic": f"run:{stream_world.run.pk}"}, headers=bearer)
    assert foreign.status_code == 404
    for wrong in ({"after_seq": "x"}, {"poll": "0"}, {"poll": "61"}, {"poll": "soon"}):
        refused = await client.get("/api/v1/stream", {"topic": "pool", **wrong}, headers=bearer)
        assert refused.status_code == 422, wrong
        assert next(iter(wrong.values())) in refused.json()["detail"]


async def test_a_ticket_opens_one_stream_once_and_for_a_minute(stream_world: World) -> None:
    """For an EventSource, which can send no header."""
    topic = f"run:{stream_world.run.pk}"
    token = await database_sync_to_async(stream_world.token)()
    bearer = {"Authorization": f"Bearer {token}"}
    tickets = [
        (await AsyncClient().post("/api/v1/stream-tickets", b"", "application/json", headers=bearer)).json()[
            "ticket"
        ]
        for _ in range(2)
    ]
    opened = await AsyncClient().get("/api/v1/stream", {"topic": topic, "ticket": tickets[0]})
    assert opened.status_code == 200
    await opened.streaming_content.aclose()
    again = await AsyncClient().get("/api/v1/stream", {"topic": topic, "ticket": tickets[0]})
    assert again.status_code == 401
    await StreamTicket.objects.filter(used_at=None).aupdate(expires_at=clock.now())
    late = await AsyncClient().get("/api/v1/stream", {"topic": topic, "ticket": tickets[1]})
    assert late.status_code == 401
    assert (await AsyncClient().get("/api/v1/stream", {"topic": topic, "ticket": "guess"})).status_code == 401
    assert not await StreamTicket.objects.filter(sha256__in=tickets).aexists(), "kept as a hash"


async def test_a_ticket_is_worth_no_more_than_its_token(stream_world: World) -> None:
    token = await database_sync_to_async(stream_world.token)("pool:read")
    bearer = {"Authorization": f"Bearer {token}"}
    ticket = (
        await AsyncClient().post("/api/v1/stream-tickets", b"", "application/json", headers=bearer)
    ).json()["ticket"]
    topic = f"run:{stream_world.run.pk}"
    refused = await AsyncClient().get("/api/v1/stream", {"topic": topic, "ticket": ticket})
    assert refused.status_code == 404
    credential = Credential(ticket=digest(ticket))
    assert await database_sync_to_async(credential.caller)() is not None
    await ApiToken.objects.filter(sha256=digest(token)).aupdate(revoked_at=clock.now())
    assert await database_sync_to_async(credential.caller)() is None
