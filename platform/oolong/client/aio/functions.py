"""Functions, as the client offers them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

from oolong.client import models
from oolong.client.aio.connection import AsyncResource
from oolong.client.functions import source_text, verified
from oolong.client.request_spec import delete, get, page, patch, post


class AsyncFunctions(AsyncResource):
    """Versioned source of users: rewards, workflows, losses (`oolong.contracts.user_code`)."""

    def list(self, *, kind: str | None = None, archived: str | None = None) -> AsyncIterator[models.Function]:
        """Without archived ones; `archived` is "only" or "include"."""
        return self._pages(page("functions", models.Function, kind=kind, archived=archived))

    async def get(self, function_id: str) -> models.Function:
        return await self._send(get("functions/{}", models.Function, function_id))

    async def upload(
        self, path: str | Path, *, name: str, kind: str, description: str = ""
    ) -> models.FunctionVersion:
        """Make a Python file the next version of the function of that name, which is made if need be."""
        source = source_text(Path(path))
        body = {"name": name, "kind": kind, "source": source, "description": description}
        return await self._send(post("functions", models.FunctionVersion, body=body))

    async def archive(self, function_id: str, archived: bool = True) -> models.Function:
        """Hide it from lists, or show it again. What names one of its versions still runs."""
        body = {"archived": archived}
        return await self._send(patch("functions/{}", models.Function, function_id, body=body))

    async def delete(self, function_id: str) -> None:
        """Delete it with all its versions. Raises with the names of the runs and specs that refer to it."""
        await self._send(delete("functions/{}", function_id))

    async def version(self, reference: str) -> models.FunctionVersion:
        """By name@3, name@latest, or id."""
        return await self._send(get("function-versions/resolve", models.FunctionVersion, ref=reference))

    async def source(self, reference: str) -> bytes:
        """The file of a version, as it was uploaded. Raises OolongError when its sha256 is not the version's."""
        version = await self.version(reference)
        return verified(await self._send(get("function-versions/{}/source", bytes, version.id)), version)
