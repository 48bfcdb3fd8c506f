"""Run templates, as the client offers them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from oolong.client import models
from oolong.client.aio.connection import AsyncResource
from oolong.client.request_spec import delete, drop_none, get, page, post


class AsyncTemplates(AsyncResource):
    def list(self) -> AsyncIterator[models.RunTemplate]:
        return self._pages(page("run-templates", models.RunTemplate))

    async def create(
        self, name: str, spec: Mapping[str, Any], *, description: str | None = None, for_team: bool = False
    ) -> models.RunTemplate:
        """Keep a part of a spec under a name."""
        named = drop_none({"description": description, "for_team": for_team or None})
        body = {"name": name, "spec": dict(spec), **named}
        return await self._send(post("run-templates", models.RunTemplate, body=body))

    async def get(self, template_id: str) -> models.RunTemplate:
        return await self._send(get("run-templates/{}", models.RunTemplate, template_id))

    async def add_version(self, template_id: str, spec: Mapping[str, Any]) -> models.RunTemplate:
        body = {"spec": dict(spec)}
        return await self._send(post("run-templates/{}/versions", models.RunTemplate, template_id, body=body))

    async def delete(self, template_id: str) -> None:
        """Runs that were made from it stay as they are."""
        await self._send(delete("run-templates/{}", template_id))
