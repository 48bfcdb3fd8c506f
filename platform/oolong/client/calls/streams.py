"""Frames of a topic as server-sent events."""

from __future__ import annotations

from oolong.client.calls import call
from oolong.client.calls.call import Call


def stream(topic: str, after_seq: int | None) -> Call[bytes]:
    return call.get("stream", bytes, topic=topic, after_seq=after_seq)
