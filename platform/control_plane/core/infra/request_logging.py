"""Around every request: its span, its place in the histograms, and what its log lines are about."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponse

from control_plane.core.infra import metrics
from oolong.logs import about
from oolong.tracing import span

log = logging.getLogger(__name__)
SLOW_SECONDS = 5.0
CLIENT_CLOSED_REQUEST = 499  # nginx's code for a client that left before the response; no server error
_SUBJECTS = re.compile(r"/(run|att|job|node)_[0-9a-z]{26}(?=/|$)")
_SUBJECT_NAMES = {"run": "run", "att": "attempt", "job": "job", "node": "node"}
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
# These come every few seconds from every node and probe, or hold their answer back on purpose.
_QUIET = frozenset({"agent", "health", "healthz", "readyz", "metrics", "pages"})


class _Seen:
    """What is known of a request once it is answered."""

    response: HttpResponse | None = None
    client_left: bool = False

    @property
    def status(self) -> int:
        if self.response is not None:
            return self.response.status_code
        return CLIENT_CLOSED_REQUEST if self.client_left else 500


@contextmanager
def _observing(request: HttpRequest) -> Iterator[_Seen]:
    seen, began = _Seen(), time.perf_counter()
    named = {_SUBJECT_NAMES[found[1]]: found[0][1:] for found in _SUBJECTS.finditer(request.path)}
    carrier = {"traceparent": request.headers["traceparent"]} if "traceparent" in request.headers else None
    with (
        about(request_id=getattr(request, "request_id", ""), **named),
        span(request.method or "", kind="server", carrier=carrier) as current,
    ):
        try:
            yield seen
        except asyncio.CancelledError:
            seen.client_left = True
            raise
        finally:
            seconds, status = time.perf_counter() - began, seen.status
            method = request.method if request.method in _METHODS else "other"
            where = route_group(request)
            metrics.REQUESTS.labels(where, method, f"{status // 100}xx").observe(seconds)
            _describe(current, request, status, named)
            level = _level(where, status, seconds)
            if log.isEnabledFor(level):
                log.log(
                    level, "%s %s %s", method, shown(request), status,
                    extra={"status": status, "milliseconds": round(seconds * 1000, 1), "area": where},
                )  # fmt: skip


def route_group(request: HttpRequest) -> str:
    """The first word of the route below /api/v1: as many values as the API has nouns."""
    match = request.resolver_match
    route = match.route if match is not None else ""
    if route.startswith("api/v1/"):
        return re.split(r"[/<.]", route.removeprefix("api/v1/"), maxsplit=1)[0] or "api"
    if route in ("healthz", "readyz", "metrics"):
        return route
    return "pages" if route else "unmatched"


def shown(request: HttpRequest) -> str:
    """The route and not the address: an address may be a credential, as that of a login link is."""
    match = request.resolver_match
    return f"/{match.route}" if match is not None else "(no route)"


def _describe(current: Any, request: HttpRequest, status: int, named: dict[str, str]) -> None:
    if current is None:
        return
    current.update_name(f"{request.method} {shown(request)}")
    current.set_attribute("http.route", shown(request))
    current.set_attribute("http.request.method", request.method or "")
    current.set_attribute("http.response.status_code", status)
    current.set_attribute("oolong.request_id", getattr(request, "request_id", ""))
    for name, identity in named.items():
        current.set_attribute(f"oolong.{name}", identity)


def _level(where: str, status: int, seconds: float) -> int:
    if status >= 500:
        return logging.ERROR
    if where in _QUIET:
        return logging.DEBUG
    return logging.WARNING if seconds > SLOW_SECONDS else logging.INFO


def log_requests(get_response: Callable[[HttpRequest], HttpResponse | Awaitable[HttpResponse]]):  # type: ignore[no-untyped-def]
    if iscoroutinefunction(get_response):

        async def middleware(request: HttpRequest) -> HttpResponse:
            with _observing(request) as seen:
                seen.response = await get_response(request)  # type: ignore[misc]
            return seen.response  # type: ignore[return-value]

        markcoroutinefunction(middleware)
        return middleware

    def sync_middleware(request: HttpRequest) -> HttpResponse:
        with _observing(request) as seen:
            seen.response = get_response(request)  # type: ignore[assignment]
        return seen.response  # type: ignore[return-value]

    return sync_middleware


log_requests.async_capable = True  # type: ignore[attr-defined]
log_requests.sync_capable = True  # type: ignore[attr-defined]
