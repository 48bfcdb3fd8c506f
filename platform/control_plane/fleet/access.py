"""Access to pools: which teams may use a pool, and which users manage it.

A team may use a pool that is open to all teams or bound to the team. Pool admins and installation admins manage a
pool; a role in a project or team grants no rights on nodes.
"""

from __future__ import annotations

from typing import TypeVar

from django.db.models import Exists, OuterRef, Q, QuerySet

from control_plane.accounts.identity.caller import Caller
from control_plane.accounts.models import Project, Team
from control_plane.core.api.errors import Problem, not_found, or_not_found
from control_plane.fleet.models import DEFAULT_POOL, Node, Pool, PoolTeam

Named = TypeVar("Named", Team, Project)

HOW_TO_MANAGE = (
    "ask a pool admin, or ask an installation admin to appoint you: oolong pool admins add {pool} {user}"
)


def pools_of(team: str) -> QuerySet[Pool]:
    """The pools that a team may use."""
    return Pool.objects.filter(
        Q(all_teams=True) | Q(pk__in=PoolTeam.objects.filter(team=team).values("pool"))
    ).order_by("name")


def teams_of(pool: str | None) -> QuerySet[Team]:
    """The teams that may use a pool. None is the pool of a revoked node, which no team may use."""
    is_open = Exists(Pool.objects.filter(pk=pool, all_teams=True))
    return Team.objects.filter(Q(is_open) | Q(pk__in=PoolTeam.objects.filter(pool=pool).values("team")))


def by_id_or_name(rows: QuerySet[Named], given: str) -> Named | None:
    """The row with this ID, else with this name: one row's name may equal another's ID."""
    return rows.filter(pk=given).first() or rows.filter(name=given).first()


def projects_of(pool: str | None) -> list[str]:
    """IDs of the projects whose runs may be scheduled in a pool."""
    return list(Project.objects.filter(team__in=teams_of(pool)).values_list("pk", flat=True))


def team_may_use(pool: str | None, team: str) -> bool:
    return pools_of(team).filter(pk=pool).exists()


def may_use(*, pool: str, team: str) -> Exists:
    """A query condition: whether the team in column `team` may use the pool in column `pool`."""
    bound = PoolTeam.objects.filter(pool=OuterRef("pk"), team=OuterRef(OuterRef(team)))
    return Exists(Pool.objects.filter(Q(all_teams=True) | Exists(bound), pk=OuterRef(pool)))


def managed_pools(caller: Caller) -> QuerySet[Pool]:
    if "pool:admin" not in caller.scopes:
        return Pool.objects.none()
    if caller.user.is_staff:
        return Pool.objects.order_by("name")
    return Pool.objects.filter(admins__user=caller.user).order_by("name")


def visible_pools(caller: Caller) -> QuerySet[Pool]:
    """Pools that the caller's team may use, and pools that the caller manages."""
    managed = managed_pools(caller).order_by().values("pk")
    usable = pools_of(caller.project.team_id).order_by().values("pk")
    return Pool.objects.filter(Q(pk__in=usable) | Q(pk__in=managed)).order_by("name")


def pool_for(caller: Caller, name: str) -> Pool:
    """The pool by name. 404 both for unknown pools and for pools that the caller cannot see."""
    return or_not_found(visible_pools(caller).filter(pk=name).first(), "pool", name)


def first_pool(caller: Caller) -> Pool:
    """The default pool, or the first visible pool by name when the caller cannot see the default one."""
    visible = visible_pools(caller)
    pool = visible.filter(pk=DEFAULT_POOL).first() or visible.first()
    if pool is None:
        team = caller.project.team.name
        way_out = f"ask an installation admin: oolong pool teams add POOL {team}"
        message = f"team {team!r} cannot use any pool yet; {way_out}"
        raise Problem(404, "not_found", message)
    return pool


def managed_pool(caller: Caller, name: str) -> Pool:
    """The pool by name. 404 as in `pool_for`; 403 for a pool that the caller does not manage."""
    pool = pool_for(caller, name)
    if reason := manage_denied_reason(caller, pool):
        raise Problem(403, "not_pool_admin", reason)
    return pool


def team_of_pool(pool: Pool, team_id: str) -> Team:
    """404 unless the team may use the pool."""
    return or_not_found(teams_of(pool.pk).filter(pk=team_id).first(), "team of the pool", team_id)


def managed_node(caller: Caller, node_id: str) -> Node:
    node = Node.objects.filter(pk=node_id, pool__in=visible_pools(caller)).first()
    if node is None or node.pool_id is None:
        raise not_found("node", node_id)
    managed_pool(caller, node.pool_id)
    return node


def manage_denied_reason(caller: Caller, pool: Pool) -> str:
    """Why the caller does not manage the pool, and what to do about it; empty for managers of the pool."""
    if managed_pools(caller).filter(pk=pool.pk).exists():
        return ""
    way_out = HOW_TO_MANAGE.format(pool=pool.name, user=caller.user.username)
    return f"you do not manage pool {pool.name!r}; {way_out}"
