"""Frames of a topic as server-sent events."""

from __future__ import annotations

from oolong.client.endpoints import call
from oolong.client.endpoints.call import Call
from oolong.client.models import StreamTicket


def stream(topic: str, after_seq: int | None, poll: int | None = None) -> Call[bytes]:
    """With `poll` the answer ends by itself: after the first frames, or after so many seconds without one."""
    return call.get("stream", bytes, topic=topic, after_seq=after_seq, poll=poll)


def ticket() -> Call[StreamTicket]:
    return call.post("stream-tickets", StreamTicket)
