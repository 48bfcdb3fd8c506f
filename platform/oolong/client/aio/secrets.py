"""Project secrets, as the client offers them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from oolong.client import models
from oolong.client.aio.connection import AsyncResource
from oolong.client.request_spec import delete, page, post


class AsyncSecrets(AsyncResource):
    def list(self) -> AsyncIterator[models.Secret]:
        """Their names; nobody gets a value back."""
        return self._pages(page("secrets", models.Secret))

    async def set(
        self, name: str, value: str, *, hosts: Sequence[str] = (), jobs: Sequence[str] = ()
    ) -> models.Secret:
        """Keep a value under a name, instead of the one before. `hosts`: where an import by URL or a remote
        reward may send it; `jobs`: kinds of jobs that a run may give it to (controller, reward, rollout, trainer)."""
        body = {"name": name, "value": value, "hosts": list(hosts), "jobs": list(jobs)}
        return await self._send(post("secrets", models.Secret, body=body))

    async def delete(self, name: str) -> None:
        await self._send(delete("secrets/{}", name))
