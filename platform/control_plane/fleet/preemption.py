"""Selects holders of slots to preempt for a run that waits: pure functions.

The first request in the queue that waits for slots and would fit without some holders gets their slots: from engines on
idle slots and evaluators first, then from playgrounds and reward tests, and as few as possible. Slots that are about to
become free are waited for.

A request within its team's nominal quota also reclaims slots from runs of teams that borrow, and a request within its
project's nominal quota from runs of its team's projects that hold more than theirs: those first that lose the fewest
GPU-seconds since their last checkpoint. A run that has not had its minimum runtime stays. Two runs never preempt each
other in turn: the one that was preempted is beyond the nominal quota of its team or project, and the other one is
within it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from control_plane.fleet.placement import PlacedQueue, shape_of
from control_plane.fleet.slot_choice import allocate, fewest
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
from control_plane.fleet.spreading import spread

_WAITS_FOR_SLOTS = (
    WaitCode.QUOTA, WaitCode.PROJECT_QUOTA, WaitCode.CAPACITY, WaitCode.BEHIND, WaitCode.RESERVED, WaitCode.MAINTENANCE,
)  # fmt: skip


@dataclass(frozen=True)
class _Excess:
    """Slots that must be released before the quotas admit a request, besides those that become free anyway; 0 or less:
    none."""

    team: int  # by anything of its team, for the team's limit
    project: int  # by anything of its project, for the project's limit
    nominal: int  # by runs of its team, so that the request is within the team's nominal quota

    @property
    def any(self) -> bool:
        return max(self.team, self.project, self.nominal) > 0


def select_victims(placed: PlacedQueue, snapshot: Snapshot) -> tuple[Preemption, ...]:
    """The holders to preempt now."""
    if not snapshot.holders:
        return ()
    on_node: dict[str, list[Holder]] = {}
    for holder in snapshot.holders:
        on_node.setdefault(holder.node, []).append(holder)
    hopeless = set()  # what fits no node, whoever is preempted for it
    for request in _preemptors(placed):
        excess = _excess(request, placed, snapshot)
        if over := placed.networks_for(request):
            if victims := _victims_over_nodes(request, placed, snapshot, over, excess=excess):
                return _preemptions(victims, request)
            continue
        entitled = placed.usage.within_nominal(request)
        own_share = placed.usage.within_project_nominal(request)
        same = (
            shape_of(request), entitled, request.team if excess.any else "",
            request.project if own_share or excess.any else "", excess if excess.any else None,
        )  # fmt: skip
        if same in hopeless:
            continue
        runs = _runs_of_borrowing_teams(placed, snapshot) if entitled else {}
        siblings = _sibling_runs(request, placed, snapshot) if own_share else _NO_SIBLINGS
        elsewhere = _own_holders(request, snapshot, excess)
        choices = []
        for node in snapshot.nodes:
            if not (node.accepts and placed.could_hold(node, request)):
                continue
            holders = [one for one in on_node.get(node.id, ()) if one.kind != HolderKind.RUN or one.leaving]
            holders += runs.get(node.id, [])
            holders += siblings.on_node(node.id)
            coming = sum(len(holder.slots) for holder in holders)
            if len(placed.free[node.id]) + coming < request.slots:
                continue
            holders += [one for one in elsewhere if one.node != node.id]
            if excess.any:
                holders += siblings.elsewhere(node.id)
            chosen = _victims_on_node(node, request, placed.free[node.id], holders, excess=excess)
            if chosen is not None:
                choices.append(chosen)
        if choices:
            return _preemptions(min(choices, key=_cost), request)
        hopeless.add(same)
    return ()


def _preemptions(victims: Sequence[Holder], request: Request) -> tuple[Preemption, ...]:
    return tuple(
        Preemption(holder.id, holder.kind, request.id, holder.lost_gpu_seconds) for holder in victims
    )


def _victims_over_nodes(
    request: Request,
    placed: PlacedQueue,
    snapshot: Snapshot,
    over: Sequence[tuple[NodeSnapshot, ...]],
    *,
    excess: _Excess,
) -> list[Holder]:
    """For a request that is spread over the nodes of a network: the fewest engines on idle slots, playgrounds and
    reward tests to preempt. It preempts no runs, and nothing for its quotas."""
    if excess.any:
        return []
    for network in over:
        nodes = {
            node.id: node
            for node in network
            if node.accepts and placed.reserved.get(node.id, request) is request
        }
        holders = [one for one in snapshot.holders if one.node in nodes]
        leaving = [one for one in holders if one.leaving]
        staying = sorted(
            (one for one in holders if not one.leaving and one.kind != HolderKind.RUN),
            key=lambda one: (one.kind, one.lost_gpu_seconds, -len(one.slots), one.id, one.node),
        )

        chosen = fewest(staying, partial(_fits_over, request, placed, nodes, leaving))
        if chosen is not None:
            return chosen
    return []


def _fits_over(
    request: Request,
    placed: PlacedQueue,
    nodes: Mapping[str, NodeSnapshot],
    leaving: Sequence[Holder],
    chosen: Sequence[Holder],
) -> bool:
    coming = {(one.node, name) for one in (*leaving, *chosen) for name in one.slots}
    slots = {
        name: [*placed.free[name], *(slot for slot in node.held if (name, slot.name) in coming)]
        for name, node in nodes.items()
    }
    return spread(slots, request) is not None


def _cost(victims: Sequence[Holder]) -> tuple[bool, float, int, int]:
    runs = [holder for holder in victims if holder.kind == HolderKind.RUN]
    playgrounds = sum(holder.kind == HolderKind.PLAYGROUND for holder in victims)
    return bool(runs), sum(run.lost_gpu_seconds for run in runs), playgrounds, len(victims)


def _runs_of_borrowing_teams(placed: PlacedQueue, snapshot: Snapshot) -> dict[str, list[Holder]]:
    """Node → the runs on it that a request within its team's nominal quota may preempt: each team and project gives up
    runs only while it holds more than its nominal quota."""
    runs = [holder for holder in snapshot.holders if holder.kind == HolderKind.RUN]
    left = _beyond_nominal(runs, placed, snapshot)
    # (node, team or project) → slots beyond its quota that it would still hold
    on_node: dict[tuple[str, str], float] = {}
    found: dict[str, list[Holder]] = {}
    for run in _by_loss(runs):
        team, project = (run.node, run.team), (run.node, run.project)
        on_node.setdefault(team, left[run.team])
        on_node.setdefault(project, left[run.project])
        if on_node[team] > 0 and on_node[project] > 0:
            on_node[team] -= len(run.slots)
            on_node[project] -= len(run.slots)
            found.setdefault(run.node, []).append(run)
    return found


@dataclass(frozen=True)
class _SiblingRuns:
    """The runs of the team's other projects that a request within its project's nominal quota may preempt: each project
    gives up runs only while it holds more than its nominal quota, those on the node of the request before others."""

    by_node: dict[str, list[Holder]]  # those first that lose least
    beyond: dict[str, float]  # project → slots beyond its nominal quota

    def on_node(self, node: str) -> list[Holder]:
        return _within_budget(self.by_node.get(node, ()), dict(self.beyond))

    def elsewhere(self, node: str) -> list[Holder]:
        left = dict(self.beyond)
        _within_budget(self.by_node.get(node, ()), left)
        return _within_budget(
            _by_loss(run for name, runs in self.by_node.items() if name != node for run in runs), left
        )


_NO_SIBLINGS = _SiblingRuns({}, {})


def _sibling_runs(request: Request, placed: PlacedQueue, snapshot: Snapshot) -> _SiblingRuns:
    runs = [
        holder
        for holder in snapshot.holders
        if holder.kind == HolderKind.RUN and holder.team == request.team and holder.project != request.project
    ]
    by_node: dict[str, list[Holder]] = {}
    for run in _by_loss(runs):
        by_node.setdefault(run.node, []).append(run)
    return _SiblingRuns(by_node, _beyond_nominal(runs, placed, snapshot))


def _within_budget(runs: Iterable[Holder], left: dict[str, float]) -> list[Holder]:
    """The first of the runs, while their project has slots left. Subtracts theirs from `left`."""
    found = []
    for run in runs:
        if left[run.project] > 0:
            left[run.project] -= len(run.slots)
            found.append(run)
    return found


def _beyond_nominal(runs: Iterable[Holder], placed: PlacedQueue, snapshot: Snapshot) -> dict[str, float]:
    """Team or project → slots beyond its nominal quota that its runs would hold once those that leave are gone. A
    project without a quota has nothing of its own."""
    left: dict[str, float] = {}
    for run in runs:
        team, project = snapshot.quota(run.team), snapshot.project_quotas.get(run.project)
        if run.team not in left:
            left[run.team] = placed.usage.held.get(run.team, 0) - team.nominal
        if run.project not in left:
            held = placed.usage.project_held.get(run.project, 0)
            left[run.project] = math.inf if project is None else held - project.nominal
        if run.leaving:
            left[run.team] -= len(run.slots)
            left[run.project] -= len(run.slots)
    return left


def _by_loss(runs: Iterable[Holder]) -> list[Holder]:
    """The runs that can be preempted now, those first that lose least."""
    stoppable = [run for run in runs if not (run.leaving or run.protected)]
    return sorted(stoppable, key=lambda one: (one.lost_gpu_seconds, -len(one.slots), one.id))


def _own_holders(request: Request, snapshot: Snapshot, excess: _Excess) -> list[Holder]:
    """Holders other than runs whose slots count toward a limit that the request exceeds."""
    return [
        one
        for one in snapshot.holders
        if one.kind != HolderKind.RUN
        and (
            (excess.team > 0 and one.team == request.team)
            or (excess.project > 0 and one.project == request.project)
        )
    ]


def owners_without_headroom(placed: PlacedQueue, snapshot: Snapshot) -> frozenset[str]:
    """Teams and projects with a waiting run that fits their limit without the holders, but not with one more borrowed
    slot. Whoever borrowed that slot would be preempted at once, and the run would wait for one borrower after the
    other."""
    found = set()
    borrowed: Counter[str] = Counter()
    for holder in snapshot.holders:
        if holder.kind != HolderKind.RUN:
            borrowed.update({holder.team: len(holder.slots), holder.project: len(holder.slots)})
    for request in _preemptors(placed):
        for owner, limit, used in placed.usage.limits(request):
            with_it = used + request.slots
            if limit is not None and with_it - borrowed[owner] <= limit < with_it + 1:
                found.add(owner)
    return frozenset(found)


def _preemptors(placed: PlacedQueue) -> list[Request]:
    """The waiting requests that may preempt, in the order of the queue."""
    return [
        request
        for request in placed.order
        if request.id in placed.waiting
        and request.id not in placed.on_reserved.claims
        and not request.preemptible
        and (
            placed.waiting[request.id].code in _WAITS_FOR_SLOTS
            or (
                placed.waiting[request.id].code == WaitCode.NOT_LENT
                and placed.usage.within_project_nominal(request)
            )
        )
    ]


def _excess(request: Request, placed: PlacedQueue, snapshot: Snapshot) -> _Excess:
    leaving = [holder for holder in snapshot.holders if holder.leaving]

    def over(limit: int | None, used: int, coming: Iterable[Holder]) -> int:
        return 0 if limit is None else used + request.slots - sum(len(one.slots) for one in coming) - limit

    usage, team = placed.usage, snapshot.quota(request.team)
    of_team = [holder for holder in leaving if holder.team == request.team]
    # Where no other team lends it more, the team's other projects return what they hold of its nominal quota.
    unlent = placed.waiting[request.id].code == WaitCode.NOT_LENT
    runs = [holder for holder in of_team if holder.kind == HolderKind.RUN]
    return _Excess(
        team=over(team.limit, usage.used.get(request.team, 0), of_team),
        project=over(
            snapshot.project_quota(request.project).limit,
            usage.project_used.get(request.project, 0),
            [holder for holder in leaving if holder.project == request.project],
        ),
        nominal=over(team.nominal, usage.held.get(request.team, 0), runs) if unlent else 0,
    )


def _victims_on_node(
    node: NodeSnapshot,
    request: Request,
    free: Sequence[SlotSnapshot],
    holders: Sequence[Holder],
    *,
    excess: _Excess,
) -> list[Holder] | None:
    """The fewest holders to preempt so that the request fits the node and the quotas; empty when slots that become free
    anyway suffice; None when no choice suffices."""
    staying = [one for one in holders if not one.leaving]
    staying.sort(
        key=lambda one: (
            # Holders of its own first while a limit is exceeded: their slots count for both.
            excess.project > 0 and one.project != request.project,
            max(excess.team, excess.nominal) > 0 and one.team != request.team,
            excess.nominal > 0 and one.kind != HolderKind.RUN,
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
        of_team = sum(len(one.slots) for one in chosen if one.team == request.team)
        of_project = sum(len(one.slots) for one in chosen if one.project == request.project)
        of_runs = sum(
            len(one.slots) for one in chosen if one.team == request.team and one.kind == HolderKind.RUN
        )
        released = of_team >= excess.team and of_project >= excess.project and of_runs >= excess.nominal
        return released and allocate(slots, request) is not None

    return fewest(staying, fits)
