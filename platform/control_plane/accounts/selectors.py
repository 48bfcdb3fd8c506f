"""Every read of accounts."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from control_plane.accounts.caller import Caller
from control_plane.accounts.models import ApiToken, AuditEntry, Membership, Project, ProjectSecret, User
from control_plane.accounts.scopes import ROLE_SCOPES, expand
from control_plane.accounts.secrets import digest


def caller_of_token(text: str, *, now: datetime) -> Caller | None:
    """Who a bearer token speaks for; None when it is unknown, expired, revoked, or its user is gone."""
    token = (
        ApiToken.objects.filter(sha256=digest(text), revoked_at=None)
        .select_related("user", "project__team")
        .first()
    )
    if (
        token is None
        or (token.expires_at is not None and token.expires_at <= now)
        or not token.user.is_active
    ):
        return None
    membership = Membership.objects.filter(user=token.user, project=token.project).first()
    if membership is None:
        return None
    scopes = expand(token.scopes) & ROLE_SCOPES[membership.role]
    return Caller(token.user, token.project, membership.role, scopes, token)


def caller_of_user(user: User) -> Caller | None:
    """Who a browser session speaks for: the user in the first of their projects."""
    membership = Membership.objects.filter(user=user).select_related("project__team").order_by("pk").first()
    if membership is None:
        return None
    return Caller(user, membership.project, membership.role, ROLE_SCOPES[membership.role])


def tokens(caller: Caller) -> QuerySet[ApiToken]:
    return ApiToken.objects.filter(user=caller.user, project=caller.project, revoked_at=None)


def project(caller: Caller) -> Project:
    return Project.objects.select_related("team").get(pk=caller.project.pk)


def project_events(caller: Caller) -> QuerySet[AuditEntry]:
    """Of the audit log, what changed the project itself; every reader of the project may see it."""
    return AuditEntry.objects.filter(project=caller.project.pk, action__startswith="project.")


def audit_entries(caller: Caller) -> QuerySet[AuditEntry]:
    return AuditEntry.objects.filter(project=caller.project.pk)


def secrets(caller: Caller) -> QuerySet[ProjectSecret]:
    return ProjectSecret.objects.filter(project=caller.project)


def me(caller: Caller) -> dict[str, Any]:
    return {
        "user": {"id": caller.user.pk, "username": caller.user.username},
        "team": {"id": caller.project.team_id, "name": caller.project.team.name},
        "project": {"id": caller.project.pk, "name": caller.project.name},
        "role": caller.role,
        "scopes": sorted(caller.scopes),
    }
