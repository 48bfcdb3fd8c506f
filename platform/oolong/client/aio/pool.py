"""The pool, as the client offers it."""

from __future__ import annotations

from oolong.client import calls, models
from oolong.client.aio.connection import AsyncConnection


class AsyncPool:
    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def get(self) -> models.Pool:
        return await self._connection.send(calls.pool.get())

    async def usage(
        self,
        *,
        by: str = "run",
        since: str | None = None,
        until: str | None = None,
        device: str | None = None,
    ) -> models.Usage:
        """Seconds of slots by `run`, `project` or `team`, and by phase: the last 30 days unless said otherwise."""
        return await self._connection.send(calls.pool.usage(by, since, until, device))

    async def usage_csv(
        self,
        *,
        by: str = "run",
        since: str | None = None,
        until: str | None = None,
        device: str | None = None,
    ) -> bytes:
        """The same as CSV, every row."""
        return await self._connection.send(calls.pool.usage_csv(by, since, until, device))

    async def enrolment_token(self) -> models.EnrolmentToken:
        return await self._connection.send(calls.pool.enrolment_token())

    async def cordon(self, node_id: str) -> models.Node:
        return await self._connection.send(calls.pool.cordon(node_id))

    async def uncordon(self, node_id: str) -> models.Node:
        return await self._connection.send(calls.pool.uncordon(node_id))

    async def drain(self, node_id: str) -> models.Node:
        return await self._connection.send(calls.pool.drain(node_id))
