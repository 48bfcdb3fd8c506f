"""The project of the token, as the client offers it."""

from __future__ import annotations

from collections.abc import AsyncIterator

from oolong.client import models
from oolong.client.aio.connection import AsyncResource
from oolong.client.request_spec import get, page, patch, post


class AsyncProjects(AsyncResource):
    """The project of the token."""

    async def get(self) -> models.Project:
        return await self._send(get("project", models.Project))

    async def set_tested_rewards(self, required: bool) -> models.Project:
        """Whether an rl run needs a green test of its reward."""
        return await self._send(patch("project", models.Project, body={"tested_rewards": required}))

    def events(self) -> AsyncIterator[models.ProjectEvent]:
        return self._pages(page("project/events", models.ProjectEvent))

    def list(self) -> AsyncIterator[models.Project]:
        """Those of the team that you have a role in."""
        return self._pages(page("projects", models.Project))

    async def create(self, name: str) -> models.Project:
        """In your team; only its admins may."""
        return await self._send(post("projects", models.Project, body={"name": name}))

    async def rename(self, name: str) -> models.Project:
        return await self._send(patch("project", models.Project, body={"name": name}))
