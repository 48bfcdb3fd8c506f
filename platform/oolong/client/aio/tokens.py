"""API tokens, as the client offers them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from oolong.client import calls, models
from oolong.client.aio.connection import AsyncConnection


class AsyncTokens:
    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    def list(self) -> AsyncIterator[models.Token]:
        return self._connection.pages(calls.tokens.page())

    async def create(
        self, name: str, *, scopes: Sequence[str], expires_at: str | None = None
    ) -> models.CreatedToken:
        return await self._connection.send(calls.tokens.create(name, scopes, expires_at))

    async def revoke(self, token_id: str) -> None:
        await self._connection.send(calls.tokens.revoke(token_id))
