"""All reads of the calendar of a pool."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from control_plane.fleet import maintenance
from control_plane.fleet.models import MaintenanceWindow, Node, Pool, Reservation, Slot


def reservations(pool: Pool, *, ended: bool, now: datetime) -> list[dict[str, Any]]:
    """The next one first, for ReservationSerializer."""
    rows = Reservation.objects.filter(pool=pool)
    if not ended:
        rows = rows.filter(ends_at__gt=now)
    return _reservations(list(rows.select_related("team", "project").order_by("starts_at", "pk")), now=now)


def reservation(row: Reservation, *, now: datetime) -> dict[str, Any]:
    return _reservations([row], now=now)[0]


def _reservations(rows: Sequence[Reservation], *, now: datetime) -> list[dict[str, Any]]:
    names = _names(node for row in rows for node in (*row.nodes, *row.allocation))
    found = []
    for row in rows:
        allocation = dict(row.allocation)
        for node in row.nodes:
            slots = Slot.objects.filter(node=node, present=True, healthy=True).order_by("name")
            allocation[node] = list(slots.values_list("name", flat=True))
        chosen = [
            {"node": {"id": node, "name": names.get(node, node)}, "slots": slots}
            for node, slots in allocation.items()
        ]
        found.append(
            {
                **_entry(row, row.nodes, names, now=now),
                "team": row.team,
                "project": row.project,
                "slots": row.slots or sum(len(one["slots"]) for one in chosen),
                "device": row.device,
                "allocation": chosen,
            }
        )
    return found


def maintenance_windows(pool: Pool, *, ended: bool, now: datetime) -> list[dict[str, Any]]:
    """The next one first, for MaintenanceWindowSerializer."""
    rows = MaintenanceWindow.objects.filter(pool=pool)
    if not ended:
        rows = rows.filter(ends_at__gt=now)
    return _windows(list(rows.select_related("pool").order_by("starts_at", "pk")), now=now)


def maintenance_window(row: MaintenanceWindow, *, now: datetime) -> dict[str, Any]:
    return _windows([row], now=now)[0]


def _windows(rows: Sequence[MaintenanceWindow], *, now: datetime) -> list[dict[str, Any]]:
    nodes = {row.pk: maintenance.nodes_of(row) for row in rows}
    names = _names(node for found in nodes.values() for node in found)
    return [
        {
            **_entry(row, nodes[row.pk], names, now=now),
            "whole_pool": not row.nodes,
            "drains_at": row.starts_at - maintenance.DRAIN_LEAD,
        }
        for row in rows
    ]


def _entry(
    row: Reservation | MaintenanceWindow, nodes: Iterable[str], names: dict[str, str], *, now: datetime
) -> dict[str, Any]:
    state = "upcoming" if now < row.starts_at else "active" if now < row.ends_at else "ended"
    return {
        "id": row.pk,
        "pool": row.pool_id,
        "nodes": [{"id": node, "name": names.get(node, node)} for node in nodes],
        "starts_at": row.starts_at,
        "ends_at": row.ends_at,
        "state": state,
        "reason": row.reason,
        "created_by": row.created_by,
        "created_at": row.created_at,
    }


def _names(nodes: Iterable[str]) -> dict[str, str]:
    return dict(Node.objects.filter(pk__in=set(nodes)).values_list("pk", "name"))
