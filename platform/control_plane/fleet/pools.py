"""Every write to a pool itself: its settings, the teams that may use it, its admins, quotas.

Each is written down in the audit log of every project that it touches: what concerns one team, in the projects of that
team; everything else, in the projects of all teams that may use the pool.
"""

from __future__ import annotations

from typing import Any

from django.db import IntegrityError, transaction

from control_plane.accounts.audit import audit_log
from control_plane.accounts.identity.access_events import announce_power_change
from control_plane.accounts.models import Project, Team, User
from control_plane.core.api.errors import FieldError, conflict, not_found, or_not_found, unprocessable
from control_plane.core.stream import event_stream
from control_plane.fleet.access import projects_of
from control_plane.fleet.models import DEFAULT_POOL, Pool, PoolAdmin, PoolTeam, Quota


def default_pool() -> Pool:
    """The pool of a single machine, open to all teams. Safe to repeat."""
    return Pool.objects.get_or_create(name=DEFAULT_POOL, defaults={"all_teams": True})[0]


def create_pool(name: str, *, all_teams: bool = False, trainer_code: bool = False) -> Pool:
    """A pool without nodes. 409 `name_taken`."""
    settings = {"all_teams": all_teams, "trainer_code": trainer_code}
    try:
        with transaction.atomic():
            pool = Pool.objects.create(name=name, **settings)
            record("pool.create", pool, data=settings)
    except IntegrityError as error:
        raise conflict("name_taken", f"there is a pool {name!r} already; choose another name") from error
    return pool


def change_pool(pool: Pool, *, all_teams: bool | None = None, trainer_code: bool | None = None) -> Pool:
    """Open it to all teams or close it; allow losses of users in it or forbid them. A repeat leaves no entry."""
    with transaction.atomic():
        pool = locked(pool.pk)
        asked = {"all_teams": all_teams, "trainer_code": trainer_code}
        changed = {
            name: {"before": getattr(pool, name), "after": value}
            for name, value in asked.items()
            if value is not None and value != getattr(pool, name)
        }
        if not changed:
            return pool
        touched = projects_of(pool.pk)  # also of the teams that lose it now
        for name, change in changed.items():
            setattr(pool, name, change["after"])
        pool.save(update_fields=list(changed))
        record("pool.change", pool, data=changed, projects={*touched, *projects_of(pool.pk)})
        announce_pool()
    return pool


def delete(pool: Pool) -> None:
    """With its bindings, admins, quotas and join tokens. The caller has locked it, and nothing uses it."""
    admins = list(pool.admins.values_list("user", flat=True))
    record("pool.delete", pool)
    pool.delete()
    announce_power_change(admins)
    announce_pool()


def locked(name: str) -> Pool:
    """The pool, kept from being deleted until the transaction ends. 404 when it was."""
    return or_not_found(Pool.objects.select_for_update().filter(pk=name).first(), "pool", name)


def bind_team(pool: Pool, team: Team) -> None:
    """The team may use the pool. Safe to repeat."""
    with transaction.atomic():
        pool = locked(pool.pk)
        if PoolTeam.objects.get_or_create(pool=pool, team=team)[1]:
            _record_of_team("pool.bind_team", pool, team)
            announce_pool()


def unbind_team(pool: Pool, team: Team) -> None:
    """The team may no longer use the pool. Its runs there take a checkpoint and go back to the queue (runs.sweep); from
    this moment on their nodes get nothing new of them. 404 when the team was not bound; its quota goes with it."""
    with transaction.atomic():
        if not PoolTeam.objects.filter(pool=pool, team=team).delete()[0]:
            raise not_found("team of the pool", team.pk)
        Quota.objects.filter(pool=pool, team=team).delete()
        _record_of_team("pool.unbind_team", pool, team)
        announce_pool()


def appoint_admin(pool: Pool, user: User) -> PoolAdmin:
    """The user manages the pool. Safe to repeat. 422 for a service account: whoever rotates its token would."""
    if user.service_of_id is not None:
        message = f"{user.username} is a service account; appoint a person"
        raise unprocessable("invalid", message, [FieldError("/username", "service_account", message)])
    with transaction.atomic():
        pool = locked(pool.pk)
        row, made = PoolAdmin.objects.get_or_create(pool=pool, user=user)
        if made:
            record("pool.appoint_admin", pool, data={"user": user.username, "user_id": user.pk})
            announce_power_change([user.pk])
    return row


def remove_admin(pool: Pool, user_id: str) -> None:
    """404 when the user is no admin of the pool."""
    with transaction.atomic():
        row = PoolAdmin.objects.filter(pool=pool, user=user_id).select_related("user").first()
        if row is None:
            raise not_found("admin of the pool", user_id)
        row.delete()
        record("pool.remove_admin", pool, data={"user": row.user.username, "user_id": user_id})
        announce_power_change([user_id])


def set_quota(pool: Pool, team: Team, *, limit_slots: int | None) -> Quota:
    """At most so many slots of the pool for the team; None lifts the limit."""
    with transaction.atomic():
        pool = locked(pool.pk)
        before = Quota.objects.filter(team=team, pool=pool).first()
        quota, _ = Quota.objects.update_or_create(team=team, pool=pool, defaults={"limit_slots": limit_slots})
        change = {"before": before.limit_slots if before else None, "after": limit_slots}
        _record_of_team("pool.quota", pool, team, data={"limit_slots": change})
        announce_pool()
    return quota


def record(
    action: str,
    pool: Pool,
    *,
    target: tuple[str, str, str] | None = None,
    data: dict[str, Any] | None = None,
    projects: set[str] | None = None,
) -> None:
    """In the audit log of every project whose team may use the pool, unless others are named."""
    audit_log.record_in(
        projects_of(pool.pk) if projects is None else projects,
        action,
        target=target or ("pool", pool.pk, pool.pk),
        data={"pool": pool.pk, **(data or {})},
    )


def announce_pool() -> None:
    """Say on the topic `pool` that pools, quotas or nodes changed, and nothing of what: every team hears the topic.
    Like announce_leases, last in its transaction."""
    event_stream.publish("pool", "event", {"kind": "pool"})


def _record_of_team(action: str, pool: Pool, team: Team, *, data: dict[str, Any] | None = None) -> None:
    own = set(Project.objects.filter(team=team).values_list("pk", flat=True))
    record(action, pool, target=("team", team.pk, team.name), data=data, projects=own)
