"""All writes to the calendar of a pool: reservations and maintenance windows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from control_plane.accounts.models import Project, Team
from control_plane.core.api.errors import FieldError, Problem, not_found, unprocessable
from control_plane.core.infra.clock import rfc3339
from control_plane.fleet import maintenance, pools
from control_plane.fleet.models import MaintenanceWindow, Node, Pool, Reservation, Slot

MAX_LENGTH = timedelta(days=90)
MAX_AHEAD = timedelta(days=366)  # of the start
MAX_IN_POOL = 200  # reservations, or maintenance windows, that have not ended


def create_reservation(
    pool: Pool,
    team: Team,
    *,
    project: Project | None,
    slots: int,
    nodes: Sequence[str],
    device: str,
    starts_at: datetime,
    ends_at: datetime,
    reason: str,
    created_by: str,
    now: datetime,
) -> Reservation:
    """Reserve `slots` slots, or all slots of `nodes`, for the team. 422 for more than the pool has, less what is
    reserved at the same time."""
    _require_period(starts_at, ends_at, now=now)
    with transaction.atomic():
        pool = pools.lock_pool(pool.pk)
        ids = _node_ids(pool, nodes)
        not_ended = list(Reservation.objects.filter(pool=pool, ends_at__gt=now))
        others = [one for one in not_ended if one.starts_at < ends_at and starts_at < one.ends_at]
        _require_room(pool, slots, ids, device, others)
        _require_few(len(not_ended), "reservations")
        row = Reservation.objects.create(
            pool=pool, team=team, project=project, slots=slots, nodes=ids, device=device, starts_at=starts_at,
            ends_at=ends_at, reason=reason, created_by=created_by,
        )  # fmt: skip
        _record("pool.reserve", row, data={"team": team.name, "slots": slots, "nodes": ids})
        pools.publish_pool_change()
    return row


def cancel_reservation(pool: Pool, reservation_id: str) -> None:
    """Its slots are for everybody again; runs that use them stay. 404 when it does not exist."""
    with transaction.atomic():
        pool = pools.lock_pool(pool.pk)
        row = Reservation.objects.filter(pool=pool, pk=reservation_id).first()
        if row is None:
            raise not_found("reservation", reservation_id)
        _record("pool.cancel_reservation", row, data={"team": row.team_id})
        row.delete()
        pools.publish_pool_change()


def create_maintenance(
    pool: Pool,
    *,
    nodes: Sequence[str],
    starts_at: datetime,
    ends_at: datetime,
    reason: str,
    created_by: str,
    now: datetime,
) -> MaintenanceWindow:
    """Maintain these nodes, or all of the pool's."""
    _require_period(starts_at, ends_at, now=now)
    with transaction.atomic():
        pool = pools.lock_pool(pool.pk)
        ids = _node_ids(pool, nodes)
        not_ended = MaintenanceWindow.objects.filter(pool=pool, ends_at__gt=now)
        _require_few(not_ended.count(), "maintenance windows")
        row = MaintenanceWindow.objects.create(
            pool=pool, nodes=ids, starts_at=starts_at, ends_at=ends_at, reason=reason, created_by=created_by,
        )  # fmt: skip
        _record("pool.maintain", row, data={"nodes": ids or "all"})
        pools.publish_pool_change()
    return row


def cancel_maintenance(pool: Pool, window_id: str) -> None:
    """Nodes that it drains accept jobs again. 404 when it does not exist."""
    with transaction.atomic():
        pool = pools.lock_pool(pool.pk)
        row = MaintenanceWindow.objects.filter(pool=pool, pk=window_id).first()
        if row is None:
            raise not_found("maintenance window", window_id)
        maintenance.return_nodes(row)
        _record("pool.cancel_maintenance", row)
        row.delete()
        pools.publish_pool_change()


def _require_period(starts_at: datetime, ends_at: datetime, *, now: datetime) -> None:
    if ends_at <= starts_at:
        raise _invalid("ends_at", f"{rfc3339(ends_at)} is not after starts_at, {rfc3339(starts_at)}")
    if ends_at <= now:
        raise _invalid("ends_at", f"{rfc3339(ends_at)} is in the past; the time is {rfc3339(now)}")
    if ends_at - starts_at > MAX_LENGTH:
        raise _invalid(
            "ends_at", f"it lasts longer than {MAX_LENGTH.days} days; create several, or set a quota"
        )
    if starts_at - now > MAX_AHEAD:
        raise _invalid("starts_at", f"{rfc3339(starts_at)} is more than {MAX_AHEAD.days} days ahead")


def _require_few(count: int, what: str) -> None:
    if count >= MAX_IN_POOL:
        raise _invalid("starts_at", f"the pool has {count} {what} that have not ended; cancel some first")


def _node_ids(pool: Pool, named: Sequence[str]) -> list[str]:
    """IDs of nodes that are named by ID or name. 422 for one that is not in the pool, or for a name of several."""
    nodes = list(Node.objects.filter(pool=pool).order_by("name", "pk"))
    ids = []
    for index, name in enumerate(named):
        found = [node for node in nodes if name == node.pk] or [node for node in nodes if name == node.name]
        if len(found) != 1:
            known = ", ".join(node.name for node in nodes[:10]) or "none"
            message = (
                f"{len(found)} nodes of the pool are named {name!r}; give an ID: {', '.join(n.pk for n in found)}"
                if found
                else f"{name!r} is no node of pool {pool.name!r}; its nodes: {known}"
            )
            raise unprocessable("invalid", message, [FieldError(f"/nodes/{index}", "unknown_node", message)])
        if found[0].pk not in ids:
            ids.append(found[0].pk)
    return ids


def _require_room(
    pool: Pool, slots: int, nodes: Collection[str], device: str, others: Iterable[Reservation]
) -> None:
    healthy = Slot.objects.filter(node__pool=pool, present=True, healthy=True)
    if device:
        healthy = healthy.filter(device=device)
    on_node: dict[str, int] = {}
    for node in healthy.values_list("node_id", flat=True):
        on_node[node] = on_node.get(node, 0) + 1
    elsewhere = 0
    for other in others:
        if both := sorted(set(other.nodes) & set(nodes)):
            name = Node.objects.get(pk=both[0]).name
            raise _invalid(
                "nodes", f"{name} is reserved by {other.pk} at that time; cancel it, or choose another"
            )
        elsewhere += other.slots or sum(on_node.get(node, 0) for node in other.nodes)
    wanted, total = slots or sum(on_node.get(node, 0) for node in nodes), sum(on_node.values())
    if wanted > total - elsewhere:
        kind = f"{device} slots" if device else "slots"
        raise _invalid(
            "slots" if slots else "nodes",
            f"{wanted} slots are more than pool {pool.name!r} can reserve then: it has {total} healthy {kind}, of "
            f"which {elsewhere} are reserved at that time",
        )


def _invalid(field: str, message: str) -> Problem:
    return unprocessable("invalid", f"{field}: {message}", [FieldError(f"/{field}", "invalid", message)])


def _record(action: str, row: Reservation | MaintenanceWindow, *, data: dict[str, Any] | None = None) -> None:
    period = {"starts_at": rfc3339(row.starts_at), "ends_at": rfc3339(row.ends_at), "reason": row.reason}
    pools.record_audit(
        action,
        row.pool,
        target=("pool", row.pool_id, row.pool_id),
        data={"id": row.pk, **period, **(data or {})},
    )
