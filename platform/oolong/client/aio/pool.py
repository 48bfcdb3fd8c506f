"""The pool, as the client offers it."""

from __future__ import annotations

from oolong.client import calls, models
from oolong.client.aio.connection import AsyncConnection


class AsyncPool:
    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def get(self) -> models.Pool:
        return await self._connection.send(calls.pool.get())

    async def enrolment_token(self) -> models.EnrolmentToken:
        return await self._connection.send(calls.pool.enrolment_token())

    async def cordon(self, node_id: str) -> models.Node:
        return await self._connection.send(calls.pool.cordon(node_id))

    async def uncordon(self, node_id: str) -> models.Node:
        return await self._connection.send(calls.pool.uncordon(node_id))

    async def drain(self, node_id: str) -> models.Node:
        return await self._connection.send(calls.pool.drain(node_id))
