"""API tokens of the caller: of the token's project, or of another one of its team (`project`, an id)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from oolong.client import endpoints, models
from oolong.client.aio.connection import AsyncConnection


class AsyncTokens:
    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    def list(self, *, everybodys: bool = False, project: str | None = None) -> AsyncIterator[models.Token]:
        """One's own of the project; everybody's for its admins."""
        return self._connection.pages(endpoints.tokens.page(everybodys, project))

    async def create(
        self, name: str, *, scopes: Sequence[str], expires_at: str | None = None, never_expires: bool = False,
        project: str | None = None,
    ) -> models.CreatedToken:  # fmt: skip
        """It ends after 90 days unless `expires_at` or `never_expires` says otherwise."""
        return await self._connection.send(
            endpoints.tokens.create(name, scopes, expires_at, never_expires, project)
        )

    async def revoke(self, token_id: str, *, project: str | None = None) -> None:
        await self._connection.send(endpoints.tokens.revoke(token_id, project))

    async def rotate(
        self, token_id: str, *, overlap_seconds: int = 3600, project: str | None = None
    ) -> models.CreatedToken:
        """A new secret under the same id; the one before goes on for the overlap."""
        return await self._connection.send(endpoints.tokens.rotate(token_id, overlap_seconds, project))
