"""Teams of the caller; `team` is that of the token's project."""

from __future__ import annotations

from oolong.client.endpoints import call
from oolong.client.endpoints.call import Call
from oolong.client.models import CreatedTeam, Member, Page, Team


def page() -> Call[Page[Team]]:
    return call.page("teams", Team)


def create(name: str) -> Call[CreatedTeam]:
    return call.post("teams", CreatedTeam, body={"name": name})


def get() -> Call[Team]:
    return call.get("team", Team)


def rename(name: str) -> Call[Team]:
    return call.patch("team", Team, body={"name": name})


def members() -> Call[Page[Member]]:
    return call.get("team/members", Page[Member])


def add_member(username: str, role: str) -> Call[Member]:
    return call.post("team/members", Member, body={"username": username, "role": role})


def set_role(user_id: str, role: str) -> Call[Member]:
    return call.patch("team/members/{}", Member, user_id, body={"role": role})


def remove_member(user_id: str) -> Call[None]:
    return call.delete("team/members/{}", user_id)
