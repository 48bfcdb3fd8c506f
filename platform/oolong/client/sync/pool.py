"""The pool, as the client offers it."""

from __future__ import annotations

from oolong.client import calls, models
from oolong.client.sync.connection import Connection


class Pool:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def get(self) -> models.Pool:
        return self._connection.send(calls.pool.get())

    def usage(
        self,
        *,
        by: str = "run",
        since: str | None = None,
        until: str | None = None,
        device: str | None = None,
    ) -> models.Usage:
        """Seconds of slots by `run`, `project` or `team`, and by phase: the last 30 days unless said otherwise."""
        return self._connection.send(calls.pool.usage(by, since, until, device))

    def usage_csv(
        self,
        *,
        by: str = "run",
        since: str | None = None,
        until: str | None = None,
        device: str | None = None,
    ) -> bytes:
        """The same as CSV, every row."""
        return self._connection.send(calls.pool.usage_csv(by, since, until, device))

    def enrolment_token(self) -> models.EnrolmentToken:
        return self._connection.send(calls.pool.enrolment_token())

    def cordon(self, node_id: str) -> models.Node:
        return self._connection.send(calls.pool.cordon(node_id))

    def uncordon(self, node_id: str) -> models.Node:
        return self._connection.send(calls.pool.uncordon(node_id))

    def drain(self, node_id: str) -> models.Node:
        return self._connection.send(calls.pool.drain(node_id))
