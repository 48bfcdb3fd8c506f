"""Revokes nodes and deletes pools, with the consequences for runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime

from django.db import transaction
from django.db.models import Q

from control_plane.core.api.errors import conflict
from control_plane.experiments.models import Sweep
from control_plane.experiments.sweeps import ACTIVE
from control_plane.fleet import pools
from control_plane.fleet import services as fleet
from control_plane.fleet.models import DEFAULT_POOL, Node, Pool
from control_plane.runs.evacuation import evacuate_node
from control_plane.runs.models import Run
from oolong.contracts.lifecycle import ENDED, RunStatus

MAX_NAMES_SHOWN = 5


def revoke_node(node: Node, *, now: datetime) -> Node:
    """Reject the node's credential from now on. Its runs return to the queue; none fails because of it."""
    node = fleet.revoke(node, now=now)
    # After the commit, because runs are locked before nodes. If this fails, the next tick repeats it.
    transaction.on_commit(lambda: evacuate_node(node, now=now), robust=True)
    return node


def delete_pool(pool: Pool) -> None:
    """Delete an unused pool with its team bindings, admins, quotas and tokens. 409 `pool_in_use` names what uses it."""
    with transaction.atomic():
        pool = pools.lock_pool(pool.pk)
        if reason := _in_use_reason(pool):
            raise conflict("pool_in_use", f"pool {pool.name!r} cannot be deleted: {reason}")
        pools.delete(pool)


def _in_use_reason(pool: Pool) -> str:
    if pool.name == DEFAULT_POOL:
        return "runs that name no pool use it"
    nodes = list(pool.nodes.order_by("name").values_list("name", flat=True))
    if nodes:
        return f"it has {_format_names(nodes, 'node')}; revoke them first: oolong node revoke NODE"
    runs = Run.objects.filter(_names_pool(pool)).exclude(status__in=[*ENDED, RunStatus.DRAFT])
    if teams := _count_by_team(runs.values_list("project__team__name", flat=True)):
        return f"active runs of {teams} name it; wait for them to end or cancel them"
    sweeps = Sweep.objects.filter(_names_pool(pool), status__in=ACTIVE)
    if teams := _count_by_team(sweeps.values_list("project__team__name", flat=True)):
        return f"active sweeps of {teams} name it; wait for them to end or cancel them"
    return ""


def _names_pool(pool: Pool) -> Q:
    return Q(spec__placement__pool=pool.name)


def _count_by_team(names: Iterable[str]) -> str:
    return ", ".join(f"team {team} ({count})" for team, count in sorted(Counter(names).items()))


def _format_names(names: list[str], noun: str) -> str:
    more = f" and {len(names) - MAX_NAMES_SHOWN} more" if len(names) > MAX_NAMES_SHOWN else ""
    return f"{len(names)} {noun}{'s' if len(names) > 1 else ''} ({', '.join(names[:MAX_NAMES_SHOWN])}{more})"
