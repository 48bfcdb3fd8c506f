"""The doors that there are: every route of the URL resolver, and what a caller finds at one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from django.http import HttpResponse
from django.test import Client, RequestFactory
from django.urls import URLPattern, URLResolver, get_resolver

from tests.unit.control_plane.access.routes import BODIES

REACHED = 299  # the answer of a handler's stand-in: the caller was let through
API = "/api/v1"
PLAIN_VALUES = {
    "number": "0", "incarnation": "0", "file": "main-0.jsonl", "name": "pipeline", "sha256": "0" * 64, "path": "x",
    "filename": "x",
}  # fmt: skip


@dataclass(frozen=True)
class Route:
    name: str  # "GET /runs/{run_id}", as in ROUTES; ANY stands for a plain function
    url: str
    view: Any  # a class of DRF's, or a function

    @property
    def method(self) -> str:
        word = self.name.partition(" ")[0]
        return "GET" if word == "ANY" else word

    @property
    def is_view(self) -> bool:
        return hasattr(self.view, "cls")

    @property
    def names_an_object(self) -> bool:
        return "{" in self.url

    def path(self, ids: Mapping[str, str]) -> str:
        return self.url.format_map(_Values({**PLAIN_VALUES, **ids}))


class _Values(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return "none"


def all_routes() -> Iterator[Route]:
    for url, view in _walk(get_resolver().url_patterns, "/"):
        shown = url.removeprefix(API)
        cls = getattr(view, "cls", None) or getattr(view, "view_class", None)
        if cls is None:
            yield Route(f"ANY {shown}", url, view)
            continue
        for method in cls.http_method_names:
            if method not in ("options", "head") and hasattr(cls, method):
                yield Route(f"{method.upper()} {shown}", url, view)


def _walk(patterns: list[Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for pattern in patterns:
        text = re.sub(r"\(\?!.*?\)|\^|\$", "", str(pattern.pattern))
        path = prefix + re.sub(r"<(?:\w+:)?(\w+)>|\(\?P<(\w+)>[^)]*\)", r"{\1\2}", text)
        if isinstance(pattern, URLResolver):
            yield from _walk(pattern.url_patterns, path)
        elif isinstance(pattern, URLPattern):
            yield path, pattern.callback


def knock(route: Route, *, bearer: str = "", session_of: Any = None, csrf: bool = True) -> int:
    """Credentials and permissions as in life, and instead of the handler a stand-in: REACHED if it was let in."""
    headers = {"authorization": f"Bearer {bearer}"} if bearer else {}
    request: Any = RequestFactory().generic(route.method, route.path({}), headers=headers)
    request.session = {}
    if session_of is not None:
        request.user = session_of
        request._dont_enforce_csrf_checks = csrf  # as if its header had the right token
    view = route.view.cls(**route.view.initkwargs)
    setattr(view, route.method.lower(), lambda request, *args, **kwargs: HttpResponse(status=REACHED))
    status: int = view.dispatch(request).status_code
    return status


def call(route: Route, bearer: str, ids: Mapping[str, str]) -> Any:
    """The whole way: middleware, view, handler, database."""
    headers = {"authorization": f"Bearer {bearer}"} if bearer else {}
    body = json.dumps(BODIES.get(route.name, {}))
    client = _client()
    client.cookies.clear()
    return client.generic(
        route.method, route.path(ids), data=body, content_type="application/json", headers=headers
    )


@cache
def _client() -> Client:
    """One for all calls: each loads the middleware again, which takes as long as a call."""
    return Client()
