"""What an identity provider's word does here: which user it means, and which roles it gives."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from allauth.socialaccount.models import SocialAccount
from django.db import IntegrityError, transaction
from django.db.models import Q

from control_plane.accounts.audit import audit_log
from control_plane.accounts.identity.access_events import publish_access_change
from control_plane.accounts.models import Membership, Project, Role, Team, TeamMembership, User
from control_plane.accounts.teams.membership import others_can_manage, revoke_orphaned_tokens
from control_plane.config import OidcRole
from control_plane.core.infra.locks import LockClass, transaction_lock

logger = logging.getLogger(__name__)

LAPSED_AT_ONCE = 200


def user_of_identity(
    provider: str, claims: Mapping[str, Any], *, link_by_email: bool = False, now: datetime
) -> User:
    """The user whom this subject means.

    A subject that is known keeps its user, whatever its e-mail says now. A new one is a new user; where the
    installation allows it, the user who has its verified e-mail address (`_user_of_email`).
    """
    subject = str(claims["sub"])
    with transaction.atomic():
        transaction_lock(LockClass.IDENTITY, f"{provider} {subject}")  # of two first sign-ins at once
        account = SocialAccount.objects.filter(provider=provider, uid=subject).select_related("user").first()
        if account is not None:
            SocialAccount.objects.filter(pk=account.pk).update(last_login=now)
            user: User = account.user
            return user
        linked = _user_of_email(provider, claims) if link_by_email else None
        user = linked or _new_user(claims)
        made = SocialAccount.objects.create(user=user, provider=provider, uid=subject)
        SocialAccount.objects.filter(pk=made.pk).update(last_login=now)
        audit_log.record(
            "user.link" if linked else "user.create", target=("user", user.pk, user.username), project="", at=now,
            data={"provider": provider, "subject": subject},
        )  # fmt: skip
    return user


def _user_of_email(provider: str, claims: Mapping[str, Any]) -> User | None:
    """Who alone has the address that the provider has verified, and is no other subject of this provider yet.

    A mailbox is given to somebody else when its owner leaves; a subject never is.
    """
    email = claims.get("email")
    if claims.get("email_verified") is not True or not isinstance(email, str) or not email:
        return None
    held = User.objects.select_for_update().filter(email__iexact=email, is_active=True, service_of=None)
    found = list(held.order_by("pk")[:2])
    if len(found) != 1 or SocialAccount.objects.filter(user=found[0], provider=provider).exists():
        return None
    return found[0]


def _new_user(claims: Mapping[str, Any]) -> User:
    verified = claims.get("email_verified") is True
    email = str(claims.get("email") or "") if verified else ""
    wanted = str(claims.get("preferred_username") or email or claims["sub"])[:100]
    for suffix in ("", *(f"-{number}" for number in range(2, 100))):
        try:
            with transaction.atomic():
                user = User(username=f"{wanted}{suffix}", email=email)
                user.set_unusable_password()
                user.save()
                return user
        except IntegrityError:
            continue  # the name is another's
    raise RuntimeError(f"a hundred users are named {wanted!r} already")


def apply_roles(
    user: User,
    held: set[str],
    roles: tuple[OidcRole, ...],
    *,
    keep_last_admin: bool = False,
    now: datetime,
) -> bool:
    """Give the roles of the groups that the provider says, and take those that it no longer says; whether any changed.

    The provider has the last word on every team and project that the table names; others are left as they are. With
    `keep_last_admin`, where nothing was said, whoever alone can manage a place stays its admin.
    """
    places: dict[tuple[str, str], list[str]] = {}
    for rule in roles:
        wanted = places.setdefault((rule.team, rule.project), [])
        if rule.group in held:
            wanted.append(rule.role)
    with transaction.atomic():
        # Held as by every other write to members, and always in one order.
        names = {team for team, _ in places}
        teams = {
            team.name: team for team in Team.objects.select_for_update().filter(name__in=names).order_by("pk")
        }
        changed: list[Team] = []
        for (team_name, project_name), wanted in places.items():
            role = max(wanted, key=list(Role.values).index, default=None)
            if (team := teams.get(team_name)) is None:
                continue  # it may be made later
            if _set_role_at(user, team, project_name, role, keep_last_admin=keep_last_admin, now=now):
                changed.append(team)
        # Only now: who moves from a team's role to one in its project keeps the tokens for that project.
        for team in changed:
            revoke_orphaned_tokens(user, team, now=now)
        if changed:
            publish_access_change([user.pk])
    return bool(changed)


def _set_role_at(
    user: User, team: Team, project_name: str, role: str | None, *, keep_last_admin: bool, now: datetime
) -> bool:
    """In the team, or in the project where one is named. Whether it was another before."""
    if not project_name:
        target = ("team", team.pk, team.name)
        if role is None and keep_last_admin and _manages_alone(user, team, None):
            return False
        return _set_role(TeamMembership, {"user": user, "team": team}, role, target, now=now)
    project = Project.objects.filter(team=team, name=project_name).first()
    if project is None:
        return False  # it may be made later
    target = ("project", project.pk, project.name)
    if role is None and keep_last_admin and _manages_alone(user, team, project):
        return False
    return _set_role(Membership, {"user": user, "project": project}, role, target, now=now)


def _manages_alone(user: User, team: Team, project: Project | None) -> bool:
    held = project.memberships if project else team.memberships
    if not user.is_active or not held.filter(user=user, role=Role.ADMIN).exists():
        return False
    if others_can_manage(user, team, project):
        return False
    place = f"project {team.name}/{project.name}" if project else f"team {team.name}"
    logger.warning("%s has not signed in for long and stays: the last admin of the %s", user.username, place)
    return True


def _set_role(
    model: type[Membership] | type[TeamMembership],
    key: dict[str, Any],
    role: str | None,
    target: tuple[str, str, str],
    *,
    now: datetime,
) -> bool:
    row = model.objects.select_for_update().filter(**key).first()
    before = row.role if row else None
    if before == role:
        return False
    if role is None:
        model.objects.filter(**key).delete()
    else:
        model.objects.update_or_create(**key, defaults={"role": role})
    user: User = key["user"]
    audit_log.record(
        "member.role", target=target, message=f"{user.username}: {before} → {role}, by the identity provider",
        project=target[1] if target[0] == "project" else "", at=now,
        data={"user": user.pk, "before": before, "after": role},
    )  # fmt: skip
    return True


def revoke_expired_roles(provider: str, roles: tuple[OidcRole, ...], *, days: int, now: datetime) -> int:
    """Who has not signed in for so long loses the roles that the provider gave; returns how many users.

    Whoever left is never heard of again by a provider that speaks at a sign-in only, and their tokens would live on.
    The last admin of a team or a project keeps that role: somebody else has to be made one first.
    """
    if not days or not roles:
        return 0
    since = now - timedelta(days=days)
    # Both: an account that was written before its sign-ins were counted has the time of the first one for ever.
    silent = SocialAccount.objects.filter(
        Q(user__last_login=None) | Q(user__last_login__lt=since), provider=provider, last_login__lt=since
    )
    given = Q(pk__in=[])
    for rule in roles:
        if rule.project:
            given |= Q(memberships__project__team__name=rule.team, memberships__project__name=rule.project)
        else:
            given |= Q(team_memberships__team__name=rule.team)
    taken = 0
    for user in User.objects.filter(given, pk__in=silent.values("user")).distinct().order_by("pk"):
        taken += apply_roles(user, set(), roles, keep_last_admin=True, now=now)
        if taken == LAPSED_AT_ONCE:
            break
    return taken
