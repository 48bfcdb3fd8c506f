"""The pool, as the client offers it."""

from __future__ import annotations

from collections.abc import AsyncIterator

from oolong.client import endpoints, models
from oolong.client.aio.connection import AsyncConnection


class AsyncPool:
    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def get(self, pool: str | None = None) -> models.Pool:
        """Nodes, slots, quota and queue of a pool; of the default pool unless another is named."""
        return await self._connection.send(endpoints.pool.get(pool))

    def list(self) -> AsyncIterator[models.PoolSettings]:
        """The pools that your team may use, and those that you manage."""
        return self._connection.pages(endpoints.pool.page())

    async def create(
        self, name: str, *, all_teams: bool = False, trainer_code: bool = False
    ) -> models.PoolSettings:
        settings = {"all_teams": all_teams, "trainer_code": trainer_code}
        return await self._connection.send(endpoints.pool.create(name, settings))

    async def change(
        self, name: str, *, all_teams: bool | None = None, trainer_code: bool | None = None
    ) -> models.PoolSettings:
        asked = {"all_teams": all_teams, "trainer_code": trainer_code}
        settings = {setting: value for setting, value in asked.items() if value is not None}
        return await self._connection.send(endpoints.pool.change(name, settings))

    async def delete(self, name: str) -> None:
        """Refused, with the reason, while the pool has nodes, or runs that have not ended name it."""
        await self._connection.send(endpoints.pool.delete(name))

    def teams(self, pool: str) -> AsyncIterator[models.Quota]:
        """Every team that may use the pool, with its quota."""
        return self._connection.pages(endpoints.pool.teams(pool))

    async def add_team(self, pool: str, team: str) -> models.Quota:
        """Let a team use the pool; `team` is its id or name."""
        return await self._connection.send(endpoints.pool.add_team(pool, team))

    async def remove_team(self, pool: str, team_id: str) -> None:
        await self._connection.send(endpoints.pool.remove_team(pool, team_id))

    async def set_quota(self, pool: str, team_id: str, **changes: int | None) -> models.Quota:
        """Change nominal_slots, limit_slots or lending_limit of the team; None lifts either limit."""
        return await self._connection.send(endpoints.pool.set_quota(pool, team_id, **changes))

    def project_quotas(self, pool: str, team_id: str) -> AsyncIterator[models.ProjectQuota]:
        """Every project of the team, with its quota in the pool."""
        return self._connection.pages(endpoints.pool.project_quotas(pool, team_id))

    async def set_project_quota(
        self, pool: str, team_id: str, project_id: str, **changes: int | None
    ) -> models.ProjectQuota:
        """Change nominal_slots or limit_slots of the project; None lifts the limit."""
        return await self._connection.send(
            endpoints.pool.set_project_quota(pool, team_id, project_id, **changes)
        )

    def admins(self, pool: str) -> AsyncIterator[models.PoolAdmin]:
        return self._connection.pages(endpoints.pool.admins(pool))

    async def add_admin(self, pool: str, username: str) -> models.PoolAdmin:
        return await self._connection.send(endpoints.pool.add_admin(pool, username))

    async def remove_admin(self, pool: str, user_id: str) -> None:
        await self._connection.send(endpoints.pool.remove_admin(pool, user_id))

    async def usage(
        self,
        *,
        by: str = "run",
        since: str | None = None,
        until: str | None = None,
        device: str | None = None,
    ) -> models.Usage:
        """Seconds of slots by `run`, `project` or `team`, and by phase: the last 30 days unless said otherwise."""
        return await self._connection.send(endpoints.pool.usage(by, since, until, device))

    async def usage_csv(
        self,
        *,
        by: str = "run",
        since: str | None = None,
        until: str | None = None,
        device: str | None = None,
    ) -> bytes:
        """The same as CSV, every row."""
        return await self._connection.send(endpoints.pool.usage_csv(by, since, until, device))

    async def join_token(self, pool: str = "default") -> models.JoinToken:
        """A single-use token with which one node joins the pool."""
        return await self._connection.send(endpoints.pool.join_token(pool))

    async def cordon(self, node_id: str) -> models.Node:
        return await self._connection.send(endpoints.pool.cordon(node_id))

    async def uncordon(self, node_id: str) -> models.Node:
        """Let new jobs start on the node again; cancels a drain."""
        return await self._connection.send(endpoints.pool.uncordon(node_id))

    async def drain(self, node_id: str, *, deadline_seconds: int | None = None) -> models.Node:
        """Move the node's runs to other nodes. What is left after `deadline_seconds` is stopped."""
        return await self._connection.send(endpoints.pool.drain(node_id, deadline_seconds))

    async def revoke(self, node_id: str) -> models.Node:
        """Refuse the node's credential from now on; its runs go on elsewhere, and the node leaves the pool for good."""
        return await self._connection.send(endpoints.pool.revoke(node_id))
