"""An event loop for tests whose clock is the work's own: a quick machine and a late one see the same order.

While anything can be done the clock (almost) stands still; when nothing can, it jumps to the next timer. A sleep
takes no time, a limit of 60 s is reached only by what really waits for it, and a machine that stands still for
seconds leaves no trace. In the loop's thread `time.monotonic`, `time.time` and `time.sleep` go by the same clock.

Connections between two sides that live in this loop are pairs of local sockets: what was written can be read at
once, so that "nothing can be done" is certain. What comes from outside it (threads, child processes, servers of
other processes) takes real time; while some of that may come the clock goes with the machine's, at most
`SLICE_SECONDS` for each look, however late that look is.
"""

from __future__ import annotations

import asyncio
import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures.thread import _threads_queues  # the threads of pools, which idle between calls
from typing import Any

real_monotonic, real_time, real_sleep = time.monotonic, time.time, time.sleep

SLICE_SECONDS = 0.01
TURN_SECONDS = 1e-5  # of a loop that has something to do: who always has would let no timer come


class _Selector(selectors.EpollSelector):
    loop: VirtualTimeLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            self.loop.pass_seconds(TURN_SECONDS)
            return ready
        if timeout is None:
            return super().select(None)
        if not self.loop.awaits_outside():
            ready = super().select(0)  # a thread may have said its last word and ended since the first look
            self.loop.pass_seconds(TURN_SECONDS if ready else timeout)
            return ready
        seconds = min(timeout, SLICE_SECONDS)
        began = real_monotonic()
        ready = super().select(seconds)
        self.loop.pass_seconds(min(real_monotonic() - began, seconds))
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._now = real_monotonic()
        self._to_epoch = real_time() - self._now
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)
        self._servers: dict[int, tuple[asyncio.base_events.Server, Callable[[], Any]]] = {}
        self._local: dict[socket.socket, socket.socket] = {}  # the end that a connected socket stands for
        self._children: list[asyncio.SubprocessTransport] = []
        self._calls_in_pools = 0
        self._threads_before = set(threading.enumerate())
        self._has_outside_connections = False

    def time(self) -> float:
        return self._now

    def pass_seconds(self, seconds: float) -> None:
        self._now += seconds

    def awaits_outside(self) -> bool:
        """Whether something may come that is not of this loop's making."""
        self._children = [child for child in self._children if child.get_returncode() is None]
        if self._calls_in_pools or self._children or self._has_outside_connections:
            return True
        return any(
            thread not in self._threads_before and thread not in _threads_queues
            for thread in threading.enumerate()
        )

    def run_forever(self) -> None:
        with _clock_of(self):
            super().run_forever()

    # Threads and child processes.

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:
        future = super().run_in_executor(executor, func, *args)
        self._calls_in_pools += 1
        future.add_done_callback(self._call_is_done)
        return future

    def _call_is_done(self, _: object) -> None:
        self._calls_in_pools -= 1

    async def _make_subprocess_transport(self, *args: Any, **options: Any) -> Any:
        transport = await super()._make_subprocess_transport(*args, **options)  # type: ignore[misc]
        self._children.append(transport)
        return transport

    # Connections.

    async def create_server(self, protocol_factory: Any, *args: Any, **options: Any) -> Any:
        server = await super().create_server(protocol_factory, *args, **options)
        for listening in server.sockets:
            self._servers[listening.getsockname()[1]] = (server, protocol_factory)
        return server

    async def _accept_connection2(self, *args: Any, **options: Any) -> None:
        self._has_outside_connections = True
        await super()._accept_connection2(*args, **options)  # type: ignore[misc]

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        server, protocol_factory = self._servers.get(address[1], (None, None))
        if server is None or not server.is_serving():
            self._has_outside_connections = True  # from now on: it may take its time to take the connection
            await super().sock_connect(sock, address)
            return
        assert protocol_factory is not None
        near, far = socket.socketpair()
        for end in (near, far):
            end.setblocking(False)
        self._local[sock] = near
        options = {"extra": {"peername": ("127.0.0.1", 0)}, "server": server}
        super()._make_socket_transport(far, protocol_factory(), **options)  # type: ignore[misc]

    def _make_socket_transport(self, sock: socket.socket, *args: Any, **options: Any) -> Any:
        near = self._local.pop(sock, None)
        if near is not None:
            sock.close()
        return super()._make_socket_transport(near or sock, *args, **options)  # type: ignore[misc]


@contextlib.contextmanager
def _clock_of(loop: VirtualTimeLoop) -> Iterator[None]:
    """The module `time` goes by the loop's clock in this thread."""
    thread = threading.get_ident()

    def here() -> bool:
        return threading.get_ident() == thread

    def monotonic() -> float:
        return loop.time() if here() else real_monotonic()

    def wall() -> float:
        return loop.time() + loop._to_epoch if here() else real_time()

    def sleep(seconds: float) -> None:
        loop.pass_seconds(seconds) if here() else real_sleep(seconds)

    before = time.monotonic, time.time, time.sleep
    time.monotonic, time.time, time.sleep = monotonic, wall, sleep
    try:
        yield
    finally:
        time.monotonic, time.time, time.sleep = before
