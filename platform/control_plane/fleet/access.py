"""Who may use a pool, and who manages it.

A team may use a pool that is open to all teams or that the team is bound to. A pool is managed by its pool admins and
by the admins of the installation; a role in a project or team gives no say over nodes.
"""

from __future__ import annotations

from django.db.models import Exists, OuterRef, Q, QuerySet

from control_plane.accounts.identity.caller import Caller
from control_plane.accounts.models import Project, Team
from control_plane.core.api.errors import Problem, not_found, or_not_found
from control_plane.fleet.models import DEFAULT_POOL, Node, Pool, PoolTeam

HOW_TO_MANAGE = (
    "ask a pool admin, or have an admin of the installation appoint you: oolong pool admins add {pool} {user}"
)


def pools_of(team: str) -> QuerySet[Pool]:
    """The pools that a team may use."""
    return Pool.objects.filter(
        Q(all_teams=True) | Q(pk__in=PoolTeam.objects.filter(team=team).values("pool"))
    ).order_by("name")


def teams_of(pool: str | None) -> QuerySet[Team]:
    """The teams that may use a pool; None, the pool of a revoked node, is nobody's."""
    is_open = Exists(Pool.objects.filter(pk=pool, all_teams=True))
    return Team.objects.filter(Q(is_open) | Q(pk__in=PoolTeam.objects.filter(pool=pool).values("team")))


def projects_of(pool: str | None) -> list[str]:
    """Ids of the projects whose runs may be placed in a pool."""
    return list(Project.objects.filter(team__in=teams_of(pool)).values_list("pk", flat=True))


def team_may_use(pool: str | None, team: str) -> bool:
    return pools_of(team).filter(pk=pool).exists()


def may_use(*, pool: str, team: str) -> Exists:
    """For a query whose rows name a pool and a team in these columns: whether that team may use that pool."""
    bound = PoolTeam.objects.filter(pool=OuterRef("pk"), team=OuterRef(OuterRef(team)))
    return Exists(Pool.objects.filter(Q(all_teams=True) | Exists(bound), pk=OuterRef(pool)))


def managed_pools(caller: Caller) -> QuerySet[Pool]:
    if "pool:admin" not in caller.scopes:
        return Pool.objects.none()
    if caller.user.is_staff:
        return Pool.objects.order_by("name")
    return Pool.objects.filter(admins__user=caller.user).order_by("name")


def visible_pools(caller: Caller) -> QuerySet[Pool]:
    """Those that the caller's team may use, and those that the caller manages."""
    managed = managed_pools(caller).order_by().values("pk")
    usable = pools_of(caller.project.team_id).order_by().values("pk")
    return Pool.objects.filter(Q(pk__in=usable) | Q(pk__in=managed)).order_by("name")


def pool_for(caller: Caller, name: str) -> Pool:
    """404 for what does not exist and for what the caller's team may not use, alike."""
    return or_not_found(visible_pools(caller).filter(pk=name).first(), "pool", name)


def first_pool(caller: Caller) -> Pool:
    """The default pool, or the first by name where that is not visible to the caller."""
    visible = visible_pools(caller)
    pool = visible.filter(pk=DEFAULT_POOL).first() or visible.first()
    if pool is None:
        team = caller.project.team.name
        way_out = f"ask an admin of the installation: oolong pool teams add POOL {team}"
        message = f"team {team!r} may use no pool yet; {way_out}"
        raise Problem(404, "not_found", message)
    return pool


def managed_pool(caller: Caller, name: str) -> Pool:
    """404 as `pool_for`; 403 for a pool that others manage."""
    pool = pool_for(caller, name)
    if reason := why_not_managed(caller, pool):
        raise Problem(403, "not_pool_admin", reason)
    return pool


def managed_node(caller: Caller, node_id: str) -> Node:
    node = Node.objects.filter(pk=node_id, pool__in=visible_pools(caller)).first()
    if node is None or node.pool_id is None:
        raise not_found("node", node_id)
    managed_pool(caller, node.pool_id)
    return node


def why_not_managed(caller: Caller, pool: Pool) -> str:
    """Why the caller does not manage the pool, with the way out; empty when they do."""
    if managed_pools(caller).filter(pk=pool.pk).exists():
        return ""
    way_out = HOW_TO_MANAGE.format(pool=pool.name, user=caller.user.username)
    return f"you do not manage pool {pool.name!r}; {way_out}"
