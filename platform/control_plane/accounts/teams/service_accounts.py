"""Every write to service accounts: callers without a password that belong to a project, for pipelines."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from control_plane.accounts import selectors
from control_plane.accounts.audit import audit_log
from control_plane.accounts.identity.access_events import publish_access_change
from control_plane.accounts.identity.caller import Caller
from control_plane.accounts.models import ApiToken, Membership, Project, User
from control_plane.accounts.teams.membership import require_role_at_most
from control_plane.accounts.tokens.scopes import RANK
from control_plane.core.api.errors import conflict


def create(caller: Caller, *, name: str, role: str, now: datetime) -> User:
    """409 when the project has one of that name. A removed one's name may be used again; its tokens stay dead."""
    require_role_at_most(caller, role)
    with transaction.atomic():
        Project.objects.select_for_update().get(pk=caller.project.pk)
        user, created = User.objects.get_or_create(
            username=f"{name}@{caller.project.pk}", defaults={"service_of": caller.project}
        )
        if not created and user.is_active:
            raise conflict("name_taken", f"the project has a service account {name!r} already")
        user.is_active = True
        user.set_unusable_password()
        user.save()
        Membership.objects.update_or_create(user=user, project=caller.project, defaults={"role": role})
        _record("create", user, now=now, role=role)
    return user


def set_role(caller: Caller, identity: str, role: str, *, now: datetime) -> User:
    with transaction.atomic():
        user = selectors.service_account(caller, identity)
        held = Membership.objects.select_for_update().filter(user=user, project=caller.project)
        before = held.values_list("role", flat=True).first()
        if before is None or RANK[role] > RANK[before]:
            require_role_at_most(caller, role)
        held.update(role=role)
        _record("role", user, now=now, role=role)
        publish_access_change([user.pk])
    return user


def remove(caller: Caller, identity: str, *, now: datetime) -> None:
    """Its tokens end at once. The row stays: runs name it as their maker."""
    with transaction.atomic():
        user = selectors.service_account(caller, identity)
        Membership.objects.filter(user=user).delete()
        User.objects.filter(pk=user.pk).update(is_active=False)
        ApiToken.objects.filter(user=user, revoked_at=None).update(revoked_at=now)
        _record("remove", user, now=now, role=None)
        publish_access_change([user.pk])


def _record(what: str, user: User, *, now: datetime, role: str | None) -> None:
    target = ("service_account", user.pk, user.display_name)
    audit_log.record(f"service_account.{what}", target=target, at=now, data={"role": role})
