"""The project of the token, as the client offers it."""

from __future__ import annotations

from collections.abc import AsyncIterator

from oolong.client import endpoints, models
from oolong.client.aio.connection import AsyncConnection


class AsyncProjects:
    """The project of the token."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def get(self) -> models.Project:
        return await self._connection.send(endpoints.project.get())

    async def set_tested_rewards(self, required: bool) -> models.Project:
        """Whether an rl run needs a green test of its reward."""
        return await self._connection.send(endpoints.project.change(tested_rewards=required))

    def events(self) -> AsyncIterator[models.ProjectEvent]:
        return self._connection.pages(endpoints.project.events())

    def list(self) -> AsyncIterator[models.Project]:
        """Those of the team that you have a role in."""
        return self._connection.pages(endpoints.project.page())

    async def create(self, name: str) -> models.Project:
        """In your team; only its admins may."""
        return await self._connection.send(endpoints.project.create(name))

    async def rename(self, name: str) -> models.Project:
        return await self._connection.send(endpoints.project.change(name=name))
