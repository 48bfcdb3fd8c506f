"""Who is asking, and from where: known while a request is answered, for whoever writes an audit entry."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, cast

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse


@dataclass
class Origin:
    """Filled in by the authentication that lets a caller in; without a request it is the system itself."""

    actor_kind: str = "system"  # anonymous, user, service_account, node, system
    actor_id: str = ""
    actor_name: str = ""
    token_id: str = ""
    project_id: str = ""
    address: str = ""
    request_id: str = ""


_origin: ContextVar[Origin | None] = ContextVar("origin", default=None)


def origin() -> Origin:
    """The one of the request that is being answered."""
    return _origin.get() or Origin()


def note_caller(*, kind: str, identity: str, name: str, token_id: str = "", project_id: str = "") -> None:
    """Say who the request turned out to be from. Outside of a request there is nobody to tell."""
    if (asking := _origin.get()) is not None:
        asking.actor_kind, asking.actor_id, asking.actor_name = kind, identity, name
        asking.token_id, asking.project_id = token_id, project_id


def note_origin(get_response: Callable[[HttpRequest], HttpResponse | Awaitable[HttpResponse]]):  # type: ignore[no-untyped-def]
    """Middleware: every request begins as anonymous, with its address. It stands behind `request_id`."""

    def begin(request: HttpRequest) -> Origin:
        asking = Origin(
            actor_kind="anonymous",
            address=request.META.get("REMOTE_ADDR", ""),
            request_id=getattr(request, "request_id", ""),
        )
        if isinstance(request, ASGIRequest):
            cast(dict[str, Any], request.scope)["origin"] = (
                asking  # the gateway learns from it whose credential this was
            )
        return asking

    if iscoroutinefunction(get_response):

        async def middleware(request: HttpRequest) -> HttpResponse:
            before = _origin.set(begin(request))
            try:
                return await get_response(request)  # type: ignore[misc]
            finally:
                _origin.reset(before)

        markcoroutinefunction(middleware)
        return middleware

    def sync_middleware(request: HttpRequest) -> HttpResponse:
        before = _origin.set(begin(request))
        try:
            return get_response(request)  # type: ignore[return-value]
        finally:
            _origin.reset(before)

    return sync_middleware


note_origin.async_capable = True  # type: ignore[attr-defined]
note_origin.sync_capable = True  # type: ignore[attr-defined]
