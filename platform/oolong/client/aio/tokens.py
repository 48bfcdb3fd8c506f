"""API tokens of the caller: of the token's project, or of another one of its team (`project`, an id)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from oolong.client import models
from oolong.client.aio.connection import AsyncResource
from oolong.client.request_spec import delete, expiry, page, post


class AsyncTokens(AsyncResource):
    def list(self, *, everybodys: bool = False, project: str | None = None) -> AsyncIterator[models.Token]:
        """One's own of the project; everybody's for its admins."""
        return self._pages(page("tokens", models.Token, all="true" if everybodys else None, project=project))

    async def create(
        self, name: str, *, scopes: Sequence[str], expires_at: str | None = None, never_expires: bool = False,
        project: str | None = None,
    ) -> models.CreatedToken:  # fmt: skip
        """It ends after 90 days unless `expires_at` or `never_expires` says otherwise."""
        body = {"name": name, "scopes": list(scopes), **expiry(expires_at, never_expires)}
        return await self._send(post("tokens", models.CreatedToken, body=body).with_params(project=project))

    async def revoke(self, token_id: str, *, project: str | None = None) -> None:
        await self._send(delete("tokens/{}", token_id).with_params(project=project))

    async def rotate(
        self, token_id: str, *, overlap_seconds: int = 3600, project: str | None = None
    ) -> models.CreatedToken:
        """A new secret under the same id; the one before works for the overlap."""
        body = {"overlap_seconds": overlap_seconds}
        request = post("tokens/{}/rotate", models.CreatedToken, token_id, body=body)
        return await self._send(request.with_params(project=project))
