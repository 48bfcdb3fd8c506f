"""Project secrets, as the client offers them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from oolong.client import endpoints, models
from oolong.client.aio.connection import AsyncConnection


class AsyncSecrets:
    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    def list(self) -> AsyncIterator[models.Secret]:
        """Their names; nobody gets a value back."""
        return self._connection.pages(endpoints.secrets.page())

    async def set(
        self, name: str, value: str, *, hosts: Sequence[str] = (), jobs: Sequence[str] = ()
    ) -> models.Secret:
        """Keep a value under a name, instead of the one before. `hosts`: where an import by URL may send it; `jobs`:
        kinds of jobs that a run may give it to (controller, reward, rollout, trainer)."""
        return await self._connection.send(endpoints.secrets.set_value(name, value, hosts, jobs))

    async def delete(self, name: str) -> None:
        await self._connection.send(endpoints.secrets.delete(name))
