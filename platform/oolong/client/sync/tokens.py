"""API tokens of the caller: of the token's project, or of another one of its team (`project`, an id)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from oolong.client import calls, models
from oolong.client.sync.connection import Connection


class Tokens:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(self, *, everybodys: bool = False, project: str | None = None) -> Iterator[models.Token]:
        """One's own of the project; everybody's for its admins."""
        return self._connection.pages(calls.tokens.page(everybodys, project))

    def create(
        self, name: str, *, scopes: Sequence[str], expires_at: str | None = None, never_expires: bool = False,
        project: str | None = None,
    ) -> models.CreatedToken:  # fmt: skip
        """It ends after 90 days unless `expires_at` or `never_expires` says otherwise."""
        return self._connection.send(calls.tokens.create(name, scopes, expires_at, never_expires, project))

    def revoke(self, token_id: str, *, project: str | None = None) -> None:
        self._connection.send(calls.tokens.revoke(token_id, project))

    def rotate(
        self, token_id: str, *, overlap_seconds: int = 3600, project: str | None = None
    ) -> models.CreatedToken:
        """A new secret under the same id; the one before goes on for the overlap."""
        return self._connection.send(calls.tokens.rotate(token_id, overlap_seconds, project))
