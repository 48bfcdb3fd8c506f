"""The audit log of the project, as the client offers it."""

from __future__ import annotations

from collections.abc import Iterator

import httpx

from oolong.client import calls, models
from oolong.client.errors import Unreachable
from oolong.client.sync.connection import Connection


class Audit:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(
        self,
        *,
        actor: str | None = None,
        action: str | None = None,
        target: str | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> Iterator[models.AuditEntry]:
        """Newest first. `actor` and `target`: id or name; `action`: run.stop, or run.* for all of runs."""
        filters = {"actor": actor, "action": action, "target": target, "since": since, "until": until}
        return self._connection.pages(calls.audit.page(**filters))

    def export(
        self,
        *,
        format: str = "jsonl",
        actor: str | None = None,
        action: str | None = None,
        target: str | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> Iterator[bytes]:
        """The whole log, oldest first, as `jsonl` or `csv`, piece by piece. Raises Unreachable when it breaks off."""
        filters = {"actor": actor, "action": action, "target": target, "since": since, "until": until}
        call = calls.audit.export(format, **filters)
        try:
            with self._connection.open(call, {}) as response:
                yield from response.iter_bytes()
        except httpx.TransportError as error:
            raise Unreachable(f"the export broke off: {error or type(error).__name__}") from error
