"""Run templates, as the client offers them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from oolong.client import endpoints, models
from oolong.client.aio.connection import AsyncConnection


class AsyncTemplates:
    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    def list(self) -> AsyncIterator[models.RunTemplate]:
        return self._connection.pages(endpoints.templates.page())

    async def create(
        self, name: str, spec: Mapping[str, Any], *, description: str | None = None, for_team: bool = False
    ) -> models.RunTemplate:
        """Keep a part of a spec under a name."""
        request = endpoints.templates.create(name, spec, description=description, for_team=for_team)
        return await self._connection.send(request)

    async def get(self, template_id: str) -> models.RunTemplate:
        return await self._connection.send(endpoints.templates.get(template_id))

    async def add_version(self, template_id: str, spec: Mapping[str, Any]) -> models.RunTemplate:
        return await self._connection.send(endpoints.templates.add_version(template_id, spec))

    async def delete(self, template_id: str) -> None:
        """Runs that were made from it stay as they are."""
        await self._connection.send(endpoints.templates.delete(template_id))
