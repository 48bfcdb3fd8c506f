"""Lends the slots that remain idle after the queue is placed to runs that want more engines or an evaluator."""

from __future__ import annotations

from control_plane.fleet.placement import PlacedQueue, matching_slots
from control_plane.fleet.preemption import owners_without_headroom
from control_plane.fleet.snapshot import Loan, Snapshot


def lend_idle_slots(placed: PlacedQueue, snapshot: Snapshot) -> tuple[Loan, ...]:
    """One loan for each loan request, within the limits of its team and project. Slots of nodes that are reserved
    for a queued request stay idle."""
    without_headroom = owners_without_headroom(placed, snapshot)
    idle = {node: list(slots) for node, slots in placed.free.items() if node not in placed.reserved}
    used, project_used = dict(placed.usage.used), dict(placed.usage.project_used)
    loans = []
    for wanted in snapshot.loan_requests:
        team, project = wanted.request.team, wanted.request.project
        limits = (
            (snapshot.quota(team).limit, used.get(team, 0)),
            (snapshot.project_quota(project).limit, project_used.get(project, 0)),
        )
        headroom = min(
            (max(0, limit - held) for limit, held in limits if limit is not None), default=wanted.slots
        )
        count = 0 if {team, project} & without_headroom else min(wanted.slots, headroom)
        slots = matching_slots(idle.get(wanted.node, ()), wanted.request)[:count]
        for slot in slots:
            idle[wanted.node].remove(slot)
        used[team] = used.get(team, 0) + len(slots)
        project_used[project] = project_used.get(project, 0) + len(slots)
        loans.append(Loan(wanted, tuple(slot.name for slot in slots)))
    return tuple(loans)
