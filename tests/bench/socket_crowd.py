"""Many readers of the live stream in one process, each as cheap as a reader can be: what is measured is the server.

Reads a JSON object from standard input, prints `ready` once every reader is subscribed, and at the end one JSON
object. A frame's delay is the moment its bytes arrived less the `at` of its data.
"""

from __future__ import annotations

import asyncio
import json
import re
import statistics
import sys
import time
from dataclasses import dataclass, field

import msgspec

_AT = re.compile(rb'"type":"points".*?"at":([0-9.e+]+)')
_GAP = b'"type":"gap"'


class Plan(msgspec.Struct):
    port: int
    token: str
    topics: list[str]
    sockets_per_topic: int
    frames_per_topic: int
    slow_sockets: int = 0  # subscribe to the first topic and then never read again
    limit_seconds: float = 120.0


@dataclass
class Crowd:
    plan: Plan
    delays: list[float] = field(default_factory=list)
    gaps: int = 0
    subscribed: int = 0
    done: asyncio.Event = field(default_factory=asyncio.Event)
    ready: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def sockets(self) -> int:
        return len(self.plan.topics) * self.plan.sockets_per_topic

    @property
    def expected(self) -> int:
        return self.sockets * self.plan.frames_per_topic

    def heard(self, payload: bytes, now: float) -> None:
        if found := _AT.search(payload):
            self.delays.append(now - float(found[1]))
            if len(self.delays) == self.expected:
                self.done.set()
        elif b'"type":"subscribed"' in payload:
            self.subscribed += 1
            if self.subscribed == self.sockets + self.plan.slow_sockets:
                self.ready.set()
        elif _GAP in payload:
            self.gaps += 1


class Reader(asyncio.Protocol):
    """One WebSocket, with just enough of RFC 6455 to be told frames."""

    def __init__(self, crowd: Crowd, topic: str, *, slow: bool = False) -> None:
        self.crowd, self.topic, self.slow = crowd, topic, slow
        self.buffer = bytearray()
        self.is_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(
            b"GET /ws/v1 HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
            % self.crowd.plan.port
        )

    def data_received(self, data: bytes) -> None:
        now = time.time()
        self.buffer += data
        if not self.is_open:
            head, found, rest = self.buffer.partition(b"\r\n\r\n")
            if not found:
                return
            if b" 101 " not in head.split(b"\r\n", 1)[0]:
                raise ConnectionError(head.decode(errors="replace"))
            self.is_open, self.buffer = True, bytearray(rest)
            self.send({"op": "auth", "token": self.crowd.plan.token})
            self.send({"op": "subscribe", "topic": self.topic})
        while (payload := self._next()) is not None:
            self.crowd.heard(payload, now)
            if self.slow and b'"type":"subscribed"' in payload:
                self.transport.pause_reading()

    def _next(self) -> bytes | None:
        if len(self.buffer) < 2 or (self.buffer[1] & 0x7F >= 126 and len(self.buffer) < 10):
            return None
        length, begin = self.buffer[1] & 0x7F, 2
        if length == 126:
            length, begin = int.from_bytes(self.buffer[2:4], "big"), 4
        elif length == 127:
            length, begin = int.from_bytes(self.buffer[2:10], "big"), 10
        if len(self.buffer) < begin + length:
            return None
        payload = bytes(self.buffer[begin : begin + length])
        if self.buffer[0] & 0x0F == 0x9:  # who does not answer a ping is taken for dead
            self.transport.write(b"\x8a" + bytes([0x80 | length]) + bytes(4) + payload)
        del self.buffer[: begin + length]
        return payload

    def send(self, message: dict[str, str]) -> None:
        data = json.dumps(message).encode()
        head = (
            bytes([0x81, 0x80 | len(data)]) if len(data) < 126 else b"\x81\xfe" + len(data).to_bytes(2, "big")
        )
        self.transport.write(head + bytes(4) + data)  # a mask of zeros changes nothing


async def read(plan: Plan) -> dict[str, float | int]:
    crowd = Crowd(plan)
    loop = asyncio.get_running_loop()
    wanted = [(topic, False) for topic in plan.topics for _ in range(plan.sockets_per_topic)]
    wanted += [(plan.topics[0], True)] * plan.slow_sockets
    readers = []
    for number, (topic, slow) in enumerate(wanted):
        reader = Reader(crowd, topic, slow=slow)
        await loop.create_connection(lambda reader=reader: reader, "127.0.0.1", plan.port)  # type: ignore[misc]
        readers.append(reader)
        if number % 50 == 49:
            await asyncio.sleep(0.05)
    await asyncio.wait_for(crowd.ready.wait(), 120)
    print("ready", flush=True)
    await asyncio.wait_for(crowd.done.wait(), plan.limit_seconds)
    delays = crowd.delays
    cuts = statistics.quantiles(delays, n=100)
    return {
        "sockets": crowd.sockets, "slow_sockets": plan.slow_sockets, "frames": len(delays), "gaps": crowd.gaps,
        "median_ms": cuts[49] * 1000, "p95_ms": cuts[94] * 1000, "p99_ms": cuts[98] * 1000,
        "largest_ms": max(delays) * 1000,
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(asyncio.run(read(msgspec.json.decode(sys.stdin.readline(), type=Plan)))), flush=True)
