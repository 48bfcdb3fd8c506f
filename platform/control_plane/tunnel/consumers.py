"""A node's end of the tunnel: /ws/v1/tunnel, dialed by its agent with the node credential as bearer token.

Binary messages only, each one frame (oolong.contracts.relay.frames). Close codes: 4400 no frame, 4401 the
credential is not known or was revoked, 4408 too slow, 4409 a newer socket of the node has taken over, 4429 too many
sockets of this address that have not authenticated.
"""

from __future__ import annotations

import asyncio
import logging

from channels.generic.websocket import AsyncWebsocketConsumer

from control_plane.core.stream.open_streams import OpenStream, TooManyStreams, stream_limits
from control_plane.fleet.models import Node
from control_plane.fleet.selectors import node_of_credential
from control_plane.telemetry.stream.access_watch import access_watch, wait_for_wakeup
from control_plane.telemetry.stream.credentials import in_database
from control_plane.tunnel.tunnel_router import NodeConnection, tunnel_router
from oolong.contracts.relay.frames import BadFrame, decode

log = logging.getLogger(__name__)

RECHECK_SECONDS = 60.0
SLOW_SECONDS = 30.0  # a frame that cannot be sent for so long ends the socket
MAX_MESSAGE_BYTES = 64 * 1024

BAD_FRAME, NOT_AUTHENTICATED, TOO_SLOW, REPLACED, TOO_MANY = 4400, 4401, 4408, 4409, 4429


class TunnelConsumer(AsyncWebsocketConsumer):
    async def connect(self) -> None:
        self.tasks: list[asyncio.Task[None]] = []
        self.revoked = asyncio.Event()  # it may have been, so it is asked again
        self.stop_watching = lambda: None
        self.socket: NodeConnection | None = None
        self.stream: OpenStream | None = None
        self.credential = _bearer(self.scope["headers"])
        try:
            self.stream = stream_limits().open((self.scope.get("client") or ("", 0))[0])
        except TooManyStreams as refusal:
            await self.accept()
            await self.close(TOO_MANY, str(refusal)[:120])
            return
        node = await self._node()
        # Accepted even when it is refused at once: only then does the agent see the close code.
        await self.accept()
        if node is None:
            await self.close(NOT_AUTHENTICATED)
            return
        self.stream.identify_node()
        self.stop_watching = access_watch().follow(node.pk, self.revoked.set)
        queue: asyncio.Queue[bytes] = asyncio.Queue()  # what it holds is bounded by the streams' credit
        self.socket = NodeConnection(node.pk, send=queue.put_nowait, end=self._replaced)
        self.tasks = [asyncio.create_task(self._send(queue)), asyncio.create_task(self._recheck())]
        await tunnel_router().register(self.socket)
        log.info("relay: node %s is connected", node.pk)

    async def disconnect(self, code: int) -> None:
        if self.stream is not None:
            self.stream.close()
        self.stop_watching()
        for task in self.tasks:
            task.cancel()
        if self.socket is not None:
            await tunnel_router().unregister(self.socket)
            log.info("relay: node %s is gone (%s)", self.socket.node_id, code)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        if self.socket is None:
            return
        try:
            if bytes_data is None or len(bytes_data) > MAX_MESSAGE_BYTES:
                raise BadFrame("a text message, or one that is too long")
            frame = decode(bytes_data)
        except BadFrame as error:
            log.warning("relay: node %s sent %s", self.socket.node_id, error)
            await self.close(BAD_FRAME)
            return
        tunnel_router().from_node(self.socket, frame)

    async def _send(self, queue: asyncio.Queue[bytes]) -> None:
        while True:
            message = await queue.get()
            try:
                async with asyncio.timeout(SLOW_SECONDS):
                    await self.send(bytes_data=message)
            except TimeoutError:
                await self.close(TOO_SLOW)
                return

    async def _recheck(self) -> None:
        """Close the socket of a node whose credential is revoked: at once, or at the next recheck."""
        while True:
            await wait_for_wakeup(self.revoked, RECHECK_SECONDS)
            if await self._node() is None:
                await self.close(NOT_AUTHENTICATED)
                return

    async def _node(self) -> Node | None:
        node = await in_database(node_of_credential)(self.credential) if self.credential else None
        return None if node is None or node.is_revoked else node

    def _replaced(self) -> None:
        self.tasks.append(asyncio.create_task(self.close(REPLACED)))


def _bearer(headers: list[tuple[bytes, bytes]]) -> str:
    for name, value in headers:
        if name == b"authorization":
            kind, _, text = value.decode("latin-1").partition(" ")
            return text.strip() if kind.lower() == "bearer" else ""
    return ""
