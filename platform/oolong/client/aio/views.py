"""Saved views of the run list, as the client offers them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from oolong.client import endpoints, models
from oolong.client.aio.connection import AsyncConnection


class AsyncViews:
    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    def list(self) -> AsyncIterator[models.RunView]:
        """One's own, and those that others share."""
        return self._connection.pages(endpoints.views.page())

    async def create(
        self, name: str, query: Mapping[str, Sequence[str]], *, shared: bool = False
    ) -> models.RunView:
        return await self._connection.send(endpoints.views.create(name, query, shared=shared))

    async def get(self, view_id: str) -> models.RunView:
        return await self._connection.send(endpoints.views.get(view_id))

    async def update(self, view_id: str, **fields: Any) -> models.RunView:
        """Change name, query or shared of a view of one's own."""
        return await self._connection.send(endpoints.views.update(view_id, fields))

    async def delete(self, view_id: str) -> None:
        await self._connection.send(endpoints.views.delete(view_id))
