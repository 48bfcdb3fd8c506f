from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponse

from control_plane.core.api.errors import problem_response
from control_plane.core.infra.ids import new_id

_ACCEPTABLE = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def request_id(get_response: Callable[[HttpRequest], HttpResponse | Awaitable[HttpResponse]]):  # type: ignore[no-untyped-def]
    """Give every request an id, echo it in X-Request-Id, and take the caller's own where it is well-formed."""

    def name(request: HttpRequest) -> str:
        given = request.headers.get("X-Request-Id", "")
        request.request_id = given if _ACCEPTABLE.fullmatch(given) else new_id("req")  # type: ignore[attr-defined]
        return request.request_id  # type: ignore[attr-defined,no-any-return]

    if iscoroutinefunction(get_response):

        async def middleware(request: HttpRequest) -> HttpResponse:
            identity = name(request)
            response = await get_response(request)  # type: ignore[misc]
            response["X-Request-Id"] = identity
            return response

        markcoroutinefunction(middleware)
        return middleware

    def sync_middleware(request: HttpRequest) -> HttpResponse:
        identity = name(request)
        response = get_response(request)
        response["X-Request-Id"] = identity  # type: ignore[index]
        return response  # type: ignore[return-value]

    return sync_middleware


request_id.async_capable = True  # type: ignore[attr-defined]
request_id.sync_capable = True  # type: ignore[attr-defined]


def reject_nul(get_response: Callable[[HttpRequest], HttpResponse | Awaitable[HttpResponse]]):  # type: ignore[no-untyped-def]
    """An address with a NUL character names nothing, and no database would look it up."""

    def has_nul(request: HttpRequest) -> bool:
        return "\x00" in request.path or "%00" in request.META.get("QUERY_STRING", "")

    def refusal(request: HttpRequest) -> HttpResponse:
        return problem_response(request, 400, "invalid", "the address has a NUL character")

    if iscoroutinefunction(get_response):

        async def middleware(request: HttpRequest) -> HttpResponse:
            return refusal(request) if has_nul(request) else await get_response(request)  # type: ignore[misc]

        markcoroutinefunction(middleware)
        return middleware

    def sync_middleware(request: HttpRequest) -> HttpResponse:
        return refusal(request) if has_nul(request) else get_response(request)  # type: ignore[return-value]

    return sync_middleware


reject_nul.async_capable = True  # type: ignore[attr-defined]
reject_nul.sync_capable = True  # type: ignore[attr-defined]
