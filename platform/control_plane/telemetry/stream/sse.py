"""The live stream as server-sent events: GET /api/v1/stream?topic=…&after_seq=, for curl and CI.

An EventSource, which can send no header, gets in with `ticket=` (POST /api/v1/stream-tickets; good once).

Replays from `after_seq` (or the Last-Event-ID of a reconnecting client), then continues live; a comment every
15 s keeps the connection. A run's stream ends with `event: end` and the run's status, once the run has ended
and everything of the topic was sent. With `poll=5` the answer ends after the first frames, or after 5 s without one:
for who sits behind a proxy that cuts or holds back answers without an end.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator

import msgspec
from django.conf import settings
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse

from control_plane.accounts.identity.caller import Caller
from control_plane.core.api.errors import LOG_IN, problem_response
from control_plane.core.api.numbers import parse_int
from control_plane.core.infra import clock
from control_plane.core.stream import event_stream
from control_plane.core.stream.event_hub import SubscriberQueue, hub
from control_plane.core.stream.open_streams import OpenStream, TooManyStreams, stream_limits
from control_plane.runs.models import Run
from control_plane.telemetry.stream.access_watch import access_watch
from control_plane.telemetry.stream.credentials import Credential, in_database, redeem, seconds_until_expiry
from control_plane.telemetry.stream.topics import readable_topic, run_of_topic
from oolong.contracts.lifecycle import ENDED, RunStatus

KEEP_ALIVE_SECONDS = 15.0
MAX_POLL_SECONDS = 60  # seconds
RECHECK_SECONDS = 60.0
RETRY_SECONDS = 10  # for who has too many streams open


async def stream(request: HttpRequest) -> HttpResponse | StreamingHttpResponse:
    if request.method != "GET":
        return problem_response(
            request, 405, "method_not_allowed", f"{request.method} is not allowed; use GET"
        )
    ticket = request.GET.get("ticket", "")
    credential = await in_database(redeem)(ticket) if ticket else _credential(request)
    topic = request.GET.get("topic", "")
    caller = await in_database(credential.caller)() if credential else None
    if credential is None or caller is None:
        return problem_response(request, 401, "not_authenticated", LOG_IN)
    published = await in_database(readable_topic)(caller, topic)
    if published is None:
        return problem_response(
            request, 404, "not_found", f"there is no topic {topic!r}: run:<id>, run:<id>:logs, runs, pool"
        )
    after_text = request.headers.get("Last-Event-ID") or request.GET.get("after_seq", "")
    after_seq = parse_int(after_text)
    if after_text and after_seq is None:
        return problem_response(
            request, 422, "invalid", f"after_seq={after_text[:40]!r}: a whole number from 0 on"
        )
    poll_text = request.GET.get("poll", "")
    poll = parse_int(poll_text)
    if poll_text and not (poll and poll <= MAX_POLL_SECONDS):
        message = f"poll={poll_text[:40]!r}: a whole number of seconds from 1 to {MAX_POLL_SECONDS}"
        return problem_response(request, 422, "invalid", message)
    address = request.META.get("REMOTE_ADDR", "")
    try:
        _admit(
            address, caller
        ).close()  # counted once the answer begins: one that never does has no end either
    except TooManyStreams as refusal:
        return problem_response(
            request, 429, "too_many_streams", str(refusal), headers={"Retry-After": str(RETRY_SECONDS)}
        )
    return StreamingHttpResponse(
        _events(credential, caller, topic, published, after_seq, poll, address),
        content_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


def _admit(address: str, caller: Caller) -> OpenStream:
    stream = stream_limits().open(address)
    try:
        stream.identify(caller.user.pk)
    except TooManyStreams:
        stream.close()
        raise
    return stream


def _credential(request: HttpRequest) -> Credential | None:
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return Credential(token=token.strip())
    session = request.COOKIES.get(settings.SESSION_COOKIE_NAME, "")
    return Credential(session=session, project=request.GET.get("project", "")) if session else None


async def _events(
    credential: Credential,
    caller: Caller,
    topic: str,
    published: str,
    after_seq: int | None,
    poll: float | None,
    address: str,
) -> AsyncIterator[str]:
    try:
        counted = _admit(address, caller)
    except TooManyStreams as refusal:  # others began in between
        yield f"event: error\ndata: {msgspec.json.encode(str(refusal)).decode()}\n\n"
        return
    mailbox = SubscriberQueue()
    run_id = run_of_topic(topic)
    checked = time.monotonic()
    ends_at = math.inf if poll is None else checked + poll
    lasts_until = checked + seconds_until_expiry(caller, clock.now())
    told = True  # that the caller may have lost power: as here, between the look-up and the following

    def wake() -> None:
        nonlocal told
        told = True
        mailbox.filled.set()

    stop_watching = access_watch().follow(caller.user.pk, wake)
    final: int | None = None  # the last number there will be, once the run has ended
    status = ""
    first = True
    try:
        current = await hub().subscribe(mailbox, published, after_seq)
        sent = current if after_seq is None else min(after_seq, current)
        while True:
            may_have_ended = first
            first = False
            try:
                patience = (
                    lasts_until if sent < current else min(lasts_until, ends_at)
                )  # what is stored will come
                quiet = min(KEEP_ALIVE_SECONDS, max(0.0, patience - time.monotonic()))
                async with asyncio.timeout(quiet):
                    taken = await mailbox.take()
            except TimeoutError:
                yield ": keep-alive\n\n"
                may_have_ended = True
                taken = []
            for frame, text in taken:
                if frame is None:
                    yield f"event: subscribed\ndata: {text}\n\n"
                    continue
                yield f"id: {frame.seq}\nevent: {frame.type}\ndata: {text}\n\n"
                sent = frame.seq
                may_have_ended = may_have_ended or frame.type == "status"
            if run_id is not None and final is None and may_have_ended:
                status = await in_database(_status)(run_id)
                if status in ENDED:
                    final = await in_database(event_stream.current_seq)(published)
            if final is not None and sent >= final:
                yield f"event: end\ndata: {msgspec.json.encode({'topic': topic, 'status': status}).decode()}\n\n"
                return
            now = time.monotonic()
            came = any(frame is not None for frame, _ in taken)
            if poll is not None and (came or (now >= ends_at and sent >= current)):
                return
            if told or now >= lasts_until or now - checked >= RECHECK_SECONDS:
                checked, told = now, False
                again = await in_database(credential.caller)()
                if again is None or await in_database(readable_topic)(again, topic) is None:
                    return
                lasts_until = now + seconds_until_expiry(again, clock.now())
    finally:
        counted.close()
        stop_watching()
        hub().leave(mailbox)


def _status(run_id: str) -> str:
    return Run.objects.values_list("status", flat=True).filter(pk=run_id).first() or RunStatus.FAILED
