"""Lends the slots that remain idle after the queue is placed to runs that want more engines or an evaluator."""

from __future__ import annotations

from control_plane.fleet.placement import PlacedQueue, matching_slots
from control_plane.fleet.preemption import teams_without_headroom
from control_plane.fleet.snapshot import Loan, Snapshot


def lend_idle_slots(placed: PlacedQueue, snapshot: Snapshot) -> tuple[Loan, ...]:
    """One loan for each loan request, within the limit of its team. Slots of nodes that are reserved for a queued
    request stay idle."""
    without_headroom = teams_without_headroom(placed, snapshot)
    idle = {node: list(slots) for node, slots in placed.free.items() if node not in placed.reserved}
    used = dict(placed.used)
    loans = []
    for wanted in snapshot.loan_requests:
        team, limit = wanted.request.team, snapshot.quota(wanted.request.team).limit
        headroom = wanted.slots if limit is None else max(0, limit - used.get(team, 0))
        count = 0 if team in without_headroom else min(wanted.slots, headroom)
        slots = matching_slots(idle.get(wanted.node, ()), wanted.request)[:count]
        for slot in slots:
            idle[wanted.node].remove(slot)
        used[team] = used.get(team, 0) + len(slots)
        loans.append(Loan(wanted, tuple(slot.name for slot in slots)))
    return tuple(loans)
