"""Saved views of the run list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oolong.client.endpoints import request_spec
from oolong.client.endpoints.request_spec import RequestSpec
from oolong.client.models import Page, RunView


def page() -> RequestSpec[Page[RunView]]:
    return request_spec.page("saved-views", RunView)


def create(name: str, query: Mapping[str, Sequence[str]], *, shared: bool = False) -> RequestSpec[RunView]:
    return request_spec.post(
        "saved-views", RunView, body={"name": name, "query": dict(query), "shared": shared}
    )


def get(view_id: str) -> RequestSpec[RunView]:
    return request_spec.get("saved-views/{}", RunView, view_id)


def update(view_id: str, fields: dict[str, Any]) -> RequestSpec[RunView]:
    return request_spec.patch("saved-views/{}", RunView, view_id, body=fields)


def delete(view_id: str) -> RequestSpec[None]:
    return request_spec.delete("saved-views/{}", view_id)
