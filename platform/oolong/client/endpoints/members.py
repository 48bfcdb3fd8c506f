"""Who is in the token's project."""

from __future__ import annotations

from oolong.client.endpoints import call
from oolong.client.endpoints.call import Call
from oolong.client.models import Member, Page


def page() -> Call[Page[Member]]:
    return call.get("members", Page[Member])


def add(username: str, role: str) -> Call[Member]:
    return call.post("members", Member, body={"username": username, "role": role})


def set_role(user_id: str, role: str) -> Call[Member]:
    return call.patch("members/{}", Member, user_id, body={"role": role})


def remove(user_id: str) -> Call[None]:
    return call.delete("members/{}", user_id)
