"""The base of every answer."""

from __future__ import annotations

from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict


class Answer(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True, protected_namespaces=())


class Named(Answer):
    id: str
    name: str


T = TypeVar("T")


class Listing(Answer, Generic[T]):
    """A list that is always whole."""

    data: list[T]


class Page(Answer, Generic[T]):
    data: list[T]
    next_cursor: str | None = None
    has_more: bool = False
