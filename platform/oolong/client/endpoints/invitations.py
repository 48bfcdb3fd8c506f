"""Single-use ways into a project or a team."""

from __future__ import annotations

from oolong.client.endpoints import call
from oolong.client.endpoints.call import Call, given
from oolong.client.models import Accepted, CreatedInvitation, Invitation, Invited, Page


def page() -> Call[Page[Invitation]]:
    return call.page("invitations", Invitation)


def create(role: str, level: str, note: str, days: int) -> Call[CreatedInvitation]:
    body = {"role": role, "level": level, "note": note, "days": days}
    return call.post("invitations", CreatedInvitation, body=body)


def revoke(invitation_id: str) -> Call[None]:
    return call.delete("invitations/{}", invitation_id)


def look_up(secret: str) -> Call[Invited]:
    return Call("POST", "invitations/lookup", Invited, body={"secret": secret}, harmless=True)


def accept(secret: str, username: str | None, password: str | None, token_name: str | None) -> Call[Accepted]:
    """Without a key: taken once by what it is, so after a lost answer it says that it is spent."""
    who = given({"username": username, "password": password, "token_name": token_name})
    return Call("POST", "invitations/accept", Accepted, body={"secret": secret, **who})
