"""Frames of a topic as they come, over a connection that may break.

A proxy may cut or hold back answers that do not end. After two connections in a row that brought nothing, frames
are fetched in short answers instead (`poll`): the same frames, a little later.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import httpx

from oolong.client import models
from oolong.client.aio.connection import AsyncConnection
from oolong.client.async_primitives import sleep
from oolong.client.errors import ServerError, StreamGap, Unreachable
from oolong.client.request_spec import get
from oolong.client.transport import EventReader

POLL_SECONDS = 5  # shorter than the patience of any proxy
FRUITLESS = 2
NO_ANSWER_BEGAN = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


async def stream(
    connection: AsyncConnection, topic: str, *, after_seq: int | None
) -> AsyncGenerator[models.Frame, None]:
    """Ends with the run; closing it early closes its connection."""
    last = after_seq
    failures = fruitless = 0
    while True:
        polls = fruitless >= FRUITLESS
        came = False
        try:
            async with aclosing(_events(connection, topic, last, POLL_SECONDS if polls else None)) as frames:
                async for frame in frames:
                    failures = 0
                    if frame is None:
                        return
                    if frame.type == "subscribed":  # should it break now, what comes after this is asked for
                        last = frame.seq if last is None else last
                        continue
                    if frame.type == "gap":
                        raise StreamGap(topic, int(frame.data["from"]), int(frame.data["to"]))
                    came = True
                    last = max(last or 0, frame.seq)
                    yield frame
            fruitless += not came
        except (httpx.HTTPError, ServerError) as error:
            failures += 1
            began = isinstance(error, httpx.TransportError) and not isinstance(error, NO_ANSWER_BEGAN)
            fruitless += began and not came
            if failures >= connection.retries.tries:
                raise Unreachable(f"stream {topic}: {error}") from error
        if came and not polls:
            fruitless = 0
        if not polls or failures:
            await sleep(connection.retries.wait(max(1, failures), None))


async def _events(
    connection: AsyncConnection, topic: str, after_seq: int | None, poll: int | None
) -> AsyncGenerator[models.Frame | None, None]:
    """Frames of one connection; None when the server says that nothing more will come. With `poll` the answer ends
    after the first frames, or after so many seconds without one."""
    request = get("stream", bytes, topic=topic, after_seq=after_seq, poll=poll)
    reader = EventReader()
    async with aclosing(connection.lines(request, {"Accept": "text/event-stream"})) as lines:
        async for line in lines:
            event = reader.feed(line)
            if event is None:
                continue
            yield None if event[0] == "end" else models.Frame.model_validate_json(event[2])
