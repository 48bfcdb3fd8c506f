"""Every write to who is in a project or in a team, and as what.

All of them hold the team's row, so that two admins who demote each other at once do not both succeed.
"""

from __future__ import annotations

from datetime import datetime

from django.db import transaction
from django.db.models import Q

from control_plane.accounts import selectors
from control_plane.accounts.audit import audit_log
from control_plane.accounts.identity.access_events import publish_access_change
from control_plane.accounts.identity.caller import Caller
from control_plane.accounts.models import (
    ApiToken,
    Level,
    Membership,
    Project,
    Role,
    Team,
    TeamMembership,
    User,
)
from control_plane.accounts.tokens.scopes import RANK, ROLE_SCOPES
from control_plane.core.api.errors import FieldError, Problem, conflict, not_found, unprocessable

MANAGE: dict[Level, str] = {"project": "members:admin", "team": "team:admin"}


def require_can_manage(caller: Caller, level: Level) -> None:
    if MANAGE[level] not in caller.scopes:
        raise Problem(
            403, "missing_scope", f"managing the members of a {level} needs the scope {MANAGE[level]}"
        )


def require_role_at_most(caller: Caller, role: str) -> None:
    """Whoever gives a role hands on power of their own, never more: a token that may only manage members would
    otherwise make an admin of anybody. 403 `scope_exceeds_caller`."""
    if more := sorted(ROLE_SCOPES[role] - caller.scopes):
        shown = ", ".join(more[:5]) + (" and more" if len(more) > 5 else "")
        raise Problem(
            403, "scope_exceeds_caller",
            f"the role {role} may {shown}, and you may not; give a lower one, or ask with a token that has it all",
        )  # fmt: skip


def add_member(caller: Caller, level: Level, *, username: str, role: str, now: datetime) -> User:
    """Give a colleague a role: somebody of this team, or, for who administers the installation, anybody.

    422 for strangers: they are invited, and decide themselves. 409 for who is in already.
    """
    require_can_manage(caller, level)
    require_role_at_most(caller, role)
    with transaction.atomic():
        _hold(caller)
        user = User.objects.filter(username=username, is_active=True, service_of=None).first()
        if user is None or not ("installation:admin" in caller.scopes or _is_colleague(user, caller)):
            team = caller.project.team.name
            message = f"nobody in the team {team!r} is called {username!r}; send an invitation instead"
            raise unprocessable("unknown_user", message, [FieldError("/username", "unknown_user", message)])
        if _role(caller, level, user) is not None:
            raise conflict("already_member", f"{username!r} is in this {level} already; change the role")
        _write(caller, level, user, role)
        _note(caller, level, f"{username} joined as {role}", user, None, role, now=now)
    return user


def grant(user: User, project: Project, level: Level, role: str) -> str:
    """Give a role by invitation: it raises what there is and never lowers it. Returns the role now held."""
    Team.objects.select_for_update().get(pk=project.team_id)
    if level == "team":
        team_row = TeamMembership.objects.filter(user=user, team=project.team).first()
        highest = max(role, team_row.role if team_row else role, key=RANK.__getitem__)
        TeamMembership.objects.update_or_create(user=user, team=project.team, defaults={"role": highest})
    else:
        row = Membership.objects.filter(user=user, project=project).first()
        highest = max(role, row.role if row else role, key=RANK.__getitem__)
        Membership.objects.update_or_create(user=user, project=project, defaults={"role": highest})
    return highest


def set_role(caller: Caller, level: Level, user_id: str, role: str, *, now: datetime) -> User:
    require_can_manage(caller, level)
    with transaction.atomic():
        _hold(caller)
        user, before = _member(caller, level, user_id)
        if before != role:
            if RANK[role] > RANK[before]:
                require_role_at_most(caller, role)
            _write(caller, level, user, role)
            _keep_an_admin(caller, level, before)
            _note(caller, level, f"{user.username}: {before} → {role}", user, before, role, now=now)
            publish_access_change([user.pk])
    return user


def remove_member(caller: Caller, level: Level, user_id: str, *, now: datetime) -> None:
    """Somebody leaves. Without any role left in a project, their tokens for it end."""
    if user_id != caller.user.pk:
        require_can_manage(caller, level)
    with transaction.atomic():
        _hold(caller)
        user, before = _member(caller, level, user_id)
        if level == "team":
            TeamMembership.objects.filter(user=user, team=caller.project.team).delete()
        else:
            Membership.objects.filter(user=user, project=caller.project).delete()
        _keep_an_admin(caller, level, before)
        revoke_orphaned_tokens(user, caller.project.team, now=now)
        _note(caller, level, f"{user.username} left", user, before, None, now=now)
        publish_access_change([user.pk])


def revoke_orphaned_tokens(user: User, team: Team, *, now: datetime) -> None:
    """The tokens for those projects of the team in which the user has no role any more."""
    left = team.projects.exclude(pk__in=selectors.projects_of(user).values("pk"))
    ApiToken.objects.filter(user=user, project__in=left, revoked_at=None).update(revoked_at=now)


def _hold(caller: Caller) -> None:
    Team.objects.select_for_update().get(pk=caller.project.team_id)


def _is_colleague(user: User, caller: Caller) -> bool:
    return selectors.projects_of(user).filter(team=caller.project.team).exists()


def _role(caller: Caller, level: Level, user: User) -> str | None:
    if level == "team":
        row = TeamMembership.objects.filter(user=user, team=caller.project.team).first()
        return row.role if row else None
    held = Membership.objects.filter(user=user, project=caller.project).first()
    return held.role if held else None


def _member(caller: Caller, level: Level, user_id: str) -> tuple[User, str]:
    user = User.objects.filter(pk=user_id, service_of=None).first()
    role = _role(caller, level, user) if user else None
    if user is None or role is None:
        raise not_found("member", user_id)
    return user, role


def _write(caller: Caller, level: Level, user: User, role: str) -> None:
    if level == "team":
        TeamMembership.objects.update_or_create(user=user, team=caller.project.team, defaults={"role": role})
    else:
        Membership.objects.update_or_create(user=user, project=caller.project, defaults={"role": role})


def _keep_an_admin(caller: Caller, level: Level, before: str) -> None:
    """Refuse, after the change, what leaves a project or a team without a person who can manage it."""
    if before != Role.ADMIN:
        return
    project = caller.project if level == "project" else None
    if not others_can_manage(None, caller.project.team, project):
        raise conflict("last_admin", f"this is the last admin of the {level}; make somebody else one first")


def others_can_manage(user: User | None, team: Team, project: Project | None) -> bool:
    """Whether a person besides `user` is an admin: of the team, or of the project where one is meant."""
    people = Q(role=Role.ADMIN, user__is_active=True, user__service_of=None)
    if user is not None:
        people &= ~Q(user=user)
    if TeamMembership.objects.filter(people, team=team).exists():
        return True
    return project is not None and Membership.objects.filter(people, project=project).exists()


def _note(
    caller: Caller,
    level: Level,
    message: str,
    user: User,
    before: str | None,
    after: str | None,
    *,
    now: datetime,
) -> None:
    place = caller.project.team if level == "team" else caller.project
    audit_log.record(
        f"{level}.member", target=(level, place.pk, place.name), message=message, at=now,
        data={"user": user.pk, "before": before, "after": after},
    )  # fmt: skip
