"""Several web processes: the request reaches one, the node's socket another. Each TunnelRouter stands for a process."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from control_plane.tunnel import tunnel_router as exchanges
from control_plane.tunnel.bus import Bus
from control_plane.tunnel.tunnel_router import NodeConnection, NodeUnavailable, TunnelRouter
from oolong.contracts.relay.frames import AnyFrame, Cancel, Data, End, Head, Open, decode, encode
from oolong.contracts.relay.pipe import Cancelled, Pipe
from tests.support.waiting import eventually

NODE = "node_1"


class Agent:
    """What a node does at the other end of a socket, frame by frame."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[AnyFrame] = asyncio.Queue()
        self.ended = asyncio.Event()
        self.socket = NodeConnection(
            NODE, send=lambda message: self.heard.put_nowait(decode(message)), end=self.ended.set
        )

    async def hear(self, kind: type) -> AnyFrame:
        async with asyncio.timeout(60):
            while not isinstance(frame := await self.heard.get(), kind):
                pass
            return frame


@pytest_asyncio.fixture
async def processes(valkey_url: str) -> AsyncIterator[list[TunnelRouter]]:
    made = [TunnelRouter(Bus(valkey_url)) for _ in range(2)]
    yield made
    for one in made:
        await one.close()


def opening() -> Open:
    return Open(secrets.token_hex(16), "att_1", "sessions", "POST", "", [])


async def open_from(process: TunnelRouter) -> Pipe:
    return await process.open(NODE, opening(), max_response_bytes=2**30)


async def test_a_stream_crosses_from_process_to_process_in_order(processes: list[TunnelRouter]) -> None:
    near, holder = processes
    agent = Agent()
    await holder.register(agent.socket)
    pipe = await open_from(near)
    opened = await agent.hear(Open)
    content = bytes(range(256)) * 8192  # 2 MiB: many windows
    over = asyncio.Event()

    async def node() -> None:
        """Echo, with credit as a real end gives it."""
        far = Pipe(
            opened.stream,
            emit=lambda frame: holder.from_node(agent.socket, decode(encode(frame))),
            ended=over.set,
            max_received_bytes=2**30,
        )

        async def feed() -> None:
            while True:
                far.deliver(await agent.heard.get())

        feeding = asyncio.create_task(feed())
        far.write_head(200, [])
        while (part := await far.read()) is not None:
            await far.write(part)
        far.write_end()
        await over.wait()
        feeding.cancel()

    async def send() -> None:
        await pipe.write(content)
        pipe.write_end()

    echoing, sending = asyncio.create_task(node()), asyncio.create_task(send())
    assert (await pipe.read_head()).status == 200
    received = b""
    while (part := await pipe.read()) is not None:
        received += part
    assert received == content
    await asyncio.gather(echoing, sending)
    await eventually(
        lambda: near.callers == {} and agent.socket.routes == {}, "nothing is left of the stream"
    )


async def test_a_node_that_nobody_holds_is_away(processes: list[TunnelRouter]) -> None:
    near, holder = processes
    with pytest.raises(NodeUnavailable, match="not connected"):
        await open_from(near)
    agent = Agent()
    await holder.register(agent.socket)
    await open_from(near)
    await holder.unregister(agent.socket)
    with pytest.raises(NodeUnavailable):
        await open_from(near)


async def test_the_end_of_the_socket_ends_streams_of_other_processes(processes: list[TunnelRouter]) -> None:
    near, holder = processes
    agent = Agent()
    await holder.register(agent.socket)
    pipe = await open_from(near)
    await agent.hear(Open)
    await holder.unregister(agent.socket)
    with pytest.raises(Cancelled) as cancelled:
        await pipe.read_head()
    assert cancelled.value.code == "lost" and near.callers == {}


async def test_a_killed_holder_is_noticed_although_it_says_nothing(
    processes: list[TunnelRouter], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchanges, "WATCH_SECONDS", 0.1)
    near, holder = processes
    agent = Agent()
    await holder.register(agent.socket)
    pipe = await open_from(near)
    await agent.hear(Open)
    await holder._bus.close()  # as its death closes its connection to Valkey
    with pytest.raises(Cancelled) as cancelled:
        async with asyncio.timeout(60):
            await pipe.read_head()
    assert cancelled.value.code == "lost" and near.callers == {}
    with pytest.raises(NodeUnavailable, match="just lost"):
        await open_from(near)


async def test_a_killed_caller_leaves_no_orphan_at_the_node(
    processes: list[TunnelRouter], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchanges, "WATCH_SECONDS", 0.1)
    near, holder = processes
    agent = Agent()
    await holder.register(agent.socket)
    await open_from(near)
    await agent.hear(Open)
    await near._bus.close()
    cancel = await agent.hear(Cancel)
    assert isinstance(cancel, Cancel) and cancel.code == "gone" and agent.socket.routes == {}


async def test_an_answer_that_nobody_hears_is_cancelled_at_once(processes: list[TunnelRouter]) -> None:
    near, holder = processes
    agent = Agent()
    await holder.register(agent.socket)
    pipe = await open_from(near)
    await agent.hear(Open)
    await near._bus.close()
    holder.from_node(agent.socket, Head(pipe.stream, 200, []))
    holder.from_node(agent.socket, Data(pipe.stream, 0, b"x"))
    assert isinstance(await agent.hear(Cancel), Cancel)


async def test_a_node_that_dials_another_process_leaves_the_first(
    processes: list[TunnelRouter], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchanges, "RENEW_SECONDS", 3600.0)
    first, second = processes
    older, newer = Agent(), Agent()
    await first.register(older.socket)
    await second.register(newer.socket)
    monkeypatch.setattr(exchanges, "RENEW_SECONDS", 0.1)
    for process in processes:  # from now on they look, and not while one of them is still being dialled
        process._tasks.append(asyncio.create_task(process._renew()))
    async with asyncio.timeout(60):
        await older.ended.wait()
    assert not newer.ended.is_set()
    await first.unregister(older.socket)  # must not take the entry of the newer one with it
    pipe = await open_from(first)
    assert (await newer.hear(Open)).stream == pipe.stream


async def test_a_socket_is_renewed_only_once_the_entry_of_its_node_names_it(
    processes: list[TunnelRouter], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = processes
    await first.register(Agent().socket)
    asked, go_on = asyncio.Event(), asyncio.Event()
    put = second._bus.put

    async def late(key: str, value: str, *, seconds: int) -> None:
        asked.set()
        await go_on.wait()
        await put(key, value, seconds=seconds)

    monkeypatch.setattr(second._bus, "put", late)
    newer = Agent().socket
    attaching = asyncio.create_task(second.register(newer))
    await asked.wait()
    assert not second.sockets
    go_on.set()
    await attaching
    assert second.sockets == {NODE: newer}


async def test_a_process_sends_only_on_streams_of_its_own(
    processes: list[TunnelRouter], valkey_url: str
) -> None:
    near, holder = processes
    agent = Agent()
    await holder.register(agent.socket)
    pipe = await holder.open(NODE, opening(), max_response_bytes=1)
    await agent.hear(Open)
    holder._on_socket(agent.socket, End(pipe.stream, 0), origin=near.process_id)
    assert agent.heard.empty() and agent.socket.routes[pipe.stream].ends == 0


async def test_too_many_streams_to_one_node_are_refused_not_queued(
    processes: list[TunnelRouter], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchanges, "MAX_NODE_STREAMS", 2)
    near, holder = processes
    agent = Agent()
    await holder.register(agent.socket)
    pipes = [await open_from(holder), await open_from(near), await open_from(near)]
    with pytest.raises(Cancelled) as cancelled:
        await pipes[2].read_head()
    assert cancelled.value.code == "busy"


async def test_a_project_has_its_share_of_streams_and_leaves_the_others_theirs(
    processes: list[TunnelRouter], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchanges, "MAX_OWNER_STREAMS", 2)
    _, holder = processes
    agent = Agent()
    await holder.register(agent.socket)

    async def open_for(owner: str) -> Pipe:
        return await holder.open(NODE, opening(), max_response_bytes=1, owner=owner)

    pipes = [await open_for("red"), await open_for("red")]
    with pytest.raises(exchanges.TooManyStreams):
        holder.require_stream_share("red")
    holder.require_stream_share("blue")
    pipes[0].cancel("gone")
    holder.require_stream_share("red")


async def test_a_message_that_a_process_cannot_read_costs_no_other_stream(
    processes: list[TunnelRouter], valkey_url: str
) -> None:
    near, holder = processes
    agent = Agent()
    await holder.register(agent.socket)
    pipe = await open_from(near)
    await agent.hear(Open)
    stranger = Bus(valkey_url)
    for channel in (
        f"oolong:relay:process:{near.process_id}",
        f"oolong:relay:socket:{agent.socket.socket_id}",
    ):
        assert await stranger.publish(channel, b"\xc1") == 1
    await stranger.close()
    holder.from_node(agent.socket, Head(pipe.stream, 200, []))
    async with asyncio.timeout(60):
        assert (await pipe.read_head()).status == 200
    await pipe.write(b"x")
    assert await agent.hear(Data) == Data(pipe.stream, 0, b"x")


async def test_without_valkey_a_process_still_reaches_its_own_nodes() -> None:
    alone = TunnelRouter(Bus("redis://127.0.0.1:1/0"))
    agent = Agent()
    await alone.register(agent.socket)
    pipe = await open_from(alone)
    assert (await agent.hear(Open)).stream == pipe.stream
    with pytest.raises(NodeUnavailable, match="Valkey"):
        await alone.open("node_2", opening(), max_response_bytes=1)
    await alone.close()
