"""Selects holders of slots to preempt for a run that waits: pure functions.

The first request in the queue that waits for slots and would fit without some holders gets their slots: from engines on
idle slots and evaluators first, then from playgrounds and reward tests, and as few as possible. Slots that are about to
become free are waited for.

A request within its team's nominal quota also reclaims slots from runs of teams that borrow, those first that lose the
fewest GPU-seconds since their last checkpoint. A run that has not had its minimum runtime stays. Two runs never preempt
each other in turn: the one that was preempted is beyond its team's nominal quota, and the other one is within it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from control_plane.fleet.placement import PlacedQueue, allocate, shape_of, within_nominal
from control_plane.fleet.snapshot import (
    Holder,
    HolderKind,
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
    on_node: dict[str, list[Holder]] = {}
    for holder in snapshot.holders:
        on_node.setdefault(holder.node, []).append(holder)
    hopeless = set()  # what fits no node, whoever is preempted for it
    for request in _preemptors(placed):
        over, entitled = _slots_over_limit(request, snapshot), within_nominal(request, placed, snapshot)
        same = (shape_of(request), entitled, (over, request.team) if over > 0 else None)
        if same in hopeless:
            continue
        own = [one for one in snapshot.holders if one.team == request.team and one.kind != HolderKind.RUN]
        runs = _reclaimable_runs(placed, snapshot) if entitled else {}
        choices = []
        for node in snapshot.nodes:
            if not (node.accepts and placed.could_hold(node, request)):
                continue
            holders = [one for one in on_node.get(node.id, ()) if one.kind != HolderKind.RUN or one.leaving]
            holders += runs.get(node.id, [])
            coming = sum(len(holder.slots) for holder in holders)
            if len(placed.free[node.id]) + coming < request.slots:
                continue
            if over > 0:
                holders += [one for one in own if one.node != node.id]
            chosen = _victims_on_node(node, request, placed.free[node.id], holders, over=over)
            if chosen is not None:
                choices.append(chosen)
        if choices:
            return tuple(
                Preemption(holder.id, holder.kind, request.id, holder.lost_gpu_seconds)
                for holder in min(choices, key=_cost)
            )
        hopeless.add(same)
    return ()


def _cost(victims: Sequence[Holder]) -> tuple[bool, float, int, int]:
    runs = [holder for holder in victims if holder.kind == HolderKind.RUN]
    playgrounds = sum(holder.kind == HolderKind.PLAYGROUND for holder in victims)
    return bool(runs), sum(run.lost_gpu_seconds for run in runs), playgrounds, len(victims)


def _reclaimable_runs(placed: PlacedQueue, snapshot: Snapshot) -> dict[str, list[Holder]]:
    """Node → the runs on it that a request within its team's nominal quota may preempt: each team gives up runs only
    while it borrows."""
    borrowed = {team: held - snapshot.quota(team).nominal for team, held in placed.held.items()}
    runs = [holder for holder in snapshot.holders if holder.kind == HolderKind.RUN]
    for run in runs:
        borrowed[run.team] = borrowed.get(run.team, 0) - (len(run.slots) if run.leaving else 0)
    left: dict[tuple[str, str], int] = {}  # node, team → slots that the team would still borrow
    found: dict[str, list[Holder]] = {}
    for run in sorted(runs, key=lambda one: (one.lost_gpu_seconds, -len(one.slots), one.id)):
        key = (run.node, run.team)
        if left.setdefault(key, borrowed[run.team]) > 0 and not (run.leaving or run.protected):
            left[key] -= len(run.slots)
            found.setdefault(run.node, []).append(run)
    return found


def teams_without_headroom(placed: PlacedQueue, snapshot: Snapshot) -> frozenset[str]:
    """Teams with a waiting run that fits their quota without the holders, but not with one more borrowed slot. Whoever
    borrowed that slot would be preempted at once, and the run would wait for one borrower after the other."""
    found = set()
    own: Counter[str] = Counter()
    for holder in snapshot.holders:
        own[holder.team] += len(holder.slots) if holder.kind != HolderKind.RUN else 0
    for request in _preemptors(placed):
        limit = snapshot.quota(request.team).limit
        if limit is None:
            continue
        with_it = placed.used.get(request.team, 0) + request.slots
        if with_it - own[request.team] <= limit < with_it + 1:
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
    limit = snapshot.quota(request.team).limit
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
            one.kind,
            one.node != node.id,
            one.lost_gpu_seconds,
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
