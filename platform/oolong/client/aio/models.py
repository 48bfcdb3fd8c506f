"""Base models, as the client offers them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

from oolong.client import models
from oolong.client.aio.connection import AsyncResource
from oolong.client.aio.uploads import upload
from oolong.client.archives import Progress
from oolong.client.async_primitives import sleep
from oolong.client.checked_models import refuse_unusable
from oolong.client.errors import OolongError
from oolong.client.request_spec import RequestSpec, delete, format_path, get, page, post

LONG_POLL_SECONDS = 30  # that one request waits for a model to be checked


class AsyncModels(AsyncResource):
    def list(self) -> AsyncIterator[models.Model]:
        return self._pages(page("models", models.Model))

    async def get(self, model_id: str) -> models.Model:
        return await self._send(get("models/{}", models.Model, model_id))

    async def named(self, name: str) -> models.Model:
        """A version by its reference, name@2 or name@latest; a bare name means the latest. Raises NotFound."""
        return await self._send(get("models/resolve", models.Model, ref=name))

    async def upload(
        self,
        path: str | Path,
        *,
        name: str,
        timeout_seconds: float = 4 * 3600.0,
        progress: Progress | None = None,
    ) -> models.Model:
        """Register a Hugging Face directory (or an archive of one) as a base model, and wait until it is checked.

        Raises Invalid with every fault of a model that is unusable, and TimeoutError.
        """
        asked = await self.begin_upload(path, name=name, progress=progress)
        return await self.checked(asked, timeout_seconds=timeout_seconds)

    async def register_path(
        self, path: str, *, name: str, timeout_seconds: float = 4 * 3600.0
    ) -> models.Model:
        """Register a directory below one that nodes offer, and wait until such a node has checked it.

        Raises Invalid for a path that no node offers and with every fault of a model that is unusable, and
        TimeoutError.
        """
        asked = await self.begin_register_path(path, name=name)
        return await self.checked(asked, timeout_seconds=timeout_seconds)

    async def checked(
        self, model: models.Model, *, timeout_seconds: float = 4 * 3600.0, poll_seconds: float = 0.3
    ) -> models.Model:
        """Wait until the model is checked; the version that it is. Raises Invalid and TimeoutError."""
        began = time.monotonic()
        while model.state == "VALIDATING":
            if time.monotonic() - began > timeout_seconds:
                raise TimeoutError(f"model {model.id} is {model.state} after {timeout_seconds:g} s")
            asked = time.monotonic()
            request = get(
                "models/{}", models.Model, model.id, wait=LONG_POLL_SECONDS or None, seen=model.state
            )
            model = await self._send(request)
            if model.state == "VALIDATING" and (took := time.monotonic() - asked) < poll_seconds:
                await sleep(poll_seconds - took)
        refuse_unusable(model)
        return model if model.same_as is None else await self.get(model.same_as)

    async def begin_upload(
        self, path: str | Path, *, name: str, progress: Progress | None = None
    ) -> models.Model:
        """Upload and ask for the check without waiting for it."""
        uploaded = await upload(self._connection, Path(path), purpose="model", progress=progress)
        return await self._send(post("models", models.Model, body={"name": name, "upload_id": uploaded.id}))

    async def begin_register_path(self, path: str, *, name: str) -> models.Model:
        """Ask for the check of a path without waiting for it."""
        return await self._send(post("models", models.Model, body={"name": name, "path": path}))

    async def remove(self, model_id: str) -> None:
        """Forget one that is INVALID or DUPLICATE, or waits for a node to look at it."""
        await self._send(delete("models/{}", model_id))

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
        body = {"name": name, "model": hub_model, "revision": revision, "secret": secret}
        return await self._send(post("model-imports", models.ModelImport, body=body))

    async def get_import(self, import_id: str) -> models.ModelImport:
        return await self._send(get("model-imports/{}", models.ModelImport, import_id))

    async def cancel_import(self, import_id: str) -> models.ModelImport:
        return await self._send(
            RequestSpec("DELETE", format_path("model-imports/{}", (import_id,)), models.ModelImport)
        )

    def imports(self) -> AsyncIterator[models.ModelImport]:
        return self._pages(page("model-imports", models.ModelImport))
