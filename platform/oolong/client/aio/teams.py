"""Teams, members, invitations and service accounts, as the client offers them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from oolong.client import models
from oolong.client.aio.connection import AsyncResource
from oolong.client.request_spec import RequestSpec, delete, drop_none, expiry, get, page, patch, post


class AsyncTeams(AsyncResource):
    """Your teams; what names no team is about that of the token's project."""

    def list(self) -> AsyncIterator[models.Team]:
        return self._pages(page("teams", models.Team))

    async def create(self, name: str) -> models.CreatedTeam:
        """Only for who administers the installation."""
        return await self._send(post("teams", models.CreatedTeam, body={"name": name}))

    async def get(self) -> models.Team:
        return await self._send(get("team", models.Team))

    async def rename(self, name: str) -> models.Team:
        return await self._send(patch("team", models.Team, body={"name": name}))

    def members(self) -> AsyncIterator[models.Member]:
        """Those with a role in the whole team."""
        return self._pages(get("team/members", models.Page[models.Member]))

    async def add_member(self, username: str, role: str) -> models.Member:
        body = {"username": username, "role": role}
        return await self._send(post("team/members", models.Member, body=body))

    async def set_role(self, user_id: str, role: str) -> models.Member:
        return await self._send(patch("team/members/{}", models.Member, user_id, body={"role": role}))

    async def remove_member(self, user_id: str) -> None:
        await self._send(delete("team/members/{}", user_id))


class AsyncMembers(AsyncResource):
    """Who is in the project."""

    def list(self) -> AsyncIterator[models.Member]:
        return self._pages(get("members", models.Page[models.Member]))

    async def add(self, username: str, role: str) -> models.Member:
        """Somebody of the team; anybody else is invited."""
        return await self._send(post("members", models.Member, body={"username": username, "role": role}))

    async def set_role(self, user_id: str, role: str) -> models.Member:
        return await self._send(patch("members/{}", models.Member, user_id, body={"role": role}))

    async def remove(self, user_id: str) -> None:
        """Also oneself. Their tokens for the project end."""
        await self._send(delete("members/{}", user_id))


class AsyncInvitations(AsyncResource):
    def list(self) -> AsyncIterator[models.Invitation]:
        return self._pages(page("invitations", models.Invitation))

    async def create(
        self, role: str, *, level: str = "project", note: str = "", days: int = 7
    ) -> models.CreatedInvitation:
        """With a link that is shown this once. Level `team`: the role in all of its projects."""
        body = {"role": role, "level": level, "note": note, "days": days}
        return await self._send(post("invitations", models.CreatedInvitation, body=body))

    async def revoke(self, invitation_id: str) -> None:
        await self._send(delete("invitations/{}", invitation_id))

    async def look_up(self, secret: str) -> models.Invited:
        """What the invitation is into, of the part of its link behind the #."""
        body = {"secret": secret}
        return await self._send(
            RequestSpec("POST", "invitations/lookup", models.Invited, body=body, idempotent=True)
        )

    async def accept(self, secret: str, *, token_name: str | None = None) -> models.Accepted:
        """As the user of this client's token; a token for the new project has at most its scopes."""
        body = {"secret": secret, **drop_none({"token_name": token_name})}
        return await self._send(post("invitations/accept", models.Accepted, body=body, keyed=False))


class AsyncServiceAccounts(AsyncResource):
    def list(self) -> AsyncIterator[models.ServiceAccount]:
        return self._pages(page("service-accounts", models.ServiceAccount))

    async def create(self, name: str, role: str) -> models.ServiceAccount:
        body = {"name": name, "role": role}
        return await self._send(post("service-accounts", models.ServiceAccount, body=body))

    async def set_role(self, service_account_id: str, role: str) -> models.ServiceAccount:
        path = "service-accounts/{}"
        return await self._send(patch(path, models.ServiceAccount, service_account_id, body={"role": role}))

    async def remove(self, service_account_id: str) -> None:
        """Its tokens end at once; what it made stays."""
        await self._send(delete("service-accounts/{}", service_account_id))

    async def create_token(
        self,
        service_account_id: str,
        name: str,
        *,
        scopes: Sequence[str],
        expires_at: str | None = None,
        never_expires: bool = False,
    ) -> models.CreatedToken:
        """It ends after 90 days unless `expires_at` or `never_expires` says otherwise."""
        body = {"name": name, "scopes": list(scopes), **expiry(expires_at, never_expires)}
        request = post("service-accounts/{}/tokens", models.CreatedToken, service_account_id, body=body)
        return await self._send(request)
