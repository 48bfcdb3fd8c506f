"""Frames of a topic as server-sent events."""

from __future__ import annotations

from oolong.client.endpoints import request_spec
from oolong.client.endpoints.request_spec import RequestSpec
from oolong.client.models import StreamTicket


def stream(topic: str, after_seq: int | None, poll: int | None = None) -> RequestSpec[bytes]:
    """With `poll` the answer ends by itself: after the first frames, or after so many seconds without one."""
    return request_spec.get("stream", bytes, topic=topic, after_seq=after_seq, poll=poll)


def ticket() -> RequestSpec[StreamTicket]:
    return request_spec.post("stream-tickets", StreamTicket)
