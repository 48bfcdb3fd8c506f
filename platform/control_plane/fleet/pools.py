"""All writes to pools: settings, bound teams, admins and quotas.

Each write is recorded in the audit log of the projects that it affects: a change for one team in the projects of that
team, any other change in the projects of all teams that may use the pool.
"""

from __future__ import annotations

from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Sum

from control_plane.accounts.audit import audit_log
from control_plane.accounts.identity.access_events import publish_access_change
from control_plane.accounts.models import Project, Team, User
from control_plane.core.api.errors import FieldError, conflict, not_found, or_not_found, unprocessable
from control_plane.core.stream import event_stream
from control_plane.fleet.access import projects_of
from control_plane.fleet.models import (
    DEFAULT_POOL,
    Pool,
    PoolAdmin,
    PoolTeam,
    ProjectQuota,
    Quota,
    Reservation,
)


def default_pool() -> Pool:
    """Create the pool of a single machine, open to all teams, unless it exists."""
    return Pool.objects.get_or_create(name=DEFAULT_POOL, defaults={"all_teams": True})[0]


def create_pool(name: str, *, all_teams: bool = False, trainer_code: bool = False) -> Pool:
    """Create a pool without nodes. 409 `name_taken`."""
    settings = {"all_teams": all_teams, "trainer_code": trainer_code}
    try:
        with transaction.atomic():
            pool = Pool.objects.create(name=name, **settings)
            record_audit("pool.create", pool, data=settings)
    except IntegrityError as error:
        raise conflict("name_taken", f"a pool {name!r} exists already; choose another name") from error
    return pool


def change_pool(pool: Pool, *, all_teams: bool | None = None, trainer_code: bool | None = None) -> Pool:
    """Open the pool to all teams or close it; allow or forbid uploaded loss functions. A no-op is not audited."""
    with transaction.atomic():
        pool = lock_pool(pool.pk)
        requested = {"all_teams": all_teams, "trainer_code": trainer_code}
        changed = {
            name: {"before": getattr(pool, name), "after": value}
            for name, value in requested.items()
            if value is not None and value != getattr(pool, name)
        }
        if not changed:
            return pool
        affected = projects_of(pool.pk)  # including the teams that lose access now
        for name, change in changed.items():
            setattr(pool, name, change["after"])
        pool.save(update_fields=list(changed))
        record_audit("pool.change", pool, data=changed, projects={*affected, *projects_of(pool.pk)})
        publish_pool_change()
    return pool


def delete(pool: Pool) -> None:
    """Delete the pool with its team bindings, admins, quotas and join tokens. The caller holds its lock, and nothing
    uses it."""
    admins = list(pool.admins.values_list("user", flat=True))
    record_audit("pool.delete", pool)
    pool.delete()
    publish_access_change(admins)
    publish_pool_change()


def lock_pool(name: str) -> Pool:
    """The pool, locked until the transaction ends. 404 when it was deleted."""
    return or_not_found(Pool.objects.select_for_update().filter(pk=name).first(), "pool", name)


def bind_team(pool: Pool, team: Team) -> None:
    """Allow the team to use the pool. Idempotent."""
    with transaction.atomic():
        pool = lock_pool(pool.pk)
        if PoolTeam.objects.get_or_create(pool=pool, team=team)[1]:
            _record_team_audit("pool.bind_team", pool, team)
            publish_pool_change()


def unbind_team(pool: Pool, team: Team) -> None:
    """Forbid the team to use the pool, and delete its quota, those of its projects and its reservations. Its runs there
    save a checkpoint and return to the queue (runs.lease_reaper); nodes of the pool start no new jobs of the team. 404
    for a team that is not bound."""
    with transaction.atomic():
        if not PoolTeam.objects.filter(pool=pool, team=team).delete()[0]:
            raise not_found("team of the pool", team.pk)
        Quota.objects.filter(pool=pool, team=team).delete()
        ProjectQuota.objects.filter(pool=pool, project__team=team).delete()
        Reservation.objects.filter(pool=pool, team=team).delete()
        _record_team_audit("pool.unbind_team", pool, team)
        publish_pool_change()


def appoint_admin(pool: Pool, user: User) -> PoolAdmin:
    """Make the user a manager of the pool. Idempotent. 422 for a service account, because anyone who rotates its token
    could manage the pool."""
    if user.service_of_id is not None:
        message = f"{user.username} is a service account; appoint a person"
        raise unprocessable("invalid", message, [FieldError("/username", "service_account", message)])
    with transaction.atomic():
        pool = lock_pool(pool.pk)
        row, created = PoolAdmin.objects.get_or_create(pool=pool, user=user)
        if created:
            record_audit("pool.appoint_admin", pool, data={"user": user.username, "user_id": user.pk})
            publish_access_change([user.pk])
    return row


def remove_admin(pool: Pool, user_id: str) -> None:
    """404 when the user is not an admin of the pool."""
    with transaction.atomic():
        row = PoolAdmin.objects.filter(pool=pool, user=user_id).select_related("user").first()
        if row is None:
            raise not_found("admin of the pool", user_id)
        row.delete()
        record_audit("pool.remove_admin", pool, data={"user": row.user.username, "user_id": user_id})
        publish_access_change([user_id])


def set_quota(pool: Pool, team: Team, **changes: int | None) -> Quota:
    """Change columns of the team's quota; the others stay. 422 for a limit below the nominal quota."""
    with transaction.atomic():
        pool = lock_pool(pool.pk)
        quota = Quota.objects.filter(team=team, pool=pool).first() or Quota(team=team, pool=pool)
        changed = _change(quota, changes, owner="team")
        promised = _nominal_of_projects(pool, team)
        if quota.nominal_slots < promised:
            message = (
                f"nominal_slots {quota.nominal_slots} is below {promised}, the sum of nominal_slots of the team's "
                "projects; lower theirs first"
            )
            raise unprocessable("invalid", message, [FieldError("/nominal_slots", "below_projects", message)])
        quota.save()
        _record_team_audit("pool.quota", pool, team, data=changed)
        publish_pool_change()
    return quota


def set_project_quota(pool: Pool, project: Project, **changes: int | None) -> ProjectQuota:
    """Change columns of the project's quota; the others stay. 422 for a limit below the nominal quota, and for nominal
    quotas of a team's projects that exceed the team's."""
    with transaction.atomic():
        pool = lock_pool(pool.pk)
        quota = ProjectQuota.objects.filter(project=project, pool=pool).first()
        quota = quota or ProjectQuota(project=project, pool=pool)
        changed = _change(quota, changes, owner="project")
        of_team = Quota.objects.filter(pool=pool, team=project.team_id).first() or Quota()
        others = _nominal_of_projects(pool, project.team, without=project)
        if "nominal_slots" in changes and quota.nominal_slots > of_team.nominal_slots - others:
            message = (
                f"nominal_slots {quota.nominal_slots} is above {max(0, of_team.nominal_slots - others)}: the team has "
                f"{of_team.nominal_slots} nominal slots in pool {pool.name}, and its other projects have {others} of "
                "them; raise the team's quota or lower theirs first"
            )
            raise unprocessable("invalid", message, [FieldError("/nominal_slots", "above_team", message)])
        quota.save()
        record_audit(
            "pool.project_quota", pool, target=("project", project.pk, project.name), data=changed,
            projects={project.pk},
        )  # fmt: skip
        publish_pool_change()
    return quota


def _change(quota: Quota | ProjectQuota, changes: dict[str, int | None], *, owner: str) -> dict[str, Any]:
    """Set the columns; return their values before and after. 422 for a limit below the nominal quota."""
    changed = {name: {"before": getattr(quota, name), "after": value} for name, value in changes.items()}
    for name, value in changes.items():
        setattr(quota, name, value)
    if quota.limit_slots is not None and quota.limit_slots < quota.nominal_slots:
        message = (
            f"limit_slots {quota.limit_slots} is below nominal_slots {quota.nominal_slots}: a {owner} may hold its "
            "nominal quota; lower nominal_slots too, or raise limit_slots"
        )
        raise unprocessable("invalid", message, [FieldError("/limit_slots", "below_nominal", message)])
    return changed


def _nominal_of_projects(pool: Pool, team: Team, *, without: Project | None = None) -> int:
    """The sum of the nominal quotas of the team's projects."""
    found = ProjectQuota.objects.filter(pool=pool, project__team=team)
    if without is not None:
        found = found.exclude(project=without)
    return found.aggregate(total=Sum("nominal_slots"))["total"] or 0


def record_audit(
    action: str,
    pool: Pool,
    *,
    target: tuple[str, str, str] | None = None,
    data: dict[str, Any] | None = None,
    projects: set[str] | None = None,
) -> None:
    """Record in the audit log of `projects`: by default, of every project whose team may use the pool."""
    audit_log.record_in(
        projects_of(pool.pk) if projects is None else projects,
        action,
        target=target or ("pool", pool.pk, pool.pk),
        data={"pool": pool.pk, **(data or {})},
    )


def publish_pool_change() -> None:
    """Publish on the topic `pool` that pools, quotas or nodes changed, without details: every team receives the topic.
    Must be the last publish of a transaction (see common.live)."""
    event_stream.publish("pool", "event", {"kind": "pool"})


def _record_team_audit(action: str, pool: Pool, team: Team, *, data: dict[str, Any] | None = None) -> None:
    own = set(Project.objects.filter(team=team).values_list("pk", flat=True))
    record_audit(action, pool, target=("team", team.pk, team.name), data=data, projects=own)
