"""The pool, as the client offers it."""

from __future__ import annotations

from oolong.client import calls, models
from oolong.client.sync.connection import Connection


class Pool:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def get(self) -> models.Pool:
        return self._connection.send(calls.pool.get())

    def enrolment_token(self) -> models.EnrolmentToken:
        return self._connection.send(calls.pool.enrolment_token())

    def cordon(self, node_id: str) -> models.Node:
        return self._connection.send(calls.pool.cordon(node_id))

    def uncordon(self, node_id: str) -> models.Node:
        return self._connection.send(calls.pool.uncordon(node_id))

    def drain(self, node_id: str) -> models.Node:
        return self._connection.send(calls.pool.drain(node_id))
