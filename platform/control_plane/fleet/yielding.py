"""Which slots that nobody needed are taken back for a run that waits: a pure function.

Yielding holders have a slot only because it was free. The first request of the queue that waits for slots and would
fit if some of them went gets them, from as few holders as possible; what comes free already is waited for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from control_plane.fleet.scheduler import Plan, Request, Snapshot, order


@dataclass(frozen=True)
class Yielding:
    run: str
    team: str
    node: str
    slots: int
    leaves: bool  # it was told to go: its slots come free by themselves


def runs_to_end(
    decided: Plan, snapshot: Snapshot, holders: Sequence[Yielding], *, yielding_requests: frozenset[str]
) -> tuple[str, ...]:
    """Runs of `holders` to be ended now. `yielding_requests`: of the queue, those that take no slot from anybody."""
    free = {node.id: len(node.free) for node in snapshot.nodes if node.accepts}
    for placement in decided.placements:
        free[placement.node] -= len(placement.slots)
    total = {node.id: node.total for node in snapshot.nodes}
    used = Counter(snapshot.used)
    for request in order(snapshot.queue):
        waits = request.id in decided.waiting and request.id not in yielding_requests
        delayed = request.not_before is not None and request.not_before > snapshot.now
        if not waits or delayed or not _within_limit(request, used, snapshot, holders):
            continue
        choices = [
            chosen
            for node in free
            if total[node] >= request.slots
            and (chosen := _from_node(node, request, free[node], holders)) is not None
        ]
        if choices:
            return min(choices, key=len)
    return ()


def _within_limit(
    request: Request, used: Counter[str], snapshot: Snapshot, holders: Sequence[Yielding]
) -> bool:
    limit = snapshot.limits.get(request.team)
    own = sum(holder.slots for holder in holders if holder.team == request.team)
    return limit is None or used[request.team] - own + request.slots <= limit


def _from_node(node: str, request: Request, free: int, holders: Sequence[Yielding]) -> tuple[str, ...] | None:
    """The fewest holders of a node whose slots are enough; none when what comes free is; None when it is hopeless."""
    there = [holder for holder in holders if holder.node == node]
    coming = free + sum(holder.slots for holder in there if holder.leaves)
    chosen: list[str] = []
    for holder in sorted((one for one in there if not one.leaves), key=lambda one: (-one.slots, one.run)):
        if coming >= request.slots:
            break
        coming += holder.slots
        chosen.append(holder.run)
    return tuple(chosen) if coming >= request.slots else None
