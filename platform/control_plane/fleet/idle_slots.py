"""Lends the slots that remain idle after the queue is placed to runs that want more engines or an evaluator."""

from __future__ import annotations

from collections import Counter

from control_plane.fleet.placement import PlacedQueue
from control_plane.fleet.preemption import owners_without_headroom
from control_plane.fleet.slot_choice import matching_slots
from control_plane.fleet.snapshot import Loan, Snapshot


def lend_idle_slots(placed: PlacedQueue, snapshot: Snapshot) -> tuple[Loan, ...]:
    """One loan for each loan request, within the limits of its team and project. Slots of nodes that are reserved
    for a queued request stay idle; those of reservations are borrowed until their owner needs them."""
    without_headroom = owners_without_headroom(placed, snapshot)
    reserved = placed.on_reserved.idle()
    idle = {
        node: [*slots, *reserved.get(node, ())]
        for node, slots in placed.free.items()
        if node not in placed.reserved
    }
    borrowed: Counter[str] = Counter()  # team or project → slots borrowed so far
    loans = []
    for wanted in snapshot.loan_requests:
        count = wanted.slots
        for owner, limit, used in placed.usage.limits(wanted.request):
            if owner in without_headroom:
                count = 0
            elif limit is not None:
                count = min(count, max(0, limit - used - borrowed[owner]))
        found = [
            (node, slot)
            for node in wanted.nodes
            for slot in matching_slots(idle.get(node, ()), wanted.request)
        ]
        slots = found[:count]
        for node, slot in slots:
            idle[node].remove(slot)
        borrowed.update({wanted.request.team: len(slots), wanted.request.project: len(slots)})
        loans.append(Loan(wanted, tuple((node, slot.name) for node, slot in slots)))
    return tuple(loans)
