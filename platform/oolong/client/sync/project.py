"""The project of the token, as the client offers it."""

from __future__ import annotations

from collections.abc import Iterator

from oolong.client import calls, models
from oolong.client.sync.connection import Connection


class Projects:
    """The project of the token."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def get(self) -> models.Project:
        return self._connection.send(calls.project.get())

    def set_tested_rewards(self, required: bool) -> models.Project:
        """Whether an rl run needs a green test of its reward."""
        return self._connection.send(calls.project.change(tested_rewards=required))

    def events(self) -> Iterator[models.ProjectEvent]:
        return self._connection.pages(calls.project.events())

    def list(self) -> Iterator[models.Project]:
        """Those of the team that you have a role in."""
        return self._connection.pages(calls.project.page())

    def create(self, name: str) -> models.Project:
        """In your team; only its admins may."""
        return self._connection.send(calls.project.create(name))

    def rename(self, name: str) -> models.Project:
        return self._connection.send(calls.project.change(name=name))
