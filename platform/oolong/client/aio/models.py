"""Base models, as the client offers them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

from oolong.client import calls, models
from oolong.client.aio.connection import AsyncConnection
from oolong.client.aio.uploads import upload
from oolong.client.aio.waiting import sleep
from oolong.client.archives import Progress
from oolong.client.errors import NotFound, OolongError


class AsyncModels:
    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    def list(self) -> AsyncIterator[models.Model]:
        return self._connection.pages(calls.models.page())

    async def get(self, model_id: str) -> models.Model:
        return await self._connection.send(calls.models.get(model_id))

    async def named(self, name: str) -> models.Model:
        """The newest of that name. Raises NotFound."""
        async for model in self._connection.pages(calls.models.page(name=name)):
            return model
        raise NotFound(404, code="not_found", detail=f"no model is named {name!r}")

    async def upload(self, path: str | Path, *, name: str, progress: Progress | None = None) -> models.Model:
        """Register a Hugging Face directory (or an archive of one) as a base model."""
        uploaded = await upload(self._connection, Path(path), purpose="model", progress=progress)
        return await self._connection.send(calls.models.register_upload(name, uploaded.id))

    async def register_path(self, path: str, *, name: str) -> models.Model:
        """Register a directory that lies on the nodes themselves."""
        return await self._connection.send(calls.models.register_path(name, path))

    async def import_from_hub(
        self,
        hub_model: str,
        *,
        name: str,
        revision: str = "main",
        secret: str = "",
        timeout_seconds: float = 6 * 3600.0,
        poll_seconds: float = 2.0,
    ) -> models.Model:
        """Have a node fetch owner/name from the hub, and wait until it is a base model.

        `secret`: name of a project secret with a token of the hub. Raises TimeoutError, and OolongError when it
        failed or was cancelled.
        """
        asked = await self.begin_import(hub_model, name=name, revision=revision, secret=secret)
        began = time.monotonic()
        while not asked.ended:
            if time.monotonic() - began > timeout_seconds:
                raise TimeoutError(f"import {asked.id} is {asked.state} after {timeout_seconds:g} s")
            await sleep(poll_seconds)
            asked = await self.get_import(asked.id)
        if asked.model is None:
            raise OolongError(f"import {asked.id} is {asked.state}: {asked.message}")
        return asked.model

    async def begin_import(
        self, hub_model: str, *, name: str, revision: str = "main", secret: str = ""
    ) -> models.ModelImport:
        """Ask for it without waiting."""
        return await self._connection.send(calls.models.import_from_hub(name, hub_model, revision, secret))

    async def get_import(self, import_id: str) -> models.ModelImport:
        return await self._connection.send(calls.models.get_import(import_id))

    async def cancel_import(self, import_id: str) -> models.ModelImport:
        return await self._connection.send(calls.models.cancel_import(import_id))

    def imports(self) -> AsyncIterator[models.ModelImport]:
        return self._connection.pages(calls.models.imports())
