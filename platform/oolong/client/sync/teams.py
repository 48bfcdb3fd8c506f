"""Teams, members, invitations and service accounts, as the client offers them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from oolong.client import calls, models
from oolong.client.sync.connection import Connection


class Teams:
    """Your teams; what names no team is about that of the token's project."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(self) -> Iterator[models.Team]:
        return self._connection.pages(calls.teams.page())

    def create(self, name: str) -> models.CreatedTeam:
        """Only for who administers the installation."""
        return self._connection.send(calls.teams.create(name))

    def get(self) -> models.Team:
        return self._connection.send(calls.teams.get())

    def rename(self, name: str) -> models.Team:
        return self._connection.send(calls.teams.rename(name))

    def members(self) -> Iterator[models.Member]:
        """Those with a role in the whole team."""
        return self._connection.pages(calls.teams.members())

    def add_member(self, username: str, role: str) -> models.Member:
        return self._connection.send(calls.teams.add_member(username, role))

    def set_role(self, user_id: str, role: str) -> models.Member:
        return self._connection.send(calls.teams.set_role(user_id, role))

    def remove_member(self, user_id: str) -> None:
        self._connection.send(calls.teams.remove_member(user_id))


class Members:
    """Who is in the project."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(self) -> Iterator[models.Member]:
        return self._connection.pages(calls.members.page())

    def add(self, username: str, role: str) -> models.Member:
        """Somebody of the team; anybody else is invited."""
        return self._connection.send(calls.members.add(username, role))

    def set_role(self, user_id: str, role: str) -> models.Member:
        return self._connection.send(calls.members.set_role(user_id, role))

    def remove(self, user_id: str) -> None:
        """Also oneself. Their tokens for the project end."""
        self._connection.send(calls.members.remove(user_id))


class Invitations:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(self) -> Iterator[models.Invitation]:
        return self._connection.pages(calls.invitations.page())

    def create(
        self, role: str, *, level: str = "project", note: str = "", days: int = 7
    ) -> models.CreatedInvitation:
        """With a link that is shown this once. Level `team`: the role in all of its projects."""
        return self._connection.send(calls.invitations.create(role, level, note, days))

    def revoke(self, invitation_id: str) -> None:
        self._connection.send(calls.invitations.revoke(invitation_id))

    def look_up(self, secret: str) -> models.Invited:
        """What the invitation is into, of the part of its link behind the #."""
        return self._connection.send(calls.invitations.look_up(secret))

    def accept(self, secret: str, *, token_name: str | None = None) -> models.Accepted:
        """As the user of this client's token; a token for the new project has at most its scopes."""
        return self._connection.send(calls.invitations.accept(secret, None, None, token_name))


class ServiceAccounts:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(self) -> Iterator[models.ServiceAccount]:
        return self._connection.pages(calls.service_accounts.page())

    def create(self, name: str, role: str) -> models.ServiceAccount:
        return self._connection.send(calls.service_accounts.create(name, role))

    def set_role(self, service_account_id: str, role: str) -> models.ServiceAccount:
        return self._connection.send(calls.service_accounts.set_role(service_account_id, role))

    def remove(self, service_account_id: str) -> None:
        """Its tokens end at once; what it made stays."""
        self._connection.send(calls.service_accounts.remove(service_account_id))

    def create_token(
        self,
        service_account_id: str,
        name: str,
        *,
        scopes: Sequence[str],
        expires_at: str | None = None,
        never_expires: bool = False,
    ) -> models.CreatedToken:
        """It ends after 90 days unless `expires_at` or `never_expires` says otherwise."""
        call = calls.service_accounts.create_token(
            service_account_id, name, scopes, expires_at, never_expires
        )
        return self._connection.send(call)
