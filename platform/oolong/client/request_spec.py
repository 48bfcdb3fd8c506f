"""One HTTP request of the API: method, path, parameters, body and the type of the response."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from oolong.client.models import Page

T = TypeVar("T")

PAGE_ITEMS = 100


@dataclass(frozen=True)
class RequestSpec(Generic[T]):
    method: str
    path: str  # below /api/v1
    answer: type[T] | None  # None: no content
    params: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None  # JSON
    content: bytes | None = None  # instead of JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    key: str = ""  # Idempotency-Key: makes a POST safe to repeat
    idempotent: bool = False  # a POST that is safe to repeat without a key

    @property
    def repeatable(self) -> bool:
        return self.method != "POST" or self.idempotent or bool(self.key)

    def with_params(self, **params: Any) -> RequestSpec[T]:
        return replace(self, params={**self.params, **drop_none(params)})


def get(path: str, answer: type[T], *names: str, **params: Any) -> RequestSpec[T]:
    """`get("runs/{}/events", …, run_id)`: each {} takes a name, quoted. A parameter that is None stays out.

    `wait` and `seen`, where an operation has them: the server answers when the status is another than `seen`, or after
    `wait` seconds.
    """
    return RequestSpec("GET", format_path(path, names), answer, drop_none(params))


def page(path: str, item: type[T], *names: str, **params: Any) -> RequestSpec[Page[T]]:
    """The first page of a list; `client.pages(spec)` follows its cursor."""
    return get(path, Page[item], *names, **{"limit": PAGE_ITEMS, **params})  # type: ignore[valid-type]


def post(
    path: str, answer: type[T] | None, *names: str, body: Any = None, keyed: bool = True
) -> RequestSpec[T]:
    """Each request has its own idempotency key, so a retry after a lost response does the work once. Without a key
    it is not repeated."""
    body = body if body is not None else {}
    key = str(uuid.uuid4()) if keyed else ""
    return RequestSpec("POST", format_path(path, names), answer, body=body, key=key)


def put(path: str, answer: type[T], *names: str, body: Any) -> RequestSpec[T]:
    return RequestSpec("PUT", format_path(path, names), answer, body=body)


def patch(path: str, answer: type[T], *names: str, body: Any) -> RequestSpec[T]:
    return RequestSpec("PATCH", format_path(path, names), answer, body=body)


def delete(path: str, *names: str) -> RequestSpec[None]:
    return RequestSpec("DELETE", format_path(path, names), None)


def format_path(path: str, names: tuple[str, ...]) -> str:
    """Fill the path's placeholders. Names are quoted: a slash or question mark stays part of the name."""
    return path.format(*(quote(name, safe="@:") for name in names))


def drop_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out the fields that are None."""
    return {name: value for name, value in fields.items() if value is not None}


def expiry(expires_at: str | None, never: bool) -> dict[str, str | None]:
    """Without the field the server sets an expiry; null requests a token that does not expire."""
    return {"expires_at": None} if never else drop_none({"expires_at": expires_at})
