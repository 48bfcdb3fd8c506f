"""Connect the two ends of the tunnel: requests of users in this process, and nodes' sockets in any process.

A node's socket is held by one process, which says so in Valkey. A request that reached the same process talks to
the socket directly; another process sends its frames over the bus, and the answers come back on a channel of its
own. The holder knows which process opened which stream, and a socket can answer only streams that were opened on
it: a node never speaks for another node.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import msgspec
from django.conf import settings

from control_plane.core.infra.cancel_and_wait import cancel_and_wait
from control_plane.tunnel.bus import Bus, BusDown
from oolong.contracts.relay.frames import (
    AnyFrame,
    BadFrame,
    Cancel,
    CancelCode,
    End,
    Open,
    decode,
    encode,
)
from oolong.contracts.relay.pipe import Pipe

log = logging.getLogger(__name__)

MAX_NODE_STREAMS = (
    256  # of one node; with a window in each direction this bounds what a socket's process holds
)
MAX_OWNER_STREAMS = 64  # of one owner (a project) through one process: the others keep their share
REGISTRATION_SECONDS = 15
RENEW_SECONDS = 5.0
WATCH_SECONDS = 2.0


class TooManyStreams(Exception):
    """The owner has reached its number of streams through this process."""


class NodeUnavailable(Exception):
    """No process that can be reached holds a socket of the node."""


@dataclass
class Route:
    """A stream on a node's socket: which process its caller is in, and how many directions have ended."""

    origin: str  # process id; "" for this one
    ends: int = 0


@dataclass(eq=False)
class NodeConnection:
    """A node's socket that this process holds. `send` queues one message for it and never blocks."""

    node_id: str
    send: Callable[[bytes], None]
    end: Callable[[], None]  # close it: a newer socket of the node has taken over
    socket_id: str = field(default_factory=lambda: secrets.token_hex(8))
    routes: dict[str, Route] = field(default_factory=dict)


@dataclass
class _Caller:
    """A stream whose user is in this process."""

    pipe: Pipe
    socket: NodeConnection | None  # the node's socket, when this process holds it
    channel: str = ""  # of the process that does, otherwise
    owner: str = ""


class _Envelope(msgspec.Struct, array_like=True):
    origin: str
    frame: bytes


class TunnelRouter:
    def __init__(self, bus: Bus) -> None:
        self.process_id = secrets.token_hex(8)
        self.sockets: dict[str, NodeConnection] = {}
        self.callers: dict[str, _Caller] = {}
        self._bus = bus
        self._tasks: list[asyncio.Task[None]] = []
        self._started: asyncio.Lock = asyncio.Lock()

    # --- nodes --------------------------------------------------------------------------------------------

    async def register(self, socket: NodeConnection) -> None:
        """From now on the node is reached through this socket."""
        await self._start()
        await self._bus.subscribe(
            _socket_channel(socket.socket_id), lambda message: self._from_bus(socket, message)
        )
        await self._announce(socket)
        # Last: a renewal that finds it here, and an older one in its entry, would end it.
        older = self.sockets.get(socket.node_id)
        self.sockets[socket.node_id] = socket
        if older is not None:
            self._cancel_routes(older, "lost", "the node has connected again")
            older.end()

    async def unregister(self, socket: NodeConnection) -> None:
        """The socket is gone: its streams end as lost."""
        self._cancel_routes(socket, "lost", "the connection to the node was lost")
        await self._bus.unsubscribe(_socket_channel(socket.socket_id))
        if self.sockets.get(socket.node_id) is socket:
            del self.sockets[socket.node_id]
            try:
                await self._bus.release(_node_key(socket.node_id), socket.socket_id)
            except BusDown as error:
                log.info("relay: %s; the entry of node %s expires by itself", error, socket.node_id)

    def from_node(self, socket: NodeConnection, frame: AnyFrame) -> None:
        """Deliver a frame from a node's socket. A socket cannot answer streams that were not opened on it."""
        route = socket.routes.get(frame.stream)
        if route is None:
            return
        self._count_ends(socket, frame, route)
        if route.origin == "":
            caller = self.callers.get(frame.stream)
            if caller is not None:
                caller.pipe.deliver(frame)
            return
        self._bus.post(
            _process_channel(route.origin),
            encode(frame),
            on_undelivered=lambda: self._caller_gone(socket, frame.stream),
        )

    # --- callers ------------------------------------------------------------------------------------------

    def require_stream_share(self, owner: str) -> None:
        """Raises TooManyStreams when the owner has its share of this process's streams already."""
        if sum(caller.owner == owner for caller in self.callers.values()) >= MAX_OWNER_STREAMS:
            raise TooManyStreams(f"{MAX_OWNER_STREAMS} requests of this project are open already")

    async def open(self, node_id: str, opening: Open, *, max_response_bytes: int, owner: str = "") -> Pipe:
        """A stream to the node. Raises NodeUnavailable."""
        await self._start()
        stream = opening.stream
        socket = self.sockets.get(node_id)
        channel = "" if socket is not None else await self._find(node_id)
        pipe = Pipe(
            stream,
            emit=lambda frame: self._to_node(stream, frame),
            ended=lambda: self._forget(stream),
            max_received_bytes=max_response_bytes,
        )
        self.callers[stream] = _Caller(pipe, socket, channel, owner)
        if socket is not None:
            self._on_socket(socket, opening, origin="")
            return pipe
        try:
            heard = await self._bus.publish(
                channel, msgspec.msgpack.encode(_Envelope(self.process_id, encode(opening)))
            )
        except BusDown as error:
            self._forget(stream)
            raise NodeUnavailable(str(error)) from error
        if not heard:
            self._forget(stream)
            raise NodeUnavailable(f"node {node_id} has just lost its connection")
        return pipe

    async def _find(self, node_id: str) -> str:
        try:
            socket_id = await self._bus.get(_node_key(node_id))
        except BusDown as error:
            raise NodeUnavailable(str(error)) from error
        if not socket_id:
            raise NodeUnavailable(f"node {node_id} is not connected")
        return _socket_channel(socket_id)

    def _to_node(self, stream: str, frame: AnyFrame) -> None:
        caller = self.callers.get(stream)
        if caller is None:
            return
        if caller.socket is not None:
            self._on_socket(caller.socket, frame, origin="")
        else:
            self._bus.post(
                caller.channel,
                msgspec.msgpack.encode(_Envelope(self.process_id, encode(frame))),
                on_undelivered=lambda: caller.pipe.deliver(
                    Cancel(stream, "lost", "the process that holds the node's connection is gone")
                ),
            )

    def _forget(self, stream: str) -> None:
        self.callers.pop(stream, None)

    # --- on the holder's side -----------------------------------------------------------------------------

    def _on_socket(self, socket: NodeConnection, frame: AnyFrame, *, origin: str) -> None:
        """A caller's frame on its way to the node."""
        if isinstance(frame, Open):
            if len(socket.routes) >= MAX_NODE_STREAMS or frame.stream in socket.routes:
                refusal = Cancel(frame.stream, "busy", f"{len(socket.routes)} streams are open to this node")
                self._deliver_to_caller(origin, refusal)
                return
            socket.routes[frame.stream] = Route(origin)
            socket.send(encode(frame))
            return
        route = socket.routes.get(frame.stream)
        if route is None or route.origin != origin:
            return
        self._count_ends(socket, frame, route)
        socket.send(encode(frame))

    def _from_bus(self, socket: NodeConnection, message: bytes) -> None:
        try:
            envelope = msgspec.msgpack.decode(message, type=_Envelope)
            frame = decode(envelope.frame)
        except (msgspec.DecodeError, BadFrame) as error:
            log.warning("relay: another process sent what this one does not read: %s", error)
            return
        self._on_socket(socket, frame, origin=envelope.origin)

    def _count_ends(self, socket: NodeConnection, frame: AnyFrame, route: Route) -> None:
        route.ends += isinstance(frame, End)
        if isinstance(frame, Cancel) or route.ends == 2:
            socket.routes.pop(frame.stream, None)

    def _caller_gone(self, socket: NodeConnection, stream: str) -> None:
        if socket.routes.pop(stream, None) is not None:
            socket.send(encode(Cancel(stream, "gone", "the process that served the caller is gone")))

    def _cancel_routes(self, socket: NodeConnection, code: CancelCode, message: str) -> None:
        routes, socket.routes = socket.routes, {}
        for stream, route in routes.items():
            self._deliver_to_caller(route.origin, Cancel(stream, code, message))

    def _deliver_to_caller(self, origin: str, frame: AnyFrame) -> None:
        if origin == "":
            caller = self.callers.get(frame.stream)
            if caller is not None:
                caller.pipe.deliver(frame)
        else:
            self._bus.post(_process_channel(origin), encode(frame), on_undelivered=lambda: None)

    # --- the process itself -------------------------------------------------------------------------------

    async def _start(self) -> None:
        async with self._started:
            if not self._tasks:
                await self._bus.subscribe(_process_channel(self.process_id), self._to_caller)
                self._tasks = [asyncio.create_task(self._renew()), asyncio.create_task(self._watch())]

    def _to_caller(self, message: bytes) -> None:
        try:
            frame = decode(message)
        except BadFrame as error:  # of another release, say; the numbers tell the stream what it lacks
            log.warning("relay: another process sent %s", error)
            return
        caller = self.callers.get(frame.stream)
        if caller is not None:
            caller.pipe.deliver(frame)

    async def close(self) -> None:
        await cancel_and_wait(self._tasks)
        self._tasks = []
        for socket in list(self.sockets.values()):
            await self.unregister(socket)
        await self._bus.close()

    async def _announce(self, socket: NodeConnection) -> None:
        try:
            await self._bus.put(_node_key(socket.node_id), socket.socket_id, seconds=REGISTRATION_SECONDS)
        except BusDown as error:
            log.warning("relay: %s; node %s is reached through this process only", error, socket.node_id)

    async def _renew(self) -> None:
        """Say that the sockets are still here; give up those that a newer one of the node has replaced."""
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            for socket in list(self.sockets.values()):
                try:
                    holder = await self._bus.renew(
                        _node_key(socket.node_id), socket.socket_id, seconds=REGISTRATION_SECONDS
                    )
                except BusDown as error:
                    log.warning("relay: %s", error)
                    break
                if holder != socket.socket_id:
                    socket.end()

    async def _watch(self) -> None:
        """End streams whose other process was killed: its channel has no listener."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            callers = {stream: c.channel for stream, c in self.callers.items() if c.channel}
            routes = [
                (socket, stream, _process_channel(route.origin))
                for socket in self.sockets.values()
                for stream, route in socket.routes.items()
                if route.origin
            ]
            channels = {*callers.values(), *(channel for _, _, channel in routes)}
            try:
                listeners = await self._bus.listeners(sorted(channels))
            except BusDown as error:
                log.warning("relay: %s", error)
                continue
            for stream, channel in callers.items():
                caller = self.callers.get(stream)
                if caller is not None and not listeners[channel]:
                    message = "the process that held the node's connection is gone"
                    caller.pipe.deliver(Cancel(stream, "lost", message))
            for socket, stream, channel in routes:
                if not listeners[channel]:
                    self._caller_gone(socket, stream)


def _node_key(node_id: str) -> str:
    return f"oolong:relay:node:{node_id}"


def _socket_channel(socket_id: str) -> str:
    return f"oolong:relay:socket:{socket_id}"


def _process_channel(process_id: str) -> str:
    return f"oolong:relay:process:{process_id}"


_routers: WeakKeyDictionary[asyncio.AbstractEventLoop, TunnelRouter] = WeakKeyDictionary()


def tunnel_router() -> TunnelRouter:
    """The exchange of the running event loop; it connects with the first socket or request."""
    loop = asyncio.get_running_loop()
    if loop not in _routers:
        _routers[loop] = TunnelRouter(Bus(settings.ENVIRONMENT.redis_url))
    return _routers[loop]
