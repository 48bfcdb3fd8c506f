"""Base models, as the client offers them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

from oolong.client import calls, models
from oolong.client.aio.connection import AsyncConnection
from oolong.client.aio.uploads import upload
from oolong.client.archives import Progress


class AsyncModels:
    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    def list(self) -> AsyncIterator[models.Model]:
        return self._connection.pages(calls.models.page())

    async def get(self, model_id: str) -> models.Model:
        return await self._connection.send(calls.models.get(model_id))

    async def upload(self, path: str | Path, *, name: str, progress: Progress | None = None) -> models.Model:
        """Register a Hugging Face directory (or an archive of one) as a base model."""
        uploaded = await upload(self._connection, Path(path), purpose="model", progress=progress)
        return await self._connection.send(calls.models.register_upload(name, uploaded.id))

    async def register_path(self, path: str, *, name: str) -> models.Model:
        """Register a directory that lies on the nodes themselves."""
        return await self._connection.send(calls.models.register_path(name, path))
