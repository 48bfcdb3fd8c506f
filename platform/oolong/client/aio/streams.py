"""Frames of a topic as they come, over a connection that may break."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx

from oolong.client import calls, models
from oolong.client.aio.connection import AsyncConnection
from oolong.client.aio.waiting import sleep
from oolong.client.errors import ServerError, StreamGap, Unreachable
from oolong.client.exchange import EventReader


async def stream(
    connection: AsyncConnection, topic: str, *, after_seq: int | None
) -> AsyncIterator[models.Frame]:
    last = after_seq
    failures = 0
    while True:
        try:
            async for frame in _events(connection, topic, last):
                failures = 0
                if frame is None:
                    return
                if frame.type == "gap":
                    raise StreamGap(topic, int(frame.data["from"]), int(frame.data["to"]))
                last = max(last or 0, frame.seq)
                yield frame
        except (httpx.HTTPError, ServerError) as error:
            failures += 1
            if failures >= connection.retries.tries:
                raise Unreachable(f"stream {topic}: {error}") from error
        await sleep(connection.retries.wait(max(1, failures), None))


async def _events(
    connection: AsyncConnection, topic: str, after_seq: int | None
) -> AsyncIterator[models.Frame | None]:
    """Frames of one connection; None when the server says that nothing more will come."""
    call = calls.streams.stream(topic, after_seq)
    async with connection.open(call, {"Accept": "text/event-stream"}) as response:
        reader = EventReader()
        async for line in response.aiter_lines():
            event = reader.feed(line)
            if event is None or event[0] == "subscribed":
                continue
            yield None if event[0] == "end" else models.Frame.model_validate_json(event[2])
