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
    SlotView,
    Snapshot,
    allocate,
    offers,
    order,
)


@dataclass(frozen=True)
class Yielding:
    holder: str
    team: str
    node: str
    slots: tuple[str, ...]  # names
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
            free = [slot for slot in node.free if (node.id, slot.name) not in placed]
            chosen = _for_node(node, request, free, holders, over=over)
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
        own = sum(len(holder.slots) for holder in holders if holder.team == request.team)
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
        allocate((*node.free, *node.held), request) is not None
        and node.protocol >= request.protocol
        and offers(node, request)
    )


def _over_the_limit(request: Request, snapshot: Snapshot, holders: Sequence[Yielding]) -> int:
    """How many slots its own team has too many for it, without those that come free by themselves."""
    limit = snapshot.limits.get(request.team)
    if limit is None:
        return 0
    leaving = sum(len(holder.slots) for holder in holders if holder.team == request.team and holder.leaves)
    return snapshot.used.get(request.team, 0) - leaving + request.slots - limit


def _for_node(
    node: NodeView, request: Request, free: Sequence[SlotView], holders: Sequence[Yielding], *, over: int
) -> tuple[str, ...] | None:
    """The fewest holders that make room on a node and below the team's limit; none when what comes free is enough;
    None when it is hopeless."""
    limited = over > 0  # then those of its own team go first, whose slots count for both
    staying = [one for one in holders if not one.leaves]
    staying.sort(
        key=lambda one: (
            limited and one.team != request.team,
            one.node != node.id,
            -len(one.slots),
            one.holder,
        )
    )
    leaving = [one for one in holders if one.leaves]

    def fits(chosen: Sequence[Yielding]) -> bool:
        coming = {name for one in (*leaving, *chosen) if one.node == node.id for name in one.slots}
        slots = (*free, *(slot for slot in node.held if slot.name in coming))
        freed = sum(len(one.slots) for one in chosen if one.team == request.team)
        return over <= freed and allocate(slots, request) is not None

    chosen = list(staying)
    if not fits(chosen):
        return None
    for holder in reversed(staying):  # who is last in the order stays first
        others = [one for one in chosen if one is not holder]
        chosen = others if fits(others) else chosen
    return tuple(one.holder for one in chosen)
