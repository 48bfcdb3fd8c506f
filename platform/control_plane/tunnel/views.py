"""Users' end of the tunnel: /api/v1/runs/{run_id}/<endpoint>/<path>, with a project token or a browser's session."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable

import msgspec
from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse, StreamingHttpResponse
from django.views.decorators.csrf import csrf_exempt
from rest_framework.authentication import CSRFCheck

from control_plane.accounts import selectors as accounts
from control_plane.accounts.identity import services
from control_plane.accounts.identity.caller import Caller
from control_plane.core.api.errors import CONTENT_TYPE, LOG_IN, Problem, problem_document
from control_plane.core.infra import clock
from control_plane.core.security.request_gateway import PROJECT_HEADER
from control_plane.runs import selectors
from control_plane.runs.models import Attempt
from control_plane.telemetry.stream.access_watch import access_watch
from control_plane.telemetry.stream.credentials import Credential, in_database
from control_plane.tunnel.tunnel_router import NodeUnavailable, TooManyStreams, tunnel_router
from oolong.contracts.lifecycle import AttemptStatus
from oolong.contracts.relay.endpoints import ENDPOINTS, Endpoint, allowed, plain_path, ports_of
from oolong.contracts.relay.frames import CancelCode, Open
from oolong.contracts.relay.pipe import Cancelled, Pipe

log = logging.getLogger(__name__)

RETRY_SECONDS = 3


@csrf_exempt  # a bearer token needs no CSRF token; `_require_csrf` checks that of a session
async def relay(request: HttpRequest, run_id: str, endpoint: str, path: str = "") -> HttpResponseBase:
    try:
        return await _relay(request, run_id, endpoint, path)
    except Problem as problem:
        return _problem(request, problem)


async def _relay(request: HttpRequest, run_id: str, name: str, path: str) -> HttpResponseBase:
    endpoint = ENDPOINTS[name]
    caller = await in_database(_caller)(request, endpoint)
    if caller.token is None:
        await in_database(_require_csrf)(request)
    if endpoint.scope not in caller.scopes:
        yours = ", ".join(sorted(caller.scopes)) or "none"
        raise Problem(403, "missing_scope", f"this needs the scope {endpoint.scope}; yours: {yours}")
    if request.method not in endpoint.methods:
        use = ", ".join(sorted(endpoint.methods))
        raise Problem(405, "method_not_allowed", f"{request.method} is not allowed; use {use}")
    attempt = await in_database(_attempt)(caller, run_id, name, endpoint)
    if not plain_path(path) or request.META.get("QUERY_STRING"):
        raise Problem(404, "not_found", f"{name} has nothing at {path!r}: plain paths without a query only")
    try:
        tunnel_router().require_stream_share(caller.project.pk)
    except TooManyStreams as error:
        raise Problem(503, "tunnel_busy", str(error), headers=_retry_after(), retryable=True) from error
    content = _read_body(request, endpoint)  # not before there is a place for it
    opening = Open(
        secrets.token_hex(16),
        attempt.pk,
        name,
        request.method or "GET",
        path,
        allowed(request.headers.items(), endpoint.request_headers),
    )
    try:
        pipe = await tunnel_router().open(
            attempt.node_id, opening, max_response_bytes=endpoint.response_bytes, owner=caller.project.pk
        )
    except NodeUnavailable as error:
        message = f"{error}; the run continues, try again"
        raise Problem(503, "node_unavailable", message, headers=_retry_after(), retryable=True) from error
    leave = _cancel_on_lost_access(pipe, request, caller, endpoint)
    try:
        return await _stream_response(pipe, content, endpoint, leave)
    except BaseException:
        leave()
        raise


def _cancel_on_lost_access(
    pipe: Pipe, request: HttpRequest, caller: Caller, endpoint: Endpoint
) -> Callable[[], None]:
    """Cancel the stream when the caller loses access; return a function that stops the watch."""
    checks: set[asyncio.Task[None]] = set()

    async def check() -> None:
        try:
            again = await in_database(_caller)(request, endpoint)
        except Problem:
            again = None
        if again is None or endpoint.scope not in again.scopes:
            pipe.cancel("gone", "your access to this run has ended")

    def wake() -> None:
        task = asyncio.create_task(check())
        checks.add(task)
        task.add_done_callback(checks.discard)

    return access_watch().follow(caller.user.pk, wake)


async def _stream_response(
    pipe: Pipe, content: bytes, endpoint: Endpoint, leave: Callable[[], None]
) -> HttpResponseBase:
    sending = asyncio.create_task(_send(pipe, content))
    try:
        async with asyncio.timeout(endpoint.head_seconds):
            head = await pipe.read_head()
    except TimeoutError:
        pipe.cancel("timeout", f"no answer for {endpoint.head_seconds:g} s")
        raise _tunnel_problem(Cancelled("timeout", f"no answer for {endpoint.head_seconds:g} s")) from None
    except Cancelled as error:
        raise _tunnel_problem(error) from error
    except asyncio.CancelledError:
        pipe.cancel("gone")  # the caller hung up
        raise
    finally:
        if pipe.stream not in tunnel_router().callers:
            sending.cancel()
    headers = dict(allowed(head.headers, endpoint.response_headers))
    content_type = headers.pop("content-type", "application/octet-stream")
    return StreamingHttpResponse(
        TunnelResponseBody(
            pipe, sending, endpoint, leave, is_event_stream=content_type.startswith("text/event-stream")
        ),
        status=head.status,
        content_type=content_type,
        headers={**headers, "Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


class TunnelResponseBody:
    """The body of a response as it arrives. Django closes it when the caller is gone, and with it the stream."""

    def __init__(
        self,
        pipe: Pipe,
        sending: asyncio.Task[None],
        endpoint: Endpoint,
        leave: Callable[[], None],
        *,
        is_event_stream: bool,
    ) -> None:
        self._pipe = pipe
        self._sending = sending
        self._endpoint = endpoint
        self._leave = leave
        self._is_event_stream = is_event_stream
        self._loop = asyncio.get_running_loop()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        idle = self._endpoint.idle_seconds
        try:
            while True:
                try:
                    async with asyncio.timeout(idle):
                        part = await self._pipe.read()
                except TimeoutError:
                    self._pipe.cancel("timeout", f"no part of the answer for {idle:g} s")
                    continue  # and read what was just said
                if part is None:
                    return
                yield part
        except Cancelled as error:
            # The head is out, so the status cannot change: say it where the reader looks, or break off.
            if not self._is_event_stream:
                raise
            yield _error_event(error)
        finally:
            self._end()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        self._pipe.cancel("gone")
        self._sending.cancel()
        self._leave()


async def _send(pipe: Pipe, content: bytes) -> None:
    try:
        await pipe.write(content)
        pipe.write_end()
    except Cancelled as error:
        log.debug("relay: %s was not sent to its end: %s", pipe.stream, error)


# --- who and where, in the database -------------------------------------------------------------------------


def _caller(request: HttpRequest, endpoint: Endpoint) -> Caller:
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    session = request.COOKIES.get(settings.SESSION_COOKIE_NAME, "")
    now = clock.now()
    caller = None
    if kind.lower() == "bearer":
        caller = accounts.caller_of_token(token.strip(), now=now)
    elif endpoint.browser and session and not kind:
        caller = Credential(session=session, project=request.headers.get(PROJECT_HEADER, "")).caller()
    if caller is None:
        raise Problem(401, "not_authenticated", LOG_IN)
    if caller.token is not None:
        services.touch_last_used(caller.token, now=now)
    return caller


def _require_csrf(request: HttpRequest) -> None:
    """Require the CSRF token in its header, for reads too: a link must not open what a job sends as a page."""

    def view(_: HttpRequest) -> HttpResponse:
        return HttpResponse()

    check = CSRFCheck(view)
    check.process_request(request)
    has_header = settings.CSRF_HEADER_NAME in request.META
    reason = check.process_view(request, view, (), {}) if has_header else "the header X-CSRFToken is missing"
    if reason:
        raise Problem(403, "csrf", f"the CSRF check of the session failed: {reason}")


def _attempt(caller: Caller, run_id: str, name: str, endpoint: Endpoint) -> Attempt:
    """The attempt whose jobs serve the endpoint. A foreign run is one that does not exist."""
    run = selectors.run_for(caller, run_id)
    if run.has_ended:
        raise Problem(
            409, "has_ended", f"run {run.name!r} has ended ({run.status}); it serves no {name} any more"
        )
    attempt = selectors.live_attempt(run)
    if attempt is None or attempt.status != AttemptStatus.RUNNING:
        message = f"run {run.name!r} is {run.status}: {name} are served while it runs"
        raise Problem(503, "run_not_running", message, headers=_retry_after(), retryable=True)
    if not ports_of(endpoint, attempt.ports):
        how = {
            "sessions": "a run does with workflow.name: agent_session",
            "playground": "POST /api/v1/playgrounds makes one that does",
        }
        message = f"run {run.name!r} serves no {name}; {how[name]}"
        raise Problem(409, "not_served", message)
    return attempt


def _read_body(request: HttpRequest, endpoint: Endpoint) -> bytes:
    """The request's body. Django has put it on disk, so a large one has cost no memory so far."""
    most = endpoint.request_bytes
    content = request.read(most + 1)
    if len(content) > most:
        raise Problem(413, "too_large", f"the body has more than {most} bytes")
    return content


# --- what went wrong on the way -----------------------------------------------------------------------------

_STATUS: dict[CancelCode, int] = {
    "gone": 502,
    "busy": 503,
    "unavailable": 503,
    "too_large": 413,
    "timeout": 504,
    "lost": 502,
    "protocol": 502,
}


def _tunnel_problem(error: Cancelled) -> Problem:
    status = _STATUS[error.code]
    headers = _retry_after() if status == 503 else {}
    return Problem(status, f"tunnel_{error.code}", str(error), headers=headers, retryable=status != 413)


def _error_event(error: Cancelled) -> bytes:
    """In the form in which OpenAI clients expect an error in the middle of a stream."""
    document = {"error": {"message": str(error), "type": "tunnel_error", "code": f"tunnel_{error.code}"}}
    return b"data: " + msgspec.json.encode(document) + b"\n\n"


def _retry_after() -> dict[str, str]:
    return {"Retry-After": str(RETRY_SECONDS)}


def _problem(request: HttpRequest, problem: Problem) -> JsonResponse:
    document = problem_document(
        problem.status, problem.code, problem.detail, getattr(request, "request_id", ""), problem.errors,
        **problem.extra,
    )  # fmt: skip
    return JsonResponse(document, status=problem.status, content_type=CONTENT_TYPE, headers=problem.headers)
