"""The audit log of the project, as the client offers it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx

from oolong.client import models
from oolong.client.aio.connection import AsyncResource
from oolong.client.errors import Unreachable
from oolong.client.request_spec import get, page


class AsyncAudit(AsyncResource):
    def list(
        self,
        *,
        actor: str | None = None,
        action: str | None = None,
        target: str | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> AsyncIterator[models.AuditEntry]:
        """Newest first. `actor` and `target`: id or name; `action`: run.stop, or run.* for all of runs."""
        filters = {"actor": actor, "action": action, "target": target, "since": since, "until": until}
        return self._pages(page("audit", models.AuditEntry, **filters))

    async def chain(self) -> models.AuditChain:
        """The head of the project's chain, and whether its newest entries are what was sealed."""
        return await self._send(get("audit/chain", models.AuditChain))

    async def export(
        self,
        *,
        format: str = "jsonl",
        actor: str | None = None,
        action: str | None = None,
        target: str | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> AsyncIterator[bytes]:
        """The whole log, oldest first, as `jsonl` or `csv`, piece by piece. Raises Unreachable when it breaks off."""
        filters = {"actor": actor, "action": action, "target": target, "since": since, "until": until}
        request = get("audit/export", bytes, format=format, **filters)
        try:
            async with self._connection.open(request, {}) as response:
                async for data in response.aiter_bytes():
                    yield data
        except httpx.TransportError as error:
            raise Unreachable(f"the export broke off: {error or type(error).__name__}") from error
