"""Every write to API tokens. A token belongs to a user in one project and is shown once."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import transaction

from control_plane.accounts import selectors
from control_plane.accounts.audit import audit_log
from control_plane.accounts.identity.access_events import publish_access_change
from control_plane.accounts.identity.caller import Caller
from control_plane.accounts.identity.services import (
    create_token,
    effective_expiry,
    min_expiry,
    require_scope_subset,
)
from control_plane.accounts.models import ApiToken, User
from control_plane.accounts.tokens.scopes import expand, known
from control_plane.accounts.tokens.token_hashing import TOKEN_PREFIX, digest, new_secret
from control_plane.core.api.errors import FieldError, Problem, not_found, or_not_found, unprocessable


def caller_in_project(caller: Caller, project_id: str) -> Caller:
    """The caller in another of their projects, with the same token; without an id, the caller as they are.

    A token is of one project. Only one with `team:admin`, which reaches all of the team, makes, lists, rotates and
    revokes tokens of the team's other projects. 404 for a project that is not the caller's.
    """
    if project_id in ("", caller.project.pk):
        return caller
    if caller.token is not None and "team:admin" not in caller.scopes:
        raise Problem(
            403, "missing_scope",
            f"this token is of the project {caller.project.name}; for tokens of another project of the team it needs "
            "the scope team:admin, or make them in the dashboard, in that project's settings",
        )  # fmt: skip
    project = selectors.projects(caller).filter(pk=project_id).first()
    there = selectors.caller_in(caller.user, project, caller.token) if project is not None else None
    if there is None:
        raise not_found("project", project_id)
    return there


def issue_token(
    caller: Caller,
    owner: User,
    *,
    name: str,
    scopes: list[str],
    expires_at: datetime | None = None,
    now: datetime,
) -> tuple[ApiToken, str]:
    """A token for oneself, or for a service account of the project that one manages. It ends with the caller's token
    at the latest."""
    require_scope_subset(caller, scopes)
    if expires_at is not None and expires_at <= now:
        message = f"expires_at={expires_at.isoformat()} is over; leave it out for a token without an end"
        raise unprocessable("invalid", message, [FieldError("/expires_at", "in_the_past", message)])
    ends = min_expiry(expires_at, effective_expiry(caller))
    return create_token(user=owner, project=caller.project, name=name, scopes=scopes, expires_at=ends)


def rotate_token(caller: Caller, identity: str, *, overlap: timedelta, now: datetime) -> tuple[ApiToken, str]:
    """A new secret for a token; the one before it works for `overlap`, and any older one ends.

    One's own tokens, or those of the project's service accounts for who manages them. Who asks gets the secret, so
    they must have the token's power already.
    """
    with transaction.atomic():
        row = or_not_found(
            selectors.rotatable_tokens(caller).select_for_update(of=("self",)).filter(pk=identity).first(),
            "token",
            identity,
        )
        if caller.token is not None and (more := known(row.scopes) - expand(caller.token.scopes)):
            raise Problem(
                403, "scope_exceeds_caller", f"that token may {', '.join(sorted(more))}; yours may not"
            )
        if row.expires_at != min_expiry(row.expires_at, effective_expiry(caller)):
            raise Problem(
                403, "scope_exceeds_caller", "that token ends later than yours; rotate it with one that lasts"
            )
        text = new_secret(TOKEN_PREFIX)
        row.previous_sha256, row.previous_until = row.sha256, now + overlap
        row.sha256, row.prefix = digest(text), text[:10]
        row.save(update_fields=["previous_sha256", "previous_until", "sha256", "prefix"])
        _record("rotate", row, now=now)
        publish_access_change([row.user_id])
    return row, text


def revoke_token(caller: Caller, identity: str, *, now: datetime) -> None:
    """One's own, or anybody's in the project for who has tokens:admin."""
    with transaction.atomic():
        row = selectors.revocable_tokens(caller).filter(pk=identity).first()
        if row is None or not ApiToken.objects.filter(pk=identity, revoked_at=None).update(revoked_at=now):
            raise not_found("token", identity)
        _record("revoke", row, now=now)
        publish_access_change([row.user_id])


def _record(what: str, token: ApiToken, *, now: datetime) -> None:
    target = ("token", token.pk, token.name)
    audit_log.record(
        f"token.{what}", target=target, project=token.project_id, at=now, data={"user": token.user.username}
    )
