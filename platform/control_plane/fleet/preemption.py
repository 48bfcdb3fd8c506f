"""Selects holders of borrowed slots to preempt for a run that waits: pure functions.

Preemptible holders have a slot only because it was idle. The first request in the queue that waits for slots and would
fit without some of them gets their slots, from as few holders as possible. Slots that are about to become free are
waited for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from control_plane.fleet.scheduler import (
    NodeSnapshot,
    Plan,
    Request,
    SlotSnapshot,
    Snapshot,
    allocate,
    meets_requirements,
    sort_queue,
)


@dataclass(frozen=True)
class Preemptible:
    holder: str
    team: str
    node: str
    slots: tuple[str, ...]  # names
    leaving: bool  # it is stopping already: its slots become free soon


def select_victims(
    plan: Plan, snapshot: Snapshot, holders: Sequence[Preemptible], *, preemptible_requests: frozenset[str]
) -> tuple[str, ...]:
    """IDs of the holders to preempt now. `preemptible_requests` are the queued requests that never preempt others."""
    placed = {(placement.node, slot) for placement in plan.placements for slot in placement.slots}
    for request in sort_queue(snapshot.queue):
        if not _waits_for_slots(request, plan, snapshot, preemptible_requests):
            continue
        over = _slots_over_limit(request, snapshot, holders)
        choices = []
        for node in snapshot.nodes:
            if not (node.accepts and _could_hold(node, request)):
                continue
            free = [slot for slot in node.free if (node.id, slot.name) not in placed]
            chosen = _victims_on_node(node, request, free, holders, over=over)
            if chosen is not None:
                choices.append(chosen)
        if choices:
            return min(choices, key=len)
    return ()


def teams_without_headroom(
    plan: Plan, snapshot: Snapshot, holders: Sequence[Preemptible], *, preemptible_requests: frozenset[str]
) -> frozenset[str]:
    """Teams with a waiting run that fits their quota without the holders, but not with one more borrowed slot. Whoever
    borrowed that slot would be preempted at once, and the run would wait for one borrower after the other."""
    found = set()
    for request in snapshot.queue:
        limit = snapshot.limits.get(request.team)
        if limit is None or not _waits_for_slots(request, plan, snapshot, preemptible_requests):
            continue
        with_it = plan.used.get(request.team, 0) + request.slots
        own = sum(len(holder.slots) for holder in holders if holder.team == request.team)
        if with_it - own <= limit < with_it + 1:
            found.add(request.team)
    return frozenset(found)


def _waits_for_slots(
    request: Request, plan: Plan, snapshot: Snapshot, preemptible_requests: frozenset[str]
) -> bool:
    if snapshot.teams is not None and request.team not in snapshot.teams:
        return False
    delayed = request.not_before is not None and request.not_before > snapshot.now
    return request.id in plan.waiting and request.id not in preemptible_requests and not delayed


def _could_hold(node: NodeSnapshot, request: Request) -> bool:
    """Whether the request would fit the node if all slots of the node were free."""
    return allocate((*node.free, *node.held), request) is not None and meets_requirements(node, request)


def _slots_over_limit(request: Request, snapshot: Snapshot, holders: Sequence[Preemptible]) -> int:
    """How many slots its team must release for it, beyond those that become free anyway."""
    limit = snapshot.limits.get(request.team)
    if limit is None:
        return 0
    leaving = sum(len(holder.slots) for holder in holders if holder.team == request.team and holder.leaving)
    return snapshot.used.get(request.team, 0) - leaving + request.slots - limit


def _victims_on_node(
    node: NodeSnapshot,
    request: Request,
    free: Sequence[SlotSnapshot],
    holders: Sequence[Preemptible],
    *,
    over: int,
) -> tuple[str, ...] | None:
    """The fewest holders to preempt so that the request fits the node and the team's quota; empty when slots that
    become free anyway suffice; None when no choice suffices."""
    limited = over > 0  # then holders of its own team first: their slots count for both
    staying = [one for one in holders if not one.leaving]
    staying.sort(
        key=lambda one: (
            limited and one.team != request.team,
            one.node != node.id,
            -len(one.slots),
            one.holder,
        )
    )
    leaving = [one for one in holders if one.leaving]

    def fits(chosen: Sequence[Preemptible]) -> bool:
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
    return tuple(one.holder for one in chosen)
