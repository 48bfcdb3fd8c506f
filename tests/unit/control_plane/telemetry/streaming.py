"""What the tests of the live stream share."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

from channels.db import database_sync_to_async
from django.db import transaction

from control_plane.core.stream import event_stream
from control_plane.core.stream.event_hub import EventHub, SubscriberQueue


def publish(topic: str, *frames: tuple[str, Mapping[str, Any]]) -> int:
    with transaction.atomic():
        return event_stream.publish_many(topic, frames)


apublish = database_sync_to_async(publish)


def points(x: int) -> tuple[str, Mapping[str, Any]]:
    return "points", {"axis": "step", "x": x, "values": {"reward/mean": x / 10}}


class Reader:
    """A mailbox that is emptied as soon as something is in it, as a good socket does."""

    def __init__(self, hub: EventHub, mailbox: SubscriberQueue) -> None:
        self.hub, self.mailbox = hub, mailbox
        self.notices: list[dict[str, Any]] = []
        self.frames: list[dict[str, Any]] = []

    async def until(self, enough: Callable[[Reader], bool]) -> None:
        async with asyncio.timeout(60):
            while not enough(self):
                for frame, text in await self.mailbox.take():
                    (self.notices if frame is None else self.frames).append(json.loads(text))

    def numbers(self) -> list[int]:
        return [frame["seq"] for frame in self.frames]
