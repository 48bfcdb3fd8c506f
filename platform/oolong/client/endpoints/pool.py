"""Pools, their nodes, and who uses and manages them."""

from __future__ import annotations

from collections.abc import Mapping

from oolong.client.endpoints import request_spec
from oolong.client.endpoints.request_spec import RequestSpec
from oolong.client.models import (
    JoinToken,
    Node,
    Page,
    Pool,
    PoolAdmin,
    PoolSettings,
    ProjectQuota,
    Quota,
    Usage,
)


def get(pool: str | None) -> RequestSpec[Pool]:
    return request_spec.get("pool", Pool, pool=pool)


def page() -> RequestSpec[Page[PoolSettings]]:
    return request_spec.get("pools", Page[PoolSettings])


def create(name: str, settings: Mapping[str, bool]) -> RequestSpec[PoolSettings]:
    return request_spec.post("pools", PoolSettings, body={"name": name, **settings})


def change(name: str, settings: Mapping[str, bool]) -> RequestSpec[PoolSettings]:
    return request_spec.patch("pools/{}", PoolSettings, name, body=dict(settings))


def teams(pool: str) -> RequestSpec[Page[Quota]]:
    return request_spec.get("pools/{}/teams", Page[Quota], pool)


def add_team(pool: str, team: str) -> RequestSpec[Quota]:
    return request_spec.post("pools/{}/teams", Quota, pool, body={"team": team})


def remove_team(pool: str, team_id: str) -> RequestSpec[None]:
    return request_spec.delete("pools/{}/teams/{}", pool, team_id)


def set_quota(pool: str, team_id: str, **changes: int | None) -> RequestSpec[Quota]:
    return request_spec.put("pools/{}/teams/{}/quota", Quota, pool, team_id, body=changes)


def project_quotas(pool: str, team_id: str) -> RequestSpec[Page[ProjectQuota]]:
    return request_spec.get("pools/{}/teams/{}/projects", Page[ProjectQuota], pool, team_id)


def set_project_quota(
    pool: str, team_id: str, project_id: str, **changes: int | None
) -> RequestSpec[ProjectQuota]:
    path = "pools/{}/teams/{}/projects/{}/quota"
    return request_spec.put(path, ProjectQuota, pool, team_id, project_id, body=changes)


def admins(pool: str) -> RequestSpec[Page[PoolAdmin]]:
    return request_spec.get("pools/{}/admins", Page[PoolAdmin], pool)


def add_admin(pool: str, username: str) -> RequestSpec[PoolAdmin]:
    return request_spec.post("pools/{}/admins", PoolAdmin, pool, body={"username": username})


def remove_admin(pool: str, user_id: str) -> RequestSpec[None]:
    return request_spec.delete("pools/{}/admins/{}", pool, user_id)


def join_token(pool: str) -> RequestSpec[JoinToken]:
    return request_spec.post("pools/{}/join-tokens", JoinToken, pool)


def cordon(node_id: str) -> RequestSpec[Node]:
    return request_spec.post("pool/nodes/{}/cordon", Node, node_id)


def uncordon(node_id: str) -> RequestSpec[Node]:
    return request_spec.post("pool/nodes/{}/uncordon", Node, node_id)


def drain(node_id: str, deadline_seconds: int | None) -> RequestSpec[Node]:
    body = {} if deadline_seconds is None else {"deadline_seconds": deadline_seconds}
    return request_spec.post("pool/nodes/{}/drain", Node, node_id, body=body)


def revoke(node_id: str) -> RequestSpec[Node]:
    return request_spec.post("pool/nodes/{}/revoke", Node, node_id)


def delete(name: str) -> RequestSpec[None]:
    return request_spec.delete("pools/{}", name)


def usage(by: str, since: str | None, until: str | None, device: str | None) -> RequestSpec[Usage]:
    return request_spec.get("pool/usage", Usage, by=by, since=since, until=until, device=device)


def usage_csv(by: str, since: str | None, until: str | None, device: str | None) -> RequestSpec[bytes]:
    return request_spec.get("pool/usage", bytes, by=by, since=since, until=until, device=device, format="csv")
