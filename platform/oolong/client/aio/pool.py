"""The pool, as the client offers it."""

from __future__ import annotations

from collections.abc import AsyncIterator

from oolong.client import models
from oolong.client.aio.connection import AsyncResource
from oolong.client.request_spec import delete, drop_none, get, patch, post, put


class AsyncPool(AsyncResource):
    async def get(self, pool: str | None = None) -> models.Pool:
        """Nodes, slots, quota and queue of a pool; of the default pool unless another is named."""
        return await self._send(get("pool", models.Pool, pool=pool))

    def list(self) -> AsyncIterator[models.PoolSettings]:
        """The pools that your team may use, and those that you manage."""
        return self._pages(get("pools", models.Page[models.PoolSettings]))

    async def create(
        self, name: str, *, all_teams: bool = False, trainer_code: bool = False
    ) -> models.PoolSettings:
        settings = {"all_teams": all_teams, "trainer_code": trainer_code}
        return await self._send(post("pools", models.PoolSettings, body={"name": name, **settings}))

    async def change(
        self, name: str, *, all_teams: bool | None = None, trainer_code: bool | None = None
    ) -> models.PoolSettings:
        settings = drop_none({"all_teams": all_teams, "trainer_code": trainer_code})
        return await self._send(patch("pools/{}", models.PoolSettings, name, body=settings))

    async def delete(self, name: str) -> None:
        """Refused, with the reason, while the pool has nodes, or runs that have not ended name it."""
        await self._send(delete("pools/{}", name))

    def teams(self, pool: str) -> AsyncIterator[models.Quota]:
        """Every team that may use the pool, with its quota."""
        return self._pages(get("pools/{}/teams", models.Page[models.Quota], pool))

    async def add_team(self, pool: str, team: str) -> models.Quota:
        """Let a team use the pool; `team` is its id or name."""
        return await self._send(post("pools/{}/teams", models.Quota, pool, body={"team": team}))

    async def remove_team(self, pool: str, team_id: str) -> None:
        await self._send(delete("pools/{}/teams/{}", pool, team_id))

    async def set_quota(self, pool: str, team_id: str, **changes: int | None) -> models.Quota:
        """Change nominal_slots, limit_slots or lending_limit of the team; None lifts either limit."""
        return await self._send(put("pools/{}/teams/{}/quota", models.Quota, pool, team_id, body=changes))

    def project_quotas(self, pool: str, team_id: str) -> AsyncIterator[models.ProjectQuota]:
        """Every project of the team, with its quota in the pool."""
        return self._pages(get("pools/{}/teams/{}/projects", models.Page[models.ProjectQuota], pool, team_id))

    async def set_project_quota(
        self, pool: str, team_id: str, project_id: str, **changes: int | None
    ) -> models.ProjectQuota:
        """Change nominal_slots or limit_slots of the project; None lifts the limit."""
        path = "pools/{}/teams/{}/projects/{}/quota"
        return await self._send(put(path, models.ProjectQuota, pool, team_id, project_id, body=changes))

    def admins(self, pool: str) -> AsyncIterator[models.PoolAdmin]:
        return self._pages(get("pools/{}/admins", models.Page[models.PoolAdmin], pool))

    async def add_admin(self, pool: str, username: str) -> models.PoolAdmin:
        return await self._send(post("pools/{}/admins", models.PoolAdmin, pool, body={"username": username}))

    async def remove_admin(self, pool: str, user_id: str) -> None:
        await self._send(delete("pools/{}/admins/{}", pool, user_id))

    async def usage(
        self,
        *,
        by: str = "run",
        since: str | None = None,
        until: str | None = None,
        device: str | None = None,
    ) -> models.Usage:
        """Seconds of slots by `run`, `project` or `team`, by phase and fate: the last 30 days unless given."""
        request = get("pool/usage", models.Usage, by=by, since=since, until=until, device=device)
        return await self._send(request)

    async def usage_csv(
        self,
        *,
        by: str = "run",
        since: str | None = None,
        until: str | None = None,
        device: str | None = None,
    ) -> bytes:
        """The same as CSV, every row."""
        request = get("pool/usage", bytes, by=by, since=since, until=until, device=device, format="csv")
        return await self._send(request)

    async def usage_series(
        self,
        *,
        by: str = "team",
        bucket: str = "day",
        since: str | None = None,
        until: str | None = None,
        device: str | None = None,
    ) -> models.UsageSeries:
        """Seconds of slots per `hour` or `day`, by `team`, `project`, `phase` or `fate`."""
        params = {"by": by, "bucket": bucket, "since": since, "until": until, "device": device}
        return await self._send(get("pool/usage/series", models.UsageSeries, **params))

    async def join_token(self, pool: str = "default") -> models.JoinToken:
        """A single-use token with which one node joins the pool."""
        return await self._send(post("pools/{}/join-tokens", models.JoinToken, pool))

    async def cordon(self, node_id: str) -> models.Node:
        return await self._send(post("pool/nodes/{}/cordon", models.Node, node_id))

    async def uncordon(self, node_id: str) -> models.Node:
        """Let new jobs start on the node again; cancels a drain."""
        return await self._send(post("pool/nodes/{}/uncordon", models.Node, node_id))

    async def drain(self, node_id: str, *, deadline_seconds: int | None = None) -> models.Node:
        """Move the node's runs to other nodes. What is left after `deadline_seconds` is stopped."""
        body = drop_none({"deadline_seconds": deadline_seconds})
        return await self._send(post("pool/nodes/{}/drain", models.Node, node_id, body=body))

    async def revoke(self, node_id: str) -> models.Node:
        """Refuse the node's credential from now on; its runs go on elsewhere, and the node leaves the pool for good."""
        return await self._send(post("pool/nodes/{}/revoke", models.Node, node_id))
