"""Saved views of the run list, as the client offers them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from oolong.client import calls, models
from oolong.client.sync.connection import Connection


class Views:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(self) -> Iterator[models.RunView]:
        """One's own, and those that others share."""
        return self._connection.pages(calls.views.page())

    def create(
        self, name: str, query: Mapping[str, Sequence[str]], *, shared: bool = False
    ) -> models.RunView:
        return self._connection.send(calls.views.create(name, query, shared=shared))

    def get(self, view_id: str) -> models.RunView:
        return self._connection.send(calls.views.get(view_id))

    def update(self, view_id: str, **fields: Any) -> models.RunView:
        """Change name, query or shared of a view of one's own."""
        return self._connection.send(calls.views.update(view_id, fields))

    def delete(self, view_id: str) -> None:
        self._connection.send(calls.views.delete(view_id))
