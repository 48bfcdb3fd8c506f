"""Teams of the caller; `team` is that of the token's project."""

from __future__ import annotations

from oolong.client.endpoints import request_spec
from oolong.client.endpoints.request_spec import RequestSpec
from oolong.client.models import CreatedTeam, Member, Page, Team


def page() -> RequestSpec[Page[Team]]:
    return request_spec.page("teams", Team)


def create(name: str) -> RequestSpec[CreatedTeam]:
    return request_spec.post("teams", CreatedTeam, body={"name": name})


def get() -> RequestSpec[Team]:
    return request_spec.get("team", Team)


def rename(name: str) -> RequestSpec[Team]:
    return request_spec.patch("team", Team, body={"name": name})


def members() -> RequestSpec[Page[Member]]:
    return request_spec.get("team/members", Page[Member])


def add_member(username: str, role: str) -> RequestSpec[Member]:
    return request_spec.post("team/members", Member, body={"username": username, "role": role})


def set_role(user_id: str, role: str) -> RequestSpec[Member]:
    return request_spec.patch("team/members/{}", Member, user_id, body={"role": role})


def remove_member(user_id: str) -> RequestSpec[None]:
    return request_spec.delete("team/members/{}", user_id)
