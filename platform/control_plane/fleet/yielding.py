"""Which slots that nobody needed are taken back for a run that waits: a pure function.

Yielding holders have a slot only because it was free. The first request of the queue that waits for slots and would
fit if some of them went gets them, from as few holders as possible; what comes free already is waited for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from control_plane.fleet.scheduler import (
    NodeView,
    Plan,
    Request,
    Snapshot,
    capacity,
    offers,
    order,
    suiting,
)


@dataclass(frozen=True)
class Yielding:
    holder: str
    team: str
    node: str
    slots: int
    leaves: bool  # it was told to go: its slots come free by themselves


def who_goes(
    decided: Plan, snapshot: Snapshot, holders: Sequence[Yielding], *, yielding_requests: frozenset[str]
) -> tuple[str, ...]:
    """Which of the holders are to go now. `yielding_requests`: of the queue, those that take no slot from anybody."""
    placed = {(placement.node, slot) for placement in decided.placements for slot in placement.slots}
    for request in order(snapshot.queue):
        if not _waits(request, decided, snapshot, yielding_requests):
            continue
        over = _over_the_limit(request, snapshot, holders)
        choices = []
        for node in snapshot.nodes:
            if not (node.accepts and _may_hold(node, request)):
                continue
            free = sum((node.id, slot.name) not in placed for slot in suiting(node.free, request))
            chosen = _for_node(node.id, request, free, holders, over=over)
            if chosen is not None:
                choices.append(chosen)
        if choices:
            return min(choices, key=len)
    return ()


def teams_to_spare(
    decided: Plan, snapshot: Snapshot, holders: Sequence[Yielding], *, yielding_requests: frozenset[str]
) -> frozenset[str]:
    """Teams of which a run waits that fits below the limit without the holders, and not with one slot more: whoever
    got that would have to go, and the run would wait for ever for one after the other."""
    found = set()
    for request in snapshot.queue:
        limit = snapshot.limits.get(request.team)
        if limit is None or not _waits(request, decided, snapshot, yielding_requests):
            continue
        with_it = decided.used.get(request.team, 0) + request.slots
        own = sum(holder.slots for holder in holders if holder.team == request.team)
        if with_it - own <= limit < with_it + 1:
            found.add(request.team)
    return frozenset(found)


def _waits(request: Request, decided: Plan, snapshot: Snapshot, yielding_requests: frozenset[str]) -> bool:
    if snapshot.teams is not None and request.team not in snapshot.teams:
        return False  # no slot that comes free is for it
    delayed = request.not_before is not None and request.not_before > snapshot.now
    return request.id in decided.waiting and request.id not in yielding_requests and not delayed


def _may_hold(node: NodeView, request: Request) -> bool:
    """Whether it would be placed there if all of the node's slots were free."""
    return (
        capacity(node, request) >= request.slots
        and node.protocol >= request.protocol
        and offers(node, request)
    )


def _over_the_limit(request: Request, snapshot: Snapshot, holders: Sequence[Yielding]) -> int:
    """How many slots its own team has too many for it, without those that come free by themselves."""
    limit = snapshot.limits.get(request.team)
    if limit is None:
        return 0
    leaving = sum(holder.slots for holder in holders if holder.team == request.team and holder.leaves)
    return snapshot.used.get(request.team, 0) - leaving + request.slots - limit


def _for_node(
    node: str, request: Request, free: int, holders: Sequence[Yielding], *, over: int
) -> tuple[str, ...] | None:
    """The fewest holders that make room on a node and below the team's limit; none when what comes free is enough;
    None when it is hopeless."""
    coming = free + sum(holder.slots for holder in holders if holder.node == node and holder.leaves)
    chosen: list[str] = []
    limited = over > 0  # then those of its own team go first, whose slots count for both
    for holder in sorted(
        (one for one in holders if not one.leaves),
        key=lambda one: (limited and one.team != request.team, one.node != node, -one.slots, one.holder),
    ):
        own, there = holder.team == request.team, holder.node == node
        if (own and over > 0) or (there and coming < request.slots):
            chosen.append(holder.holder)
            over -= holder.slots if own else 0
            coming += holder.slots if there else 0
    return tuple(chosen) if coming >= request.slots and over <= 0 else None
