"""`?wait=30`: an answer that comes when the status moves, or when the time is over.

A request that waits holds no database connection, so that many can wait without starving the others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import wraps
from typing import Any

from asgiref.sync import sync_to_async
from channels.db import database_sync_to_async
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter

from control_plane.core.api.errors import FieldError, problem_response
from control_plane.core.api.numbers import parse_int
from control_plane.core.stream.event_hub import SubscriberQueue, hub

LONGEST_SECONDS = 60
LOOK_ANYWAY_SECONDS = 5.0
ASK_SECONDS = 0.5

View = Callable[..., Any]
Waiter = Callable[
    [float], Awaitable[None]
]  # seconds: returns when it is worth looking again, or when they are over
WaiterFactory = Callable[[str], AbstractAsyncContextManager[Waiter]]  # of the object with this id

WAIT_PARAMETERS = [
    OpenApiParameter(
        "wait", {"type": "integer", "minimum": 0, "maximum": LONGEST_SECONDS},
        description=f"seconds, up to {LONGEST_SECONDS}: answer when the status moves, or when they are over",
    ),
    OpenApiParameter(
        "seen", OpenApiTypes.STR,
        description="with wait: the status that you know; when it is another, the answer comes at once",
    ),
]  # fmt: skip


def long_poll(
    view: View, *, id: str, shown: str, status: Callable[[str], str | None], bell: WaiterFactory
) -> View:
    """The view with `?wait=`. `id` is the name in its path, `shown` the field of its answer that is waited on.

    `status` reads that field, cheaply. Who may see the object is the view's to say: it answers first, and only
    its 200 is waited on.
    """

    @wraps(view)
    async def waiting(request: HttpRequest, **names: Any) -> HttpResponseBase:
        text = request.GET.get("wait", "")
        if request.method != "GET" or not text:
            return await sync_to_async(view)(request, **names)  # type: ignore[no-any-return]
        seconds = parse_int(text)
        if seconds is None or seconds > LONGEST_SECONDS:
            return await _invalid_wait(view, request, text, names)
        # In any thread, and each call gives its connection back.
        answer = database_sync_to_async(view, thread_sensitive=False)
        look = database_sync_to_async(status, thread_sensitive=False)
        deadline = time.monotonic() + seconds
        first = await answer(request, **names)
        if first.status_code != 200:
            return first  # type: ignore[no-any-return]
        known = request.GET.get("seen") or first.data[shown]
        async with bell(names[id]) as ring:
            while await look(names[id]) == known and (left := deadline - time.monotonic()) > 0:
                await ring(left)
        return await answer(request, **names)  # type: ignore[no-any-return]

    return waiting


async def _invalid_wait(
    view: View, request: HttpRequest, text: str, names: dict[str, Any]
) -> HttpResponseBase:
    """422 for those who may see the object, and the view's own refusal for the others."""
    answer: HttpResponseBase = await sync_to_async(view)(request, **names)
    if answer.status_code != 200:
        return answer
    message = f"wait={text[:40]!r}: whole seconds, from 0 to {LONGEST_SECONDS}"
    return problem_response(request, 422, "invalid", message, [FieldError("/wait", "invalid", message)])


def by_stream(topic: Callable[[str], str]) -> WaiterFactory:
    """Rings when the object's live topic tells of a status, and now and then."""

    @asynccontextmanager
    async def bell(identity: str) -> AsyncIterator[Waiter]:
        mailbox = SubscriberQueue()

        async def ring(seconds: float) -> None:
            try:
                async with asyncio.timeout(min(seconds, LOOK_ANYWAY_SECONDS)):
                    while not any(frame and frame.type == "status" for frame, _ in await mailbox.take()):
                        pass
            except TimeoutError:
                return

        try:
            await hub().subscribe(mailbox, topic(identity))
            yield ring
        finally:
            hub().leave(mailbox)

    return bell


@asynccontextmanager
async def by_asking(identity: str) -> AsyncIterator[Waiter]:
    """For what has no topic, and moves within seconds."""

    async def ring(seconds: float) -> None:
        await asyncio.sleep(min(seconds, ASK_SECONDS))

    yield ring
