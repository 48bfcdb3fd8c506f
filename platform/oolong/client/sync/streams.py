"""Frames of a topic as they come, over a connection that may break."""

from __future__ import annotations

from collections.abc import Iterator

import httpx

from oolong.client import calls, models
from oolong.client.errors import ServerError, StreamGap, Unreachable
from oolong.client.exchange import EventReader
from oolong.client.sync.connection import Connection
from oolong.client.sync.waiting import sleep


def stream(connection: Connection, topic: str, *, after_seq: int | None) -> Iterator[models.Frame]:
    last = after_seq
    failures = 0
    while True:
        try:
            for frame in _events(connection, topic, last):
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
        sleep(connection.retries.wait(max(1, failures), None))


def _events(connection: Connection, topic: str, after_seq: int | None) -> Iterator[models.Frame | None]:
    """Frames of one connection; None when the server says that nothing more will come."""
    call = calls.streams.stream(topic, after_seq)
    with connection.open(call, {"Accept": "text/event-stream"}) as response:
        reader = EventReader()
        for line in response.iter_lines():
            event = reader.feed(line)
            if event is None or event[0] == "subscribed":
                continue
            yield None if event[0] == "end" else models.Frame.model_validate_json(event[2])
