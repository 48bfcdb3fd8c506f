"""gzip for JSON and pages. Files of the dashboard are compressed when it is built, streams and ranges never.

A random number of bytes in each answer hides its exact length (the BREACH attack reads secrets from lengths).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from asgiref.sync import iscoroutinefunction, markcoroutinefunction, sync_to_async
from django.http import HttpRequest, HttpResponse
from django.utils.cache import patch_vary_headers
from django.utils.text import compress_string

SMALLEST_BYTES = 1024
IN_PLACE_BYTES = 128 * 1024  # takes a few milliseconds; what is larger is compressed by another thread
RANDOM_BYTES = 100
KINDS = ("application/json", "application/problem+json", "application/vnd.oai.openapi", "text/html")


def compress_answers(get_response: Callable[[HttpRequest], HttpResponse | Awaitable[HttpResponse]]):  # type: ignore[no-untyped-def]
    """Middleware. It stands outside of the one that tags answers, so an ETag is of what is inside the gzip."""
    if iscoroutinefunction(get_response):

        async def middleware(request: HttpRequest) -> HttpResponse:
            response = await get_response(request)  # type: ignore[misc]
            if not _may_be_compressed(response):
                return response
            patch_vary_headers(response, ("Accept-Encoding",))
            if not accepts_gzip(request):
                return response
            if len(response.content) <= IN_PLACE_BYTES:
                return _compressed(response)
            return await sync_to_async(_compressed, thread_sensitive=False)(response)

        markcoroutinefunction(middleware)
        return middleware

    def sync_middleware(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        assert isinstance(response, HttpResponse) or getattr(response, "streaming", False)
        if not _may_be_compressed(response):  # type: ignore[arg-type]
            return response  # type: ignore[return-value]
        patch_vary_headers(response, ("Accept-Encoding",))  # type: ignore[arg-type]
        return _compressed(response) if accepts_gzip(request) else response  # type: ignore[arg-type,return-value]

    return sync_middleware


compress_answers.async_capable = True  # type: ignore[attr-defined]
compress_answers.sync_capable = True  # type: ignore[attr-defined]


def accepts_gzip(request: HttpRequest) -> bool:
    """`gzip`, or `*`, with a weight that is not 0."""
    weights = {}
    for part in request.headers.get("Accept-Encoding", "").lower().split(","):
        name, _, weight = part.partition(";")
        weights[name.strip()] = weight.replace(" ", "")
    accepted = weights.get("gzip", weights.get("*"))
    return accepted is not None and accepted not in ("q=0", "q=0.0", "q=0.00", "q=0.000")


def _may_be_compressed(response: HttpResponse) -> bool:
    return (
        not response.streaming
        and not response.has_header("Content-Encoding")
        and not response.has_header("Content-Range")
        and response.get("Content-Type", "").startswith(KINDS)
        and len(response.content) >= SMALLEST_BYTES
    )


def _compressed(response: HttpResponse) -> HttpResponse:
    small = compress_string(response.content, max_random_bytes=RANDOM_BYTES)
    if len(small) < len(response.content):
        response.content = small
        response["Content-Encoding"] = "gzip"
        response["Content-Length"] = str(len(small))
    return response
