"""Functions, as the client offers them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

from oolong.client import endpoints, models
from oolong.client.aio.connection import AsyncConnection
from oolong.client.functions import source_text, verified


class AsyncFunctions:
    """Versioned source of users: rewards, workflows, losses (`oolong.contracts.user_code`)."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    def list(self, *, kind: str | None = None) -> AsyncIterator[models.Function]:
        return self._connection.pages(endpoints.functions.page(kind=kind))

    async def get(self, function_id: str) -> models.Function:
        return await self._connection.send(endpoints.functions.get(function_id))

    async def upload(
        self, path: str | Path, *, name: str, kind: str, description: str = ""
    ) -> models.FunctionVersion:
        """Make a Python file the next version of the function of that name, which is made if need be."""
        source = source_text(Path(path))
        return await self._connection.send(endpoints.functions.upload(name, kind, source, description))

    async def version(self, reference: str) -> models.FunctionVersion:
        """By name@3, name@latest, or id."""
        return await self._connection.send(endpoints.functions.resolve(reference))

    async def source(self, reference: str) -> bytes:
        """The file of a version, as it was uploaded. Raises OolongError when its sha256 is not the version's."""
        version = await self.version(reference)
        return verified(await self._connection.send(endpoints.functions.source(version.id)), version)
