"""Saved views of the run list, as the client offers them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from oolong.client import models
from oolong.client.aio.connection import AsyncResource
from oolong.client.request_spec import delete, get, page, patch, post


class AsyncViews(AsyncResource):
    def list(self) -> AsyncIterator[models.RunView]:
        """One's own, and those that others share."""
        return self._pages(page("saved-views", models.RunView))

    async def create(
        self, name: str, query: Mapping[str, Sequence[str]], *, shared: bool = False
    ) -> models.RunView:
        body = {"name": name, "query": dict(query), "shared": shared}
        return await self._send(post("saved-views", models.RunView, body=body))

    async def get(self, view_id: str) -> models.RunView:
        return await self._send(get("saved-views/{}", models.RunView, view_id))

    async def update(self, view_id: str, **fields: Any) -> models.RunView:
        """Change name, query, shared or columns of a view of one's own."""
        return await self._send(patch("saved-views/{}", models.RunView, view_id, body=fields))

    async def delete(self, view_id: str) -> None:
        await self._send(delete("saved-views/{}", view_id))
