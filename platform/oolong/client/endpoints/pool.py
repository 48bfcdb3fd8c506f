"""Pools, their nodes, and who uses and manages them."""

from __future__ import annotations

from collections.abc import Mapping

from oolong.client.endpoints import call
from oolong.client.endpoints.call import Call
from oolong.client.models import JoinToken, Node, Page, Pool, PoolAdmin, PoolSettings, Quota, Usage


def get(pool: str | None) -> Call[Pool]:
    return call.get("pool", Pool, pool=pool)


def page() -> Call[Page[PoolSettings]]:
    return call.get("pools", Page[PoolSettings])


def create(name: str, settings: Mapping[str, bool]) -> Call[PoolSettings]:
    return call.post("pools", PoolSettings, body={"name": name, **settings})


def change(name: str, settings: Mapping[str, bool]) -> Call[PoolSettings]:
    return call.patch("pools/{}", PoolSettings, name, body=dict(settings))


def teams(pool: str) -> Call[Page[Quota]]:
    return call.get("pools/{}/teams", Page[Quota], pool)


def add_team(pool: str, team: str) -> Call[Quota]:
    return call.post("pools/{}/teams", Quota, pool, body={"team": team})


def remove_team(pool: str, team_id: str) -> Call[None]:
    return call.delete("pools/{}/teams/{}", pool, team_id)


def set_quota(pool: str, team_id: str, **changes: int | None) -> Call[Quota]:
    return call.put("pools/{}/teams/{}/quota", Quota, pool, team_id, body=changes)


def admins(pool: str) -> Call[Page[PoolAdmin]]:
    return call.get("pools/{}/admins", Page[PoolAdmin], pool)


def add_admin(pool: str, username: str) -> Call[PoolAdmin]:
    return call.post("pools/{}/admins", PoolAdmin, pool, body={"username": username})


def remove_admin(pool: str, user_id: str) -> Call[None]:
    return call.delete("pools/{}/admins/{}", pool, user_id)


def join_token(pool: str) -> Call[JoinToken]:
    return call.post("pools/{}/join-tokens", JoinToken, pool)


def cordon(node_id: str) -> Call[Node]:
    return call.post("pool/nodes/{}/cordon", Node, node_id)


def uncordon(node_id: str) -> Call[Node]:
    return call.post("pool/nodes/{}/uncordon", Node, node_id)


def drain(node_id: str) -> Call[Node]:
    return call.post("pool/nodes/{}/drain", Node, node_id)


def revoke(node_id: str) -> Call[Node]:
    return call.post("pool/nodes/{}/revoke", Node, node_id)


def delete(name: str) -> Call[None]:
    return call.delete("pools/{}", name)


def usage(by: str, since: str | None, until: str | None, device: str | None) -> Call[Usage]:
    return call.get("pool/usage", Usage, by=by, since=since, until=until, device=device)


def usage_csv(by: str, since: str | None, until: str | None, device: str | None) -> Call[bytes]:
    return call.get("pool/usage", bytes, by=by, since=since, until=until, device=device, format="csv")
