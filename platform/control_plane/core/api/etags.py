"""ETags: a strong one on every JSON answer to a GET, `If-None-Match` → 304, `If-Match` → 412 on what changed.

The tag is of the bytes, so it moves exactly when what the caller would see moves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseNotModified
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.core.api.errors import Problem
from control_plane.core.infra.locks import LockClass, transaction_lock


def etag_of(content: bytes) -> str:
    return f'"{hashlib.sha256(content).hexdigest()[:32]}"'


def conditional_reads(get_response: Callable[[HttpRequest], HttpResponse | Awaitable[HttpResponse]]):  # type: ignore[no-untyped-def]
    """Middleware: tags JSON answers of the API and spares the body of what the caller holds already."""
    if iscoroutinefunction(get_response):

        async def middleware(request: HttpRequest) -> HttpResponse:
            return _tagged(request, await get_response(request))  # type: ignore[misc]

        markcoroutinefunction(middleware)
        return middleware

    def sync_middleware(request: HttpRequest) -> HttpResponse:
        return _tagged(request, get_response(request))  # type: ignore[arg-type]

    return sync_middleware


conditional_reads.async_capable = True  # type: ignore[attr-defined]
conditional_reads.sync_capable = True  # type: ignore[attr-defined]


def conditional(view: Callable[..., Response]) -> Callable[..., Response]:
    """Decorate a PATCH, PUT or DELETE handler of a view that has GET: honours `If-Match`, and tags the answer.

    Writers of one address come one after the other, so of two that hold the same tag only the first gets through.
    """

    @wraps(view)
    def wrapped(self: Any, request: Request, *args: Any, **kwargs: Any) -> Response:
        wanted = request.headers.get("If-Match", "")
        with transaction.atomic():
            transaction_lock(LockClass.RESOURCE, request.path)
            if wanted and not _fits(wanted, current := _current(self, request, *args, **kwargs)):
                raise Problem(
                    412, "precondition_failed",
                    f"If-Match says {wanted}, it is {current} now: read it again and send its ETag",
                    headers={"ETag": current},
                )  # fmt: skip
            response = view(self, request, *args, **kwargs)
            if response.status_code == 200:
                response["ETag"] = _current(self, request, *args, **kwargs)
            return response

    wrapped.conditional = True  # type: ignore[attr-defined]  # for the schema
    return wrapped


def _tagged(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    if (
        request.method != "GET"
        or response.status_code != 200
        or response.streaming
        or not request.path.startswith("/api/")
        or not response.get("Content-Type", "").startswith("application/json")
    ):
        return response
    if "ETag" not in response:
        response["ETag"] = etag_of(response.content)
    response.setdefault("Cache-Control", "private, no-cache")
    held = request.headers.get("If-None-Match", "")
    if not held or not _fits(held.replace("W/", ""), response["ETag"]):
        return response
    unchanged = HttpResponseNotModified()
    for name in ("ETag", "Cache-Control", "Vary", "Deprecation", "Sunset", "Link"):
        if name in response:
            unchanged[name] = response[name]
    return unchanged


def _current(view: Any, request: Request, *args: Any, **kwargs: Any) -> str:
    return etag_of(JSONRenderer().render(view.get(request, *args, **kwargs).data))


def _fits(header: str, etag: str) -> bool:
    """`If-Match` takes strong tags only: a weak one never fits (RFC 9110, section 13.1.1)."""
    return header.strip() == "*" or etag in [tag.strip() for tag in header.split(",")]
