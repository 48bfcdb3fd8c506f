"""The bus between web processes, when its connection is lost."""

from __future__ import annotations

import asyncio

import pytest
from redis import asyncio as valkey

from control_plane.tunnel import bus as buses
from control_plane.tunnel.bus import Bus


async def test_a_reconnect_hears_again_and_leaves_no_connection_behind(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buses, "RECONNECT_SECONDS", 0.01)
    client = valkey.Redis.from_url(valkey_url)
    bus = Bus(valkey_url)
    heard: list[bytes] = []
    await bus.subscribe("test:reconnect", heard.append)
    try:
        for n in range(4):
            async with asyncio.timeout(60):
                # The server counts a killed listener for a moment longer, so one message may go to nobody.
                while heard[-1:] != [b"%d" % n]:
                    await client.publish("test:reconnect", b"%d" % n)
                    await asyncio.sleep(0.01)
            listening = bus._listener.connection_pool
            assert len(listening._in_use_connections) == 1
            await client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
    finally:
        await bus.close()
        await client.aclose()


async def test_a_key_is_renewed_and_left_by_who_holds_it_alone(valkey_url: str) -> None:
    bus = Bus(valkey_url)
    try:
        assert await bus.renew("test:renew", "older", seconds=600) == "older"
        await bus.put("test:renew", "newer", seconds=600)
        assert await bus.renew("test:renew", "older", seconds=600) == "newer"
        await bus.release("test:renew", "older")
        assert await bus.get("test:renew") == "newer"
        await bus.release("test:renew", "newer")
        assert await bus.renew("test:renew", "older", seconds=600) == "older"
        await bus.release("test:renew", "older")
    finally:
        await bus.close()
