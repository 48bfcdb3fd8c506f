"""Saved views of the run list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oolong.client.endpoints import call
from oolong.client.endpoints.call import Call
from oolong.client.models import Page, RunView


def page() -> Call[Page[RunView]]:
    return call.page("saved-views", RunView)


def create(name: str, query: Mapping[str, Sequence[str]], *, shared: bool = False) -> Call[RunView]:
    return call.post("saved-views", RunView, body={"name": name, "query": dict(query), "shared": shared})


def get(view_id: str) -> Call[RunView]:
    return call.get("saved-views/{}", RunView, view_id)


def update(view_id: str, fields: dict[str, Any]) -> Call[RunView]:
    return call.patch("saved-views/{}", RunView, view_id, body=fields)


def delete(view_id: str) -> Call[None]:
    return call.delete("saved-views/{}", view_id)
