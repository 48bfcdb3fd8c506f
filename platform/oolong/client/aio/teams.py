"""Teams, members, invitations and service accounts, as the client offers them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from oolong.client import endpoints, models
from oolong.client.aio.connection import AsyncConnection


class AsyncTeams:
    """Your teams; what names no team is about that of the token's project."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    def list(self) -> AsyncIterator[models.Team]:
        return self._connection.pages(endpoints.teams.page())

    async def create(self, name: str) -> models.CreatedTeam:
        """Only for who administers the installation."""
        return await self._connection.send(endpoints.teams.create(name))

    async def get(self) -> models.Team:
        return await self._connection.send(endpoints.teams.get())

    async def rename(self, name: str) -> models.Team:
        return await self._connection.send(endpoints.teams.rename(name))

    def members(self) -> AsyncIterator[models.Member]:
        """Those with a role in the whole team."""
        return self._connection.pages(endpoints.teams.members())

    async def add_member(self, username: str, role: str) -> models.Member:
        return await self._connection.send(endpoints.teams.add_member(username, role))

    async def set_role(self, user_id: str, role: str) -> models.Member:
        return await self._connection.send(endpoints.teams.set_role(user_id, role))

    async def remove_member(self, user_id: str) -> None:
        await self._connection.send(endpoints.teams.remove_member(user_id))


class AsyncMembers:
    """Who is in the project."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    def list(self) -> AsyncIterator[models.Member]:
        return self._connection.pages(endpoints.members.page())

    async def add(self, username: str, role: str) -> models.Member:
        """Somebody of the team; anybody else is invited."""
        return await self._connection.send(endpoints.members.add(username, role))

    async def set_role(self, user_id: str, role: str) -> models.Member:
        return await self._connection.send(endpoints.members.set_role(user_id, role))

    async def remove(self, user_id: str) -> None:
        """Also oneself. Their tokens for the project end."""
        await self._connection.send(endpoints.members.remove(user_id))


class AsyncInvitations:
    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    def list(self) -> AsyncIterator[models.Invitation]:
        return self._connection.pages(endpoints.invitations.page())

    async def create(
        self, role: str, *, level: str = "project", note: str = "", days: int = 7
    ) -> models.CreatedInvitation:
        """With a link that is shown this once. Level `team`: the role in all of its projects."""
        return await self._connection.send(endpoints.invitations.create(role, level, note, days))

    async def revoke(self, invitation_id: str) -> None:
        await self._connection.send(endpoints.invitations.revoke(invitation_id))

    async def look_up(self, secret: str) -> models.Invited:
        """What the invitation is into, of the part of its link behind the #."""
        return await self._connection.send(endpoints.invitations.look_up(secret))

    async def accept(self, secret: str, *, token_name: str | None = None) -> models.Accepted:
        """As the user of this client's token; a token for the new project has at most its scopes."""
        return await self._connection.send(endpoints.invitations.accept(secret, None, None, token_name))


class AsyncServiceAccounts:
    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    def list(self) -> AsyncIterator[models.ServiceAccount]:
        return self._connection.pages(endpoints.service_accounts.page())

    async def create(self, name: str, role: str) -> models.ServiceAccount:
        return await self._connection.send(endpoints.service_accounts.create(name, role))

    async def set_role(self, service_account_id: str, role: str) -> models.ServiceAccount:
        return await self._connection.send(endpoints.service_accounts.set_role(service_account_id, role))

    async def remove(self, service_account_id: str) -> None:
        """Its tokens end at once; what it made stays."""
        await self._connection.send(endpoints.service_accounts.remove(service_account_id))

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
        request = endpoints.service_accounts.create_token(
            service_account_id, name, scopes, expires_at, never_expires
        )
        return await self._connection.send(request)
