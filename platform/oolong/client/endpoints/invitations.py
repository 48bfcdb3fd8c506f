"""Single-use ways into a project or a team."""

from __future__ import annotations

from oolong.client.endpoints import request_spec
from oolong.client.endpoints.request_spec import RequestSpec, drop_none
from oolong.client.models import Accepted, CreatedInvitation, Invitation, Invited, Page


def page() -> RequestSpec[Page[Invitation]]:
    return request_spec.page("invitations", Invitation)


def create(role: str, level: str, note: str, days: int) -> RequestSpec[CreatedInvitation]:
    body = {"role": role, "level": level, "note": note, "days": days}
    return request_spec.post("invitations", CreatedInvitation, body=body)


def revoke(invitation_id: str) -> RequestSpec[None]:
    return request_spec.delete("invitations/{}", invitation_id)


def look_up(secret: str) -> RequestSpec[Invited]:
    return RequestSpec("POST", "invitations/lookup", Invited, body={"secret": secret}, idempotent=True)


def accept(
    secret: str, username: str | None, password: str | None, token_name: str | None
) -> RequestSpec[Accepted]:
    """Without a key: taken once by what it is, so after a lost answer it says that it is spent."""
    who = drop_none({"username": username, "password": password, "token_name": token_name})
    return RequestSpec("POST", "invitations/accept", Accepted, body={"secret": secret, **who})
