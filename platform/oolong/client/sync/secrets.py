"""Project secrets, as the client offers them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from oolong.client import calls, models
from oolong.client.sync.connection import Connection


class Secrets:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(self) -> Iterator[models.Secret]:
        """Their names; nobody gets a value back."""
        return self._connection.pages(calls.secrets.page())

    def set(
        self, name: str, value: str, *, hosts: Sequence[str] = (), jobs: Sequence[str] = ()
    ) -> models.Secret:
        """Keep a value under a name, instead of the one before. `hosts`: where an import by URL may send it; `jobs`:
        kinds of jobs that a run may give it to (controller, reward, rollout, trainer)."""
        return self._connection.send(calls.secrets.set_value(name, value, hosts, jobs))

    def delete(self, name: str) -> None:
        self._connection.send(calls.secrets.delete(name))
