"""A user's request on its way to a job and back: through the real web application, sockets and agent's end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import httpx
import pytest
from aiohttp import web
from channels.db import database_sync_to_async
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from control_plane.accounts import selectors
from control_plane.accounts.models import ApiToken
from control_plane.accounts.tokens import tokens
from control_plane.core.infra import clock
from control_plane.fleet.services import revoke
from control_plane.tunnel import consumers, views
from control_plane.tunnel.tunnel_router import tunnel_router
from oolong.contracts.relay.endpoints import ENDPOINTS
from oolong.contracts.relay.frames import Data, Head, Open, decode, encode
from oolong.contracts.relay.window import WINDOW_BYTES
from tests.support.waiting import eventually
from tests.unit.control_plane.telemetry.world import build_world
from tests.unit.control_plane.tunnel.conftest import JOB_TOKEN, Site

MIB = 2**20


async def echo(request: web.Request) -> web.Response:
    seen = {
        "method": request.method,
        "path": request.path_qs,
        "headers": {name.lower(): value for name, value in request.headers.items()},
        "bytes": len(await request.read()),
    }
    return web.json_response(seen, status=201, headers={"X-Inside": "secret", "Retry-After": "7"})


async def test_a_request_reaches_the_job_and_its_answer_comes_back(site: Site) -> None:
    job = await site.job(echo)
    await site.node(job)
    client = await site.client("sessions:write")
    content = b"x" * (3 * WINDOW_BYTES + 17)
    answer = await client.post(
        site.path("/0-ab/reward"),
        content=content,
        headers={
            "Content-Type": "text/plain",
            "Cookie": "a=b",
            "X-Forwarded-For": "1.2.3.4",
            "Oolong-Relay": "no",
        },
    )
    assert answer.status_code == 201
    seen = answer.json()
    assert (seen["method"], seen["path"], seen["bytes"]) == ("POST", "/sessions/0-ab/reward", len(content))
    headers = seen["headers"]
    # The job sees its attempt's token, never the user's; and nothing that is not on the list.
    assert headers["authorization"] == f"Bearer {JOB_TOKEN}"
    assert (headers["content-type"], headers["oolong-relay"]) == ("text/plain", "1")
    assert not {"cookie", "x-forwarded-for"} & set(headers)
    assert answer.headers["Retry-After"] == "7" and "X-Inside" not in answer.headers
    assert answer.headers["X-Request-Id"]
    await until(
        lambda: tunnel_router().callers == {} and tunnel_router().sockets[site.world.node.pk].routes == {}
    )


async def test_parts_of_an_answer_arrive_as_the_job_writes_them(site: Site) -> None:
    go_on = asyncio.Event()

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: 1\n\n")
        await go_on.wait()
        await response.write(b"data: 2\n\n")
        return response

    await site.node(await site.job(stream))
    client = await site.client()
    async with client.stream("POST", site.path("/0-ab/v1/chat/completions"), content=b"{}") as answer:
        parts = answer.aiter_raw()
        assert await anext(parts) == b"data: 1\n\n"
        go_on.set()
        assert [part async for part in parts] == [b"data: 2\n\n"]


async def test_who_may_call(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    job = await site.job(echo)
    await site.node(job)
    other = await database_sync_to_async(build_world)("two")
    path = site.path()

    async def status(client: httpx.AsyncClient) -> tuple[int, str]:
        answer = await client.post(path, content=b"{}")
        document = answer.json()
        assert answer.status_code == 201 or document["request_id"]
        return answer.status_code, document.get("code", "")

    async with site.bare_client() as nobody, site.bare_client(Authorization="Bearer ool_made_up") as liar:
        assert await status(nobody) == (401, "not_authenticated")
        assert await status(liar) == (401, "not_authenticated")
    async with site.bare_client(Authorization=f"Bearer {site.world.credential}") as node:
        assert await status(node) == (401, "not_authenticated")
    assert await status(await site.client("runs:read", "runs:write")) == (403, "missing_scope")
    assert await status(await site.client(world=other)) == (404, "not_found")
    foreign = await (await site.client(world=other)).post(site.path(run_id="run_nothing"), content=b"{}")
    assert foreign.status_code == 404
    expired = await site.client("sessions:write")
    past = clock.now() - timedelta(seconds=1)
    await ApiToken.objects.filter(scopes=["sessions:write"]).aupdate(expires_at=past)
    assert await status(expired) == (401, "not_authenticated")
    assert job.requests == []
    assert await status(await site.client()) == (201, "")


async def test_what_is_too_large_or_not_plain_does_not_leave_the_control_plane(site: Site) -> None:
    job = await site.job(echo)
    await site.node(job)
    client = await site.client()
    answer = await client.post(site.path("/0-a"), content=b"x" * (ENDPOINTS["sessions"].request_bytes + 1))
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    for path in ("/0-a/%2e%2e/claim", "/0-a?x=1", "/0-a/b%0d%0ac", "/0-a/%252e"):
        assert (await client.post(site.path(path), content=b"{}")).status_code == 404, path
    answer = await client.delete(site.path("/0-a"))
    assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")
    assert job.requests == []


async def test_a_run_that_serves_nothing_says_why(site: Site) -> None:
    client = await site.client()
    answer = await client.post(site.path(), content=b"{}")
    assert (answer.status_code, answer.json()["code"]) == (503, "run_not_running")
    assert answer.headers["Retry-After"]
    await site.node()
    answer = await client.post(site.path(), content=b"{}")
    assert (answer.status_code, answer.json()["code"]) == (409, "not_served")
    assert "agent_session" in answer.json()["detail"]
    site.world.run.status = "SUCCEEDED"
    await site.world.run.asave()
    answer = await client.post(site.path(), content=b"{}")
    assert (answer.status_code, answer.json()["code"]) == (409, "has_ended")


async def test_without_the_nodes_socket_callers_get_a_retry_after(site: Site) -> None:
    job = await site.job(echo)
    end = await site.node(job)
    await end()
    await site.until_connected(site.world.node.pk, gone=True)
    client = await site.client()
    answer = await client.post(site.path(), content=b"{}")
    assert (answer.status_code, answer.json()["code"]) == (503, "node_unavailable")
    assert answer.headers["Retry-After"] and answer.json()["retryable"]
    await site.node(job)  # the node dials again: all is well
    assert (await client.post(site.path(), content=b"{}")).status_code == 201


async def test_a_job_that_does_not_listen_is_unavailable(site: Site) -> None:
    job = await site.job(echo)
    await site.node(job)
    job.port = 1
    await site.node(job)
    answer = await (await site.client()).post(site.path(), content=b"{}")
    assert (answer.status_code, answer.json()["code"]) == (503, "tunnel_unavailable")


async def test_a_full_endpoint_sends_the_caller_on_to_the_next(site: Site) -> None:
    async def full(request: web.Request) -> web.Response:
        return web.json_response({"door": "full"}, status=429)

    doors = [await site.job(full), await site.job(echo)]
    await site.node(*doors)
    client = await site.client()
    answer = await client.post(site.path(), content=b"{}")
    assert answer.status_code == 201 and [len(door.requests) for door in doors] == [1, 1]
    await site.node(doors[0], doors[0])
    answer = await client.post(site.path(), content=b"{}")
    assert (answer.status_code, answer.json()) == (429, {"door": "full"})


async def hang(request: web.Request) -> web.Response:
    await asyncio.Event().wait()
    raise AssertionError


async def until(condition: Callable[[], bool]) -> None:
    await eventually(
        condition, lambda: f"callers {tunnel_router().callers}, sockets {tunnel_router().sockets}"
    )


async def test_a_node_that_goes_in_the_middle_ends_the_call_and_leaves_nothing(site: Site) -> None:
    job = await site.job(hang)
    end = await site.node(job)
    client = await site.client()
    calling = asyncio.create_task(client.post(site.path("/0-a"), content=b"{}"))
    await until(lambda: job.open_now == 1)
    await end()
    answer = await calling
    assert (answer.status_code, answer.json()["code"]) == (502, "tunnel_lost")
    await until(lambda: job.open_now == 0 and tunnel_router().callers == {})
    await site.until_connected(site.world.node.pk, gone=True)


async def test_a_caller_who_hangs_up_ends_the_request_at_the_job(site: Site) -> None:
    job = await site.job(hang)
    await site.node(job)
    client = await site.client()
    calling = asyncio.create_task(client.post(site.path("/0-a"), content=b"{}"))
    await until(lambda: job.open_now == 1)
    calling.cancel()
    await until(lambda: job.open_now == 0 and tunnel_router().callers == {})
    await until(lambda: tunnel_router().sockets[site.world.node.pk].routes == {})


async def test_an_event_stream_that_breaks_says_so_as_openai_clients_expect(site: Site) -> None:
    async def half(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: 1\n\n")
        return await hang(request)  # type: ignore[return-value]

    end = await site.node(await site.job(half))
    client = await site.client()
    async with client.stream("POST", site.path("/0-ab/v1/chat/completions"), content=b"{}") as answer:
        parts = answer.aiter_raw()
        assert await anext(parts) == b"data: 1\n\n"
        await end()
        rest = b"".join([part async for part in parts])
    error = json.loads(rest.removeprefix(b"data: "))["error"]
    assert error["code"] == "tunnel_lost"


async def test_a_caller_who_loses_the_token_loses_the_stream_at_once(site: Site) -> None:
    job = await site.job(hang)
    await site.node(job)
    client = await site.client("sessions:write")
    asking = asyncio.create_task(client.get(site.path("/0-a")))
    await until(lambda: job.open_now == 1)
    await database_sync_to_async(revoke_all)()
    refused = await asking
    assert (refused.status_code, refused.json()["code"]) == (502, "tunnel_gone")
    await until(lambda: job.open_now == 0)


def revoke_all() -> None:
    token = ApiToken.objects.get()
    caller = selectors.caller_in(token.user, token.project)
    assert caller is not None
    tokens.revoke_token(caller, token.pk, now=clock.now())


async def test_a_job_that_is_silent_for_too_long_is_given_up(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:

    quick = {"sessions": replace(ENDPOINTS["sessions"], head_seconds=0.2)}
    monkeypatch.setattr(views, "ENDPOINTS", quick)
    job = await site.job(hang)
    await site.node(job)
    answer = await (await site.client()).post(site.path("/0-a"), content=b"{}")
    assert (answer.status_code, answer.json()["code"]) == (504, "tunnel_timeout")
    await until(lambda: job.open_now == 0)


async def test_a_reader_that_stops_reading_holds_no_more_than_a_window(site: Site) -> None:
    """The job would write 60 MiB; the reader takes the first bytes and then waits."""
    written = 0

    async def flood(request: web.Request) -> web.StreamResponse:
        nonlocal written
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(60 * 16):
            await response.write(b"x" * (MIB // 16))
            written += MIB // 16
        return response

    await site.node(await site.job(flood))
    token = (await site.client()).headers["Authorization"]
    host, port = site.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
    request = f"GET /api/v1{site.path('/0-a')} HTTP/1.1\r\nHost: {host}\r\nAuthorization: {token}\r\n\r\n"
    writer.write(request.encode())
    assert b"200" in await reader.readline()
    standing = -1
    while standing != written:  # until nothing moves any more
        standing = written
        await asyncio.sleep(0.5)
    held = sum(caller.pipe.buffered_bytes for caller in tunnel_router().callers.values())
    assert held <= WINDOW_BYTES
    assert written < 16 * MIB  # what the kernel's and the servers' buffers on the way took, and no more
    writer.close()
    await until(lambda: tunnel_router().callers == {})


async def test_a_socket_answers_only_streams_that_were_opened_on_it(site: Site) -> None:
    """Another node knows the stream's number and answers first: nobody hears it."""
    job = await site.job(hang)
    await site.node(job)
    other = await database_sync_to_async(build_world)("two")
    headers = {"Authorization": f"Bearer {other.credential}"}
    async with connect(
        f"ws{site.url.removeprefix('http')}/ws/v1/tunnel",
        additional_headers=headers,
        proxy=None,
        open_timeout=60,
    ) as intruder:
        await site.until_connected(other.node.pk)
        calling = asyncio.create_task((await site.client()).post(site.path("/0-a"), content=b"{}"))
        await until(lambda: job.open_now == 1)
        (stream,) = tunnel_router().callers
        await intruder.send(encode(Head(stream, 200, [])))
        await intruder.send(encode(Data(stream, 0, b"forged")))
        await asyncio.sleep(0.1)
        assert not calling.done()
        calling.cancel()


async def test_the_socket_wants_a_node_credential_and_frames(site: Site) -> None:
    token = (await site.client()).headers["Authorization"]
    for headers in ({}, {"Authorization": token}, {"Authorization": "Bearer oolnode_made_up"}):
        socket = await connect(
            f"ws{site.url.removeprefix('http')}/ws/v1/tunnel",
            additional_headers=headers,
            proxy=None,
            open_timeout=60,
        )
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()
        assert closed.value.rcvd is not None and closed.value.rcvd.code == consumers.NOT_AUTHENTICATED
    headers = {"Authorization": f"Bearer {site.world.credential}"}
    for message in ("text", b"no frame"):
        socket = await connect(
            f"ws{site.url.removeprefix('http')}/ws/v1/tunnel",
            additional_headers=headers,
            proxy=None,
            open_timeout=60,
        )
        await site.until_connected(site.world.node.pk)
        await socket.send(message)
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()
        assert closed.value.rcvd is not None and closed.value.rcvd.code == consumers.BAD_FRAME
        await site.until_connected(site.world.node.pk, gone=True)


async def test_a_revoked_node_loses_its_socket_at_once_and_gets_no_other(site: Site) -> None:
    """Long before it is asked again by the clock."""
    headers = {"Authorization": f"Bearer {site.world.credential}"}
    url = f"ws{site.url.removeprefix('http')}/ws/v1/tunnel"
    socket = await connect(url, additional_headers=headers, proxy=None, open_timeout=60)
    await site.until_connected(site.world.node.pk)
    await database_sync_to_async(revoke)(site.world.node, now=clock.now())
    async with asyncio.timeout(consumers.RECHECK_SECONDS / 2):
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()
    assert closed.value.rcvd is not None and closed.value.rcvd.code == consumers.NOT_AUTHENTICATED
    again = await connect(url, additional_headers=headers, proxy=None, open_timeout=60)
    with pytest.raises(ConnectionClosed) as closed:
        await again.recv()
    assert closed.value.rcvd is not None and closed.value.rcvd.code == consumers.NOT_AUTHENTICATED


async def test_a_newer_socket_of_the_node_takes_over(site: Site) -> None:
    headers = {"Authorization": f"Bearer {site.world.credential}"}
    url = f"ws{site.url.removeprefix('http')}/ws/v1/tunnel"
    older = await connect(url, additional_headers=headers, proxy=None, open_timeout=60)
    await site.until_connected(site.world.node.pk)
    first = tunnel_router().sockets[site.world.node.pk]
    newer = await connect(url, additional_headers=headers, proxy=None, open_timeout=60)
    with pytest.raises(ConnectionClosed) as closed:
        await older.recv()
    assert closed.value.rcvd is not None and closed.value.rcvd.code == consumers.REPLACED
    await until(lambda: tunnel_router().sockets.get(site.world.node.pk) not in (None, first))
    pipe = await tunnel_router().open(
        site.world.node.pk, Open("a" * 32, "att", "sessions", "GET", "", []), max_response_bytes=1
    )
    frame = decode(await newer.recv())  # type: ignore[arg-type]
    assert isinstance(frame, Open) and frame.stream == pipe.stream
    await newer.close()
