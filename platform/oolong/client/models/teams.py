"""Teams, who is in them, and how one gets in."""

from __future__ import annotations

from datetime import datetime

from oolong.client.models.answer import Answer, Named


class Team(Answer):
    id: str
    name: str


class CreatedTeam(Team):
    project: Named  # its first one


class Member(Answer):
    id: str  # of the user
    username: str
    role: str  # the higher of the two
    project_role: str | None = None
    team_role: str | None = None


class Invitation(Answer):
    id: str
    level: str
    role: str
    note: str
    status: str
    created_by: str
    created_at: datetime
    expires_at: datetime
    accepted_by: str | None = None


class CreatedInvitation(Invitation):
    link: str  # shown once


class Invited(Answer):
    """What an invitation is into."""

    team: Named
    project: Named
    level: str
    role: str
    invited_by: str
    expires_at: datetime


class Accepted(Invited):
    username: str
    token: str | None = None  # shown once


class ServiceAccount(Answer):
    id: str
    name: str
    role: str
    tokens: int
    created_at: datetime
