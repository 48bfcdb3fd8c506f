"""The pool, as the client offers it."""

from __future__ import annotations

from collections.abc import Iterator

from oolong.client import calls, models
from oolong.client.sync.connection import Connection


class Pool:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def get(self, pool: str | None = None) -> models.Pool:
        """Nodes, slots, quota and queue of a pool; of the default pool unless another is named."""
        return self._connection.send(calls.pool.get(pool))

    def list(self) -> Iterator[models.PoolSettings]:
        """The pools that your team may use, and those that you manage."""
        return self._connection.pages(calls.pool.page())

    def create(
        self, name: str, *, all_teams: bool = False, trainer_code: bool = False
    ) -> models.PoolSettings:
        settings = {"all_teams": all_teams, "trainer_code": trainer_code}
        return self._connection.send(calls.pool.create(name, settings))

    def change(
        self, name: str, *, all_teams: bool | None = None, trainer_code: bool | None = None
    ) -> models.PoolSettings:
        asked = {"all_teams": all_teams, "trainer_code": trainer_code}
        settings = {setting: value for setting, value in asked.items() if value is not None}
        return self._connection.send(calls.pool.change(name, settings))

    def delete(self, name: str) -> None:
        """Refused, with the reason, while the pool has nodes, or runs that have not ended name it."""
        self._connection.send(calls.pool.delete(name))

    def teams(self, pool: str) -> Iterator[models.Quota]:
        """Every team that may use the pool, with its quota."""
        return self._connection.pages(calls.pool.teams(pool))

    def add_team(self, pool: str, team: str) -> models.Quota:
        """Let a team use the pool; `team` is its id or name."""
        return self._connection.send(calls.pool.add_team(pool, team))

    def remove_team(self, pool: str, team_id: str) -> None:
        self._connection.send(calls.pool.remove_team(pool, team_id))

    def set_quota(self, pool: str, team_id: str, limit_slots: int | None) -> models.Quota:
        """At most so many slots of the pool for the team; None lifts the limit."""
        return self._connection.send(calls.pool.set_quota(pool, team_id, limit_slots))

    def admins(self, pool: str) -> Iterator[models.PoolAdmin]:
        return self._connection.pages(calls.pool.admins(pool))

    def add_admin(self, pool: str, username: str) -> models.PoolAdmin:
        return self._connection.send(calls.pool.add_admin(pool, username))

    def remove_admin(self, pool: str, user_id: str) -> None:
        self._connection.send(calls.pool.remove_admin(pool, user_id))

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

    def join_token(self, pool: str = "default") -> models.JoinToken:
        """A single-use token with which one node joins the pool."""
        return self._connection.send(calls.pool.join_token(pool))

    def cordon(self, node_id: str) -> models.Node:
        return self._connection.send(calls.pool.cordon(node_id))

    def uncordon(self, node_id: str) -> models.Node:
        return self._connection.send(calls.pool.uncordon(node_id))

    def drain(self, node_id: str) -> models.Node:
        return self._connection.send(calls.pool.drain(node_id))

    def revoke(self, node_id: str) -> models.Node:
        """Refuse the node's credential from now on; its runs go on elsewhere, and the node leaves the pool for good."""
        return self._connection.send(calls.pool.revoke(node_id))
