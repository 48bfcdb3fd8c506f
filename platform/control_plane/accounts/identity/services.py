"""Every write to accounts."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Literal, get_args

from django.contrib.auth import authenticate, login, logout
from django.db import IntegrityError, transaction
from django.db.models import Q
from django.http import HttpRequest

from control_plane.accounts import selectors
from control_plane.accounts.audit import audit_log
from control_plane.accounts.identity.access_events import publish_access_change
from control_plane.accounts.identity.caller import Caller
from control_plane.accounts.models import (
    ApiToken,
    LoginAddress,
    LoginFailure,
    LoginLink,
    Membership,
    Project,
    Role,
    Team,
    TeamMembership,
    User,
)
from control_plane.accounts.tokens.scopes import SCOPES, expand, known, unknown
from control_plane.accounts.tokens.token_hashing import TOKEN_PREFIX, digest, new_secret
from control_plane.core.api.errors import FieldError, Problem, conflict, unprocessable
from control_plane.core.infra.clock import rfc3339
from control_plane.core.security.forwarded import network_of
from control_plane.core.security.request_context import note_caller

LoginMethod = Literal["password", "login link", "identity provider"]
LOGIN_METHODS = list(get_args(LoginMethod))
SESSION_LOGIN = "login"  # key in a session: how and when it began
LOGIN_LINK_LIFE = timedelta(minutes=15)
TOKEN_LIFE = timedelta(days=90)  # of a token whose maker names no end
THROTTLE_WINDOW = timedelta(minutes=5)
THROTTLE_FAILURES = 10  # of one user name from one address
THROTTLE_FAILURES_OF_AN_ADDRESS = 50  # over all user names
# When so many failed for one name from anywhere, an address from which this user never signed in gets fewer.
THROTTLE_FAILURES_OF_A_NAME = 50
THROTTLE_FAILURES_WHILE_GUESSED = 2
ADDRESSES_REMEMBERED = timedelta(days=90)
LAST_USED_STEP = timedelta(minutes=1)  # one write a minute per token is enough to see that it lives


def init_embedded(*, username: str = "admin", team: str = "team", project: str = "default") -> Project:
    """The one user, team and project of a single machine. Safe to repeat; no password is ever set.

    The user administers the installation unless somebody else does.
    """
    with transaction.atomic():
        user, created = User.objects.get_or_create(username=username)
        if created:
            user.set_unusable_password()
            user.save(update_fields=["password"])
        team_row, _ = Team.objects.get_or_create(name=team)
        project_row, _ = Project.objects.get_or_create(team=team_row, name=project)
        Membership.objects.get_or_create(user=user, project=project_row, defaults={"role": Role.ADMIN})
        if not team_row.memberships.filter(role=Role.ADMIN).exists():
            TeamMembership.objects.update_or_create(user=user, team=team_row, defaults={"role": Role.ADMIN})
        if not User.objects.filter(is_staff=True).exists():
            User.objects.filter(pk=user.pk).update(is_staff=True)
    return project_row


def set_installation_admin(user: User, administers: bool) -> None:
    """Who makes teams. The last one keeps it: 409 `last_admin`."""
    with transaction.atomic():
        held = list(User.objects.select_for_update().filter(is_staff=True, is_active=True))
        if not administers and held == [user]:
            raise conflict(
                "last_admin", f"{user.username} is the last admin of the installation; name another first"
            )
        User.objects.filter(pk=user.pk).update(is_staff=administers)
        audit_log.record(
            "installation.admin", target=("user", user.pk, user.username), data={"after": administers}
        )
        publish_access_change([user.pk])


def create_token(
    *, user: User, project: Project, name: str, scopes: list[str], expires_at: datetime | None = None
) -> tuple[ApiToken, str]:
    """The new token's row and its text, which is shown this once."""
    if bad := unknown(scopes):
        raise unprocessable(
            "invalid",
            f"unknown scopes {', '.join(bad)}; known: {', '.join(SCOPES)}, or *",
            [FieldError("/scopes", "unknown_scope", f"unknown: {', '.join(bad)}")],
        )
    text = new_secret(TOKEN_PREFIX)
    with transaction.atomic():
        row = ApiToken.objects.create(
            user=user, project=project, name=name, prefix=text[:10], sha256=digest(text), scopes=scopes,
            expires_at=expires_at,
        )  # fmt: skip
        audit_log.record(
            "token.create",
            target=("token", row.pk, name),
            project=project.pk,
            data={"user": user.username, "scopes": scopes},
        )
    return row, text


def require_scope_subset(caller: Caller, scopes: list[str]) -> None:
    """Whoever makes a token hands on power of their own, never more: 403 `scope_exceeds_caller`.

    A wildcard stands for whatever its user may at each moment, so who asks with a token needs it in that token.
    """
    more = known([scope for scope in scopes if not scope.endswith("*")]) - caller.scopes
    if caller.token is not None:
        more |= known(scopes) - expand(caller.token.scopes)
    if more:
        raise Problem(
            403, "scope_exceeds_caller", f"you do not have {', '.join(sorted(more))} yourself; leave it out"
        )


def effective_expiry(caller: Caller) -> datetime | None:
    """When the token ends by which the caller asks; None: never, or a session."""
    return caller.token.expires_at if caller.token is not None else None


def min_expiry(*moments: datetime | None) -> datetime | None:
    """None stands for never."""
    return min((moment for moment in moments if moment is not None), default=None)


def touch_last_used(token: ApiToken, *, now: datetime) -> None:
    """Remember that the token was used, at most once a minute."""
    if token.last_used_at is not None and token.last_used_at >= now - LAST_USED_STEP:
        return
    stale = Q(last_used_at=None) | Q(last_used_at__lt=now - LAST_USED_STEP)
    ApiToken.objects.filter(stale, pk=token.pk).update(last_used_at=now)


def change_project(
    caller: Caller,
    *,
    name: str | None = None,
    tested_rewards: bool | None = None,
    now: datetime,
) -> Project:
    """Rename the project, or require a passing test of a run's reward. A change leaves an event, a repeat none."""
    with transaction.atomic():
        project = Project.objects.select_for_update().get(pk=caller.project.pk)
        if tested_rewards is not None and project.tested_rewards != tested_rewards:
            project.tested_rewards = tested_rewards
            turned = "on" if tested_rewards else "off"
            note_project(
                caller, "tested_rewards", f"{caller.user.username} turned tested_rewards {turned}",
                now=now, data={"from": not tested_rewards, "to": tested_rewards},
            )  # fmt: skip
        if name is not None and project.name != name:
            note_project(
                caller,
                "renamed",
                f"{project.name} → {name}",
                now=now,
                data={"from": project.name, "to": name},
            )
            project.name = name
        save_named(project, f"the team has a project {name!r} already")
    return project


def save_named(row: Project | Team, refusal: str) -> None:
    """Save what has a unique name; 409 `name_taken` with the refusal when another row has it."""
    try:
        with transaction.atomic():
            row.save()
    except IntegrityError as error:
        raise conflict("name_taken", f"{refusal}; choose another name") from error


def note_project(caller: Caller, kind: str, message: str, *, now: datetime, data: dict[str, Any]) -> None:
    """An entry of the audit log that every reader of the project sees. Call inside the change's transaction."""
    project = caller.project
    audit_log.record(
        f"project.{kind}", target=("project", project.pk, project.name), message=message, at=now,
        project=project.pk, data=data,
    )  # fmt: skip


def create_login_link(user: User, *, now: datetime) -> str:
    """The path of a single-use login address."""
    text = new_secret("")
    LoginLink.objects.create(sha256=digest(text), user=user, expires_at=now + LOGIN_LINK_LIFE)
    return f"/login/{text}"


def use_login_link(request: HttpRequest, text: str, *, now: datetime) -> bool:
    """Log the browser in. False when the link is unknown, used or too old."""
    link = LoginLink.objects.filter(sha256=digest(text)).select_related("user").first()
    if link is None or not link.user.is_active:
        return False
    taken = LoginLink.objects.filter(pk=link.pk, used_at=None, expires_at__gt=now).update(used_at=now)
    if not taken:
        return False
    login(request, link.user, backend="django.contrib.auth.backends.ModelBackend")
    note_login(request, link.user, "login link", now=now)
    return True


def log_in(request: HttpRequest, *, username: str, password: str, address: str, now: datetime) -> User:
    """Check a password and start a session. Refused before hashing when there were too many failures."""
    address, name = network_of(address)[:64], username[:120]
    # Written before the check, so that guesses that come at the same time see each other.
    attempt = LoginFailure.objects.create(username=name, address=address, at=now)
    if _too_many_failures(name, address, now=now):
        attempt.delete()
        raise Problem(
            429, "too_many_logins", "too many failed logins; wait five minutes or take a login link",
            headers={"Retry-After": str(int(THROTTLE_WINDOW.total_seconds()))},
        )  # fmt: skip
    user = authenticate(request, username=username, password=password)
    if user is None:
        known = User.objects.filter(username=username).first()
        caller = selectors.caller_of_user(known) if known else None
        audit_log.record(
            "login.failed", target=("user", known.pk if known else "", username), at=now,
            project=caller.project.pk if caller else "",
        )  # fmt: skip
        raise Problem(401, "invalid_credentials", "the user name or the password is wrong")
    assert isinstance(user, User)
    attempt.delete()
    login(request, user)
    LoginAddress.objects.update_or_create(user=user, address=address, defaults={"at": now})
    note_login(request, user, "password", now=now)
    return user


def _too_many_failures(username: str, address: str, *, now: datetime) -> bool:
    """Whether this address may not try this name again now. No number of failures elsewhere stops a user for good:
    an address of theirs keeps its own allowance, any other keeps a small one."""
    recent = LoginFailure.objects.filter(at__gt=now - THROTTLE_WINDOW)
    here = recent.filter(username=username, address=address).count()
    if here > THROTTLE_FAILURES or recent.filter(address=address).count() > THROTTLE_FAILURES_OF_AN_ADDRESS:
        return True
    if here <= THROTTLE_FAILURES_WHILE_GUESSED:
        return False
    if recent.filter(username=username).count() <= THROTTLE_FAILURES_OF_A_NAME:
        return False
    known = LoginAddress.objects.filter(
        user__username=username, address=address, at__gt=now - ADDRESSES_REMEMBERED
    )
    return not known.exists()


def log_out(request: HttpRequest) -> None:
    """End the session, and the streams that it has open."""
    with transaction.atomic():
        user = request.user
        logout(request)
        if isinstance(user, User):
            audit_log.record("logout", target=("user", user.pk, user.username))
            publish_access_change([user.pk])


def note_login(request: HttpRequest, user: User, how: LoginMethod, *, now: datetime) -> None:
    """Record that a session began: in the session, and in the audit log of the project that it is of."""
    request.session[SESSION_LOGIN] = {"how": how, "at": rfc3339(now)}
    caller = selectors.caller_of_user(user)
    note_caller(
        kind="user", identity=user.pk, name=user.username, project_id=caller.project.pk if caller else ""
    )
    audit_log.record("login", target=("user", user.pk, user.username), at=now, data={"how": how})


def prune_failures(now: datetime) -> None:
    LoginFailure.objects.filter(at__lt=now - THROTTLE_WINDOW).delete()
    LoginAddress.objects.filter(at__lt=now - ADDRESSES_REMEMBERED).delete()
    LoginLink.objects.filter(expires_at__lt=now - timedelta(days=1)).delete()
