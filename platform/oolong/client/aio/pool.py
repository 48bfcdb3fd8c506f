"""The pool, as the client offers it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

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

    async def prices(self, pool: str = "default") -> models.Prices:
        """What an hour of a slot costs, by device and GPU model."""
        return await self._send(get("pools/{}/prices", models.Prices, pool))

    async def set_price(
        self, pool: str, *, device: str, per_hour: str | None, gpu_model: str = ""
    ) -> models.Prices:
        """Charge `per_hour` for leases that are granted from now on; None removes the price."""
        body = {"device": device, "gpu_model": gpu_model, "per_hour": per_hour}
        return await self._send(put("pools/{}/prices", models.Prices, pool, body=body))

    def budgets(self, pool: str = "default") -> AsyncIterator[models.Budget]:
        """The monthly budgets that you can see, and what is used of them."""
        return self._pages(get("pools/{}/budgets", models.Page[models.Budget], pool))

    async def set_team_budget(self, pool: str, team_id: str, **changes: str | None) -> models.Budget:
        """Change gpu_hours or cost of the team's monthly budget; None lifts the limit."""
        return await self._send(put("pools/{}/teams/{}/budget", models.Budget, pool, team_id, body=changes))

    async def set_project_budget(self, pool: str, project_id: str, **changes: str | None) -> models.Budget:
        """Change gpu_hours or cost of the monthly budget of a project of your team; None lifts the limit."""
        return await self._send(
            put("pools/{}/projects/{}/budget", models.Budget, pool, project_id, body=changes)
        )

    async def usage(
        self,
        *,
        by: str = "run",
        since: str | None = None,
        until: str | None = None,
        device: str | None = None,
    ) -> models.Usage:
        """Seconds of slots by `run`, `project` or `team`, by phase and outcome: the last 30 days unless given."""
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
        """Seconds of slots per `hour` or `day`, by `team`, `project`, `phase` or `outcome`."""
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

    async def quarantine(self, node_id: str, *, reason: str) -> models.Node:
        """Start no new jobs on the node until it is released."""
        return await self._send(
            post("pool/nodes/{}/quarantine", models.Node, node_id, body={"reason": reason})
        )

    async def release(self, node_id: str) -> models.Node:
        """Release the node from quarantine: new jobs start on it again."""
        return await self._send(post("pool/nodes/{}/release", models.Node, node_id))

    def reservations(
        self, pool: str = "default", *, ended: bool = False
    ) -> AsyncIterator[models.Reservation]:
        """The reservations of a pool that have not ended, the next one first; with `ended` all of them."""
        state = "all" if ended else None
        return self._pages(get("pools/{}/reservations", models.Page[models.Reservation], pool, state=state))

    async def reserve(
        self,
        pool: str,
        *,
        team: str,
        starts_at: str | None = None,
        ends_at: str | None = None,
        duration_seconds: int | None = None,
        slots: int | None = None,
        nodes: Sequence[str] | None = None,
        project: str | None = None,
        device: str | None = None,
        reason: str | None = None,
    ) -> models.Reservation:
        """Reserve `slots` slots, or all slots of `nodes`, for a team or one of its projects; from now unless
        `starts_at` is given, until `ends_at` or for `duration_seconds`. Times are like 2026-11-20T10:00:00Z."""
        body = drop_none(
            {
                "team": team, "project": project, "slots": slots, "nodes": list(nodes) if nodes else None,
                "device": device, "starts_at": starts_at, "ends_at": ends_at, "duration_seconds": duration_seconds,
                "reason": reason,
            }
        )  # fmt: skip
        return await self._send(post("pools/{}/reservations", models.Reservation, pool, body=body))

    async def cancel_reservation(self, pool: str, reservation_id: str) -> None:
        """Its slots are for everybody again; runs that use them stay."""
        await self._send(delete("pools/{}/reservations/{}", pool, reservation_id))

    def maintenance(
        self, pool: str = "default", *, ended: bool = False
    ) -> AsyncIterator[models.MaintenanceWindow]:
        """The maintenance windows of a pool that have not ended, the next one first; with `ended` all of them."""
        state = "all" if ended else None
        return self._pages(
            get("pools/{}/maintenance", models.Page[models.MaintenanceWindow], pool, state=state)
        )

    async def maintain(
        self,
        pool: str,
        *,
        reason: str,
        starts_at: str | None = None,
        ends_at: str | None = None,
        duration_seconds: int | None = None,
        nodes: Sequence[str] | None = None,
    ) -> models.MaintenanceWindow:
        """Maintain `nodes`, or the whole pool: they are empty at the start and accept jobs again at the end."""
        body = drop_none(
            {
                "nodes": list(nodes) if nodes else None,
                "starts_at": starts_at,
                "ends_at": ends_at,
                "duration_seconds": duration_seconds,
                "reason": reason,
            }
        )
        return await self._send(post("pools/{}/maintenance", models.MaintenanceWindow, pool, body=body))

    async def cancel_maintenance(self, pool: str, window_id: str) -> None:
        """Nodes that the window drains accept jobs again."""
        await self._send(delete("pools/{}/maintenance/{}", pool, window_id))
