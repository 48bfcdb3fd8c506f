"""What one call is: method, path, what goes along and what comes back."""

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
class Call(Generic[T]):
    method: str
    path: str  # below /api/v1
    answer: type[T] | None  # None: no content
    params: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None  # JSON
    content: bytes | None = None  # instead of JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    key: str = ""  # Idempotency-Key: makes a POST safe to repeat
    harmless: bool = False  # a POST that is safe to repeat by what it does

    @property
    def repeatable(self) -> bool:
        return self.method != "POST" or self.harmless or bool(self.key)

    def with_params(self, **params: Any) -> Call[T]:
        return replace(self, params={**self.params, **given(params)})


def get(path: str, answer: type[T], *names: str, **params: Any) -> Call[T]:
    """`get("runs/{}/events", …, run_id)`: each {} takes a name, quoted. A parameter that is None stays out."""
    return Call("GET", filled(path, names), answer, given(params))


def page(path: str, item: type[T], *names: str, **params: Any) -> Call[Page[T]]:
    """The first page of a list; `client.pages(call)` goes on from it."""
    return get(path, Page[item], *names, **{"limit": PAGE_ITEMS, **params})  # type: ignore[valid-type]


def post(path: str, answer: type[T] | None, *names: str, body: Any = None) -> Call[T]:
    """Each call has a key of its own, so that repeating it after a lost answer does the work once."""
    body = body if body is not None else {}
    return Call("POST", filled(path, names), answer, body=body, key=str(uuid.uuid4()))


def put(path: str, answer: type[T], *names: str, body: Any) -> Call[T]:
    return Call("PUT", filled(path, names), answer, body=body)


def patch(path: str, answer: type[T], *names: str, body: Any) -> Call[T]:
    return Call("PATCH", filled(path, names), answer, body=body)


def delete(path: str, *names: str) -> Call[None]:
    return Call("DELETE", filled(path, names), None)


def filled(path: str, names: tuple[str, ...]) -> str:
    """The path with its names in place; a slash or a question mark in a name stays part of the name."""
    return path.format(*(quote(name, safe="@:") for name in names))


def given(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that were given: None stands for left out."""
    return {name: value for name, value in fields.items() if value is not None}


def expiry(expires_at: str | None, never: bool) -> dict[str, str | None]:
    """Left out, the server sets an end; null asks for a token without one."""
    return {"expires_at": None} if never else given({"expires_at": expires_at})
