"""What ends for good in a pool, and what becomes of the runs: a node is revoked, a pool is deleted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime

from django.db import transaction
from django.db.models import Q

from control_plane.core.api.errors import conflict
from control_plane.experiments.models import Sweep
from control_plane.experiments.sweeps import LIVE
from control_plane.fleet import pools
from control_plane.fleet import services as fleet
from control_plane.fleet.models import DEFAULT_POOL, Node, Pool
from control_plane.runs.lease_reaper import leave_node
from control_plane.runs.models import Run
from oolong.contracts.lifecycle import ENDED, RunStatus

MOST_NAMED = 5


def revoke_node(node: Node, *, now: datetime) -> Node:
    """Refuse the node's credential from now on. Its runs wait for other nodes; none fails because of it."""
    node = fleet.revoke(node, now=now)
    # After the commit: runs are locked before nodes. What fails here, the next tick does again.
    transaction.on_commit(lambda: leave_node(node, now=now), robust=True)
    return node


def delete_pool(pool: Pool) -> None:
    """Delete a pool that nothing uses, with its teams, admins, quotas and tokens. 409 `pool_in_use` says what does."""
    with transaction.atomic():
        pool = pools.locked(pool.pk)
        if reason := _why_in_use(pool):
            raise conflict("pool_in_use", f"pool {pool.name!r} cannot be deleted: {reason}")
        pools.delete(pool)


def _why_in_use(pool: Pool) -> str:
    if pool.name == DEFAULT_POOL:
        return "runs that name no pool are placed there"
    nodes = list(pool.nodes.order_by("name").values_list("name", flat=True))
    if nodes:
        return f"it has {_listed(nodes, 'node')}; revoke them first: oolong node revoke NODE"
    runs = Run.objects.filter(_named(pool)).exclude(status__in=[*ENDED, RunStatus.DRAFT])
    if teams := _by_team(runs.values_list("project__team__name", flat=True)):
        return f"runs that have not ended name it, of {teams}; they must end or be cancelled first"
    sweeps = Sweep.objects.filter(_named(pool), status__in=LIVE)
    if teams := _by_team(sweeps.values_list("project__team__name", flat=True)):
        return f"sweeps that have not ended name it, of {teams}; they must end or be cancelled first"
    return ""


def _named(pool: Pool) -> Q:
    return Q(spec__placement__pool=pool.name)


def _by_team(names: Iterable[str]) -> str:
    return ", ".join(f"team {team} ({count})" for team, count in sorted(Counter(names).items()))


def _listed(names: list[str], noun: str) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{len(names)} {noun}{'s' if len(names) > 1 else ''} ({', '.join(names[:MOST_NAMED])}{more})"
