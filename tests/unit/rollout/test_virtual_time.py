"""The clock of these tests: a sleep takes no time, what comes from outside is waited for, a stall leaves no trace."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable

import aiohttp
import pytest
from aiohttp import web

from tests.support.virtual_time import SLICE_SECONDS, VirtualTimeLoop, real_monotonic, real_sleep

HOUR = 3600.0
LIMIT = 5.0  # by the loop's clock: jumped over at once if nothing is waited for
STALL = 0.3  # of the machine, in real seconds


def in_a_pool() -> Awaitable[object]:
    return asyncio.to_thread(real_sleep, STALL)


async def in_a_thread() -> None:
    done, loop = asyncio.Event(), asyncio.get_running_loop()

    def body() -> None:
        real_sleep(STALL)
        loop.call_soon_threadsafe(done.set)

    threading.Thread(target=body).start()
    await done.wait()


async def in_a_child_process() -> None:
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", f"import time; time.sleep({STALL})")
    assert await child.wait() == 0


async def test_sleeps_take_no_time_and_end_in_their_order() -> None:
    began, order = time.monotonic(), []

    async def sleep(seconds: float) -> None:
        await asyncio.sleep(seconds)
        order.append((seconds, time.monotonic() - began))

    await asyncio.gather(*(sleep(hours * HOUR) for hours in (3, 1, 2)))
    assert order == [(hours * HOUR, pytest.approx(hours * HOUR, abs=0.01)) for hours in (1, 2, 3)]


async def test_the_clocks_of_the_module_are_the_loops_and_only_in_its_thread() -> None:
    wall, there = time.time(), await asyncio.to_thread(time.monotonic)
    time.sleep(HOUR)
    assert time.monotonic() == asyncio.get_running_loop().time()
    assert time.time() - wall >= HOUR
    assert await asyncio.to_thread(time.monotonic) - there < HOUR


def test_outside_the_loop_the_clock_is_the_machines() -> None:
    VirtualTimeLoop().close()
    assert time.monotonic is real_monotonic


@pytest.mark.parametrize("work", [in_a_pool, in_a_thread, in_a_child_process])
async def test_what_comes_from_outside_is_waited_for_in_real_time(
    work: Callable[[], Awaitable[object]],
) -> None:
    began = real_monotonic()
    async with asyncio.timeout(LIMIT):
        await work()
    assert real_monotonic() - began >= STALL


async def test_the_last_word_of_a_thread_that_ends_between_two_looks_is_received_before_the_clock_jumps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done, go_on, loop = asyncio.Event(), threading.Event(), asyncio.get_running_loop()

    def body() -> None:
        go_on.wait(60)
        loop.call_soon_threadsafe(done.set)

    thread = threading.Thread(target=body)
    thread.start()
    awaits_outside = VirtualTimeLoop.awaits_outside

    def after_the_end(loop: VirtualTimeLoop) -> bool:
        go_on.set()
        thread.join(60)
        return awaits_outside(loop)

    monkeypatch.setattr(VirtualTimeLoop, "awaits_outside", after_the_end)
    async with asyncio.timeout(LIMIT):
        await done.wait()


async def test_a_peer_of_another_process_may_take_its_time_to_take_a_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited_for: list[bool] = []

    async def connect(loop: VirtualTimeLoop, *_: object) -> None:
        waited_for.append(loop.awaits_outside())
        raise ConnectionRefusedError

    monkeypatch.setattr(asyncio.SelectorEventLoop, "sock_connect", connect)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.get_running_loop().create_connection(asyncio.Protocol, "127.0.0.1", 9)
    assert waited_for == [True]


async def test_a_stall_of_the_machine_counts_as_one_look() -> None:
    release = threading.Event()
    waiting = asyncio.create_task(asyncio.to_thread(release.wait))
    await asyncio.sleep(0.001)
    began = time.monotonic()
    asyncio.get_running_loop().call_soon(real_sleep, STALL)
    await asyncio.sleep(SLICE_SECONDS)
    assert time.monotonic() - began < STALL
    release.set()
    await waiting


async def test_who_always_has_something_to_do_lets_timers_come() -> None:
    async def never_idle() -> None:
        while True:
            await asyncio.sleep(0)

    busy = asyncio.create_task(never_idle())
    await asyncio.sleep(0.01)
    busy.cancel()


async def test_a_server_and_its_client_in_one_loop_need_no_network_and_no_time() -> None:
    async def answer(_: web.Request) -> web.Response:
        await asyncio.sleep(HOUR)
        return web.Response(body=b"x" * 4_000_000)  # more than a socket holds at once

    application = web.Application()
    application.router.add_get("/", answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    address = f"http://127.0.0.1:{runner.addresses[0][1]}/"
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2 * HOUR)) as client:
        began = time.monotonic()
        async with client.get(address) as response:
            assert len(await response.read()) == 4_000_000
        assert time.monotonic() - began == pytest.approx(HOUR, abs=1.0)
        with pytest.raises(TimeoutError):
            await client.get(address, timeout=aiohttp.ClientTimeout(total=HOUR / 2))
        await runner.cleanup()
        with pytest.raises(aiohttp.ClientConnectionError):
            await client.get(address)


async def test_a_peer_in_another_thread_is_waited_for() -> None:
    """As one in another process: its connection comes through the network."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(LIMIT):
            writer.write(await reader.readexactly(5))
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    def ask() -> bytes:
        with socket.create_connection(("127.0.0.1", port)) as peer:
            real_sleep(STALL)
            peer.sendall(b"hello")
            return peer.recv(5)

    assert await asyncio.to_thread(ask) == b"hello"
    server.close()
