"""Run templates, as the client offers them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from oolong.client import calls, models
from oolong.client.sync.connection import Connection


class Templates:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(self) -> Iterator[models.RunTemplate]:
        return self._connection.pages(calls.templates.page())

    def create(
        self, name: str, spec: Mapping[str, Any], *, description: str | None = None, for_team: bool = False
    ) -> models.RunTemplate:
        """Keep a part of a spec under a name."""
        call = calls.templates.create(name, spec, description=description, for_team=for_team)
        return self._connection.send(call)

    def get(self, template_id: str) -> models.RunTemplate:
        return self._connection.send(calls.templates.get(template_id))

    def add_version(self, template_id: str, spec: Mapping[str, Any]) -> models.RunTemplate:
        return self._connection.send(calls.templates.add_version(template_id, spec))

    def delete(self, template_id: str) -> None:
        """Runs that were made from it stay as they are."""
        self._connection.send(calls.templates.delete(template_id))
