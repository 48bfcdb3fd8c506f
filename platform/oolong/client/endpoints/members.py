"""Who is in the token's project."""

from __future__ import annotations

from oolong.client.endpoints import request_spec
from oolong.client.endpoints.request_spec import RequestSpec
from oolong.client.models import Member, Page


def page() -> RequestSpec[Page[Member]]:
    return request_spec.get("members", Page[Member])


def add(username: str, role: str) -> RequestSpec[Member]:
    return request_spec.post("members", Member, body={"username": username, "role": role})


def set_role(user_id: str, role: str) -> RequestSpec[Member]:
    return request_spec.patch("members/{}", Member, user_id, body={"role": role})


def remove(user_id: str) -> RequestSpec[None]:
    return request_spec.delete("members/{}", user_id)
