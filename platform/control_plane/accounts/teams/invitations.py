"""Every write to invitations: single-use links by which people join a project or a whole team."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.db import IntegrityError, transaction

from control_plane.accounts import selectors
from control_plane.accounts.audit import audit_log
from control_plane.accounts.identity.access_events import publish_access_change
from control_plane.accounts.identity.caller import Caller
from control_plane.accounts.models import Invitation, Level, User
from control_plane.accounts.teams.membership import MANAGE, grant, require_can_manage, require_role_at_most
from control_plane.accounts.tokens.token_hashing import INVITATION_PREFIX, digest, new_secret
from control_plane.core.api.errors import Problem, conflict, not_found
from control_plane.core.security.request_context import note_caller


def invite(
    caller: Caller, level: Level, *, role: str, note: str, life: timedelta, now: datetime
) -> tuple[Invitation, str]:
    """A new invitation and its link, which is shown this once. The secret is behind the #: no server logs it."""
    require_can_manage(caller, level)
    require_role_at_most(caller, role)
    secret = new_secret(INVITATION_PREFIX)
    with transaction.atomic():
        row = Invitation.objects.create(
            project=caller.project, whole_team=level == "team", role=role, note=note, sha256=digest(secret),
            created_by=caller.user, created_at=now, expires_at=now + life,
        )  # fmt: skip
        audit_log.record(
            "invitation.create",
            target=("invitation", row.pk, note),
            at=now,
            data={"level": level, "role": role},
        )
    return row, f"{settings.ENVIRONMENT.public_url}/invite#{secret}"


def revoke(caller: Caller, identity: str, *, now: datetime) -> None:
    with transaction.atomic():
        open_ones = selectors.invitations(caller).filter(accepted_at=None, revoked_at=None)
        if not open_ones.filter(pk=identity).update(revoked_at=now):
            raise not_found("open invitation", identity)
        audit_log.record("invitation.revoke", target=("invitation", identity), at=now)


def find(secret: str, *, now: datetime) -> Invitation:
    """The open invitation of a secret; 410 for one that is unknown, used, revoked, too old or worth nothing now."""
    row = (
        Invitation.objects.filter(
            sha256=digest(secret), accepted_at=None, revoked_at=None, expires_at__gt=now
        )
        .select_related("project__team", "created_by")
        .first()
    )
    # It is worth what its maker may do today.
    maker = selectors.caller_in(row.created_by, row.project) if row else None
    if row is None or maker is None or MANAGE[row.level] not in maker.scopes:
        raise _spent()
    return row


def accept(secret: str, user: User, *, now: datetime) -> Invitation:
    """This user joins. Of two who come at once, one does."""
    if user.service_of_id is not None:
        raise Problem(403, "not_a_person", "a service account belongs to its project and joins no other")
    with transaction.atomic():
        row = find(secret, now=now)
        taken = Invitation.objects.filter(pk=row.pk, accepted_at=None, revoked_at=None)
        if not taken.update(accepted_at=now, accepted_by=user):
            raise _spent()
        role = grant(user, row.project, row.level, row.role)
        audit_log.record(
            "project.member", target=("project", row.project_id, row.project.name), at=now, project=row.project_id,
            message=f"{user.username} joined as {role} by invitation",
            data={"user": user.pk, "after": role, "level": row.level, "invitation": row.pk},
        )  # fmt: skip
        publish_access_change([user.pk])
    return row


def accept_as_new(secret: str, *, username: str, password: str, now: datetime) -> tuple[Invitation, User]:
    """A new user joins. Nobody is made when the invitation is spent."""
    with transaction.atomic():
        find(secret, now=now)
        user = User(username=username)
        user.set_password(password)
        try:
            with transaction.atomic():
                user.save(force_insert=True)
        except IntegrityError as error:
            message = (
                f"the user name {username!r} is taken; choose another, or log in and accept as that user"
            )
            raise conflict("name_taken", message) from error
        note_caller(kind="user", identity=user.pk, name=username)
        return accept(secret, user, now=now), user


def _spent() -> Problem:
    return Problem(
        410, "invitation_invalid", "this invitation is unknown, used, revoked or too old; ask for another"
    )
