"""Selects holders of borrowed slots to preempt for a run that waits: pure functions.

Preemptible holders have a slot only because it was idle. The first request in the queue that waits for slots and would
fit without some of them gets their slots, from as few holders as possible. Slots that are about to become free are
waited for.
"""

from __future__ import annotations

from collections.abc import Sequence

from control_plane.fleet.placement import PlacedQueue, allocate, could_hold
from control_plane.fleet.snapshot import (
    Holder,
    NodeSnapshot,
    Preemption,
    Request,
    SlotSnapshot,
    Snapshot,
    WaitCode,
)

_WAITS_FOR_SLOTS = (WaitCode.QUOTA, WaitCode.CAPACITY, WaitCode.BEHIND)


def select_victims(placed: PlacedQueue, snapshot: Snapshot) -> tuple[Preemption, ...]:
    """The holders to preempt now."""
    if not snapshot.holders:
        return ()
    for request in _preemptors(placed):
        over = _slots_over_limit(request, snapshot)
        choices = []
        for node in snapshot.nodes:
            if not (node.accepts and could_hold(node, request)):
                continue
            chosen = _victims_on_node(node, request, placed.free[node.id], snapshot.holders, over=over)
            if chosen is not None:
                choices.append(chosen)
        if choices:
            return tuple(Preemption(holder.id, request.id) for holder in min(choices, key=len))
    return ()


def teams_without_headroom(placed: PlacedQueue, snapshot: Snapshot) -> frozenset[str]:
    """Teams with a waiting run that fits their quota without the holders, but not with one more borrowed slot. Whoever
    borrowed that slot would be preempted at once, and the run would wait for one borrower after the other."""
    found = set()
    for request in _preemptors(placed):
        limit = snapshot.limits.get(request.team)
        if limit is None:
            continue
        with_it = placed.used.get(request.team, 0) + request.slots
        own = sum(len(holder.slots) for holder in snapshot.holders if holder.team == request.team)
        if with_it - own <= limit < with_it + 1:
            found.add(request.team)
    return frozenset(found)


def _preemptors(placed: PlacedQueue) -> list[Request]:
    """The waiting requests that may preempt, in the order of the queue."""
    return [
        request
        for request in placed.order
        if request.id in placed.waiting
        and placed.waiting[request.id].code in _WAITS_FOR_SLOTS
        and not request.preemptible
    ]


def _slots_over_limit(request: Request, snapshot: Snapshot) -> int:
    """How many slots its team must release for it, beyond those that become free anyway."""
    limit = snapshot.limits.get(request.team)
    if limit is None:
        return 0
    leaving = sum(
        len(holder.slots) for holder in snapshot.holders if holder.team == request.team and holder.leaving
    )
    return snapshot.used.get(request.team, 0) - leaving + request.slots - limit


def _victims_on_node(
    node: NodeSnapshot,
    request: Request,
    free: Sequence[SlotSnapshot],
    holders: Sequence[Holder],
    *,
    over: int,
) -> list[Holder] | None:
    """The fewest holders to preempt so that the request fits the node and the team's quota; empty when slots that
    become free anyway suffice; None when no choice suffices."""
    limited = over > 0  # then holders of its own team first: their slots count for both
    staying = [one for one in holders if not one.leaving]
    staying.sort(
        key=lambda one: (
            limited and one.team != request.team,
            one.node != node.id,
            -len(one.slots),
            one.id,
        )
    )
    leaving = [one for one in holders if one.leaving]

    def fits(chosen: Sequence[Holder]) -> bool:
        coming = {name for one in (*leaving, *chosen) if one.node == node.id for name in one.slots}
        slots = (*free, *(slot for slot in node.held if slot.name in coming))
        released = sum(len(one.slots) for one in chosen if one.team == request.team)
        return over <= released and allocate(slots, request) is not None

    chosen = list(staying)
    if not fits(chosen):
        return None
    for holder in reversed(staying):  # the last in the order is spared first
        others = [one for one in chosen if one is not holder]
        chosen = others if fits(others) else chosen
    return chosen
