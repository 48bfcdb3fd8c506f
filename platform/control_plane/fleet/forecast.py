"""Forecasts when the requests of a pool start, by replaying the scheduler on predicted durations: pure functions.

A duration is a distribution: lognormal through its median (p50) and its 90th percentile (p90). Nine futures are
replayed, each with other durations: in each of them every run ends at another ninth of its distribution, in an order of
its own that depends on its ID alone. The median of the nine starts is the p50. The latest one is the p90: if the true
future is like the nine, it is the latest of ten with probability 1/10.

A run whose duration is unknown never ends in a replay, and what has to wait for it is unknown as well. Requests that
are submitted later are not in the replay.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import lru_cache
from statistics import NormalDist

from control_plane.fleet.reservations import RELEASE_LEAD
from control_plane.fleet.scheduler import plan
from control_plane.fleet.snapshot import (
    Holder,
    HolderKind,
    NodeSnapshot,
    Placement,
    Preemption,
    Request,
    SlotSnapshot,
    Snapshot,
    WaitCode,
)

FUTURES = 9
MAX_REQUESTS = 50  # of the queue that are replayed, from its head
MAX_PLANS = 60  # of one future
MAX_COST = 24_000  # of one future: plans times (requests and slots of the pool)
GRAIN = 0.03  # ends of runs within this part of the time until them count as simultaneous
MIN_GRAIN_SECONDS = 10.0
# From a preemption to the free slots: an engine ends its requests; a trainer saves a checkpoint.
RELEASE_SECONDS = {HolderKind.ENGINE: 5.0, HolderKind.PLAYGROUND: 15.0, HolderKind.RUN: 90.0}

LONGEST_SECONDS = 10 * 365 * 86_400.0  # a run that ends later does not end

_Z90 = NormalDist().inv_cdf(0.9)


@dataclass(frozen=True)
class Duration:
    """Predicted seconds. With p90 alone, it is an upper bound and nothing else is known."""

    p50: float | None = None
    p90: float | None = None

    @property
    def is_bound(self) -> bool:
        return self.p50 is None and self.p90 is not None

    def quantile(self, share: float) -> float:
        """Infinite where it is unknown."""
        if self.p50 is None:
            return math.inf
        if self.p90 is None:
            return self.p50 if share <= 0.5 else math.inf
        middle, late = max(self.p50, 1.0), max(self.p90, self.p50, 1.0)
        return middle * (late / middle) ** (NormalDist().inv_cdf(share) / _Z90)


UNKNOWN = Duration()


@dataclass(frozen=True)
class Occupant:
    """A run that holds slots of a node."""

    request: Request  # with which it waits again when it is preempted
    node: str
    slots: tuple[str, ...]  # names, borrowed ones included
    remaining: Duration = UNKNOWN
    others: tuple[tuple[str, tuple[str, ...]], ...] = ()  # further nodes with ranks of its trainer


@dataclass(frozen=True)
class Start:
    """Seconds from now; None: unknown, and `reason` says why."""

    p50: float | None
    p90: float | None
    reason: str = ""


def forecast(
    snapshot: Snapshot,
    occupants: Sequence[Occupant],
    durations: Mapping[str, Duration],
    *,
    watch: Collection[str] | None = None,
    min_runtime: float = 0.0,
) -> dict[str, Start]:
    """When the requests of the queue, or only those of `watch`, start. `durations` are those of the queue, by request.

    The same result for the same input. The cost is bounded by MAX_PLANS and MAX_COST plans of each future.
    """
    first = plan(replace(snapshot, loan_requests=()))
    starts: dict[str, Start] = {}
    wanted = {request.id for request in snapshot.queue} if watch is None else set(watch)
    placed = {placement.request for placement in first.placements}
    replayed = set(placed)
    for request, wait in first.waiting.items():
        if wait.code is WaitCode.NEVER_FITS:
            starts[request] = Start(None, None, "it cannot start on the nodes that the pool has now")
        elif wait.code is WaitCode.BUDGET:
            starts[request] = Start(None, None, "it waits for a budget")
        elif len(replayed) - len(placed) < MAX_REQUESTS:
            replayed.add(request)
        else:
            starts[request] = Start(None, None, f"more than {MAX_REQUESTS} runs wait ahead of it")
    starts |= {request: Start(0.0, 0.0) for request in placed}
    watched = (wanted & replayed) - placed
    if watched:
        cost = len(replayed) + sum(len(node.free) + len(node.held) for node in snapshot.nodes)
        pool = _Pool(
            replace(
                snapshot,
                queue=[request for request in snapshot.queue if request.id in replayed],
                loan_requests=(),
            ),
            occupants,
            durations,
            watched,
            min_runtime=min_runtime,
            plans=max(2, min(MAX_PLANS, MAX_COST // cost)),
        )
        starts |= _summary(pool)
    return {request: starts[request] for request in wanted if request in starts}


@dataclass(frozen=True)
class _Pool:
    snapshot: Snapshot
    occupants: Sequence[Occupant]
    durations: Mapping[str, Duration]
    watched: set[str]
    min_runtime: float
    plans: int  # at most


def _summary(pool: _Pool) -> dict[str, Start]:
    futures = [_Future(pool, number, bounds=False) for number in range(FUTURES)]
    found = [future.play() for future in futures]
    known = [one.remaining for one in pool.occupants] + list(pool.durations.values())
    bounded = found
    if any(duration.is_bound for duration in known):
        later = [_Future(pool, number, bounds=True) for number in range(FUTURES)]
        bounded = [future.play() for future in later]
    summary = {}
    for request in pool.watched:
        p50 = sorted(starts.get(request, math.inf) for starts in found)[FUTURES // 2]
        p90 = max(starts.get(request, math.inf) for starts in bounded)
        reason = ""
        if math.isinf(p90):
            reason = (
                "too many runs have to end before it"
                if any(future.cut_off for future in futures)
                else "it waits for runs whose end is unknown"
            )
        known_p50 = None if math.isinf(p50) else p50
        summary[request] = Start(known_p50, None if math.isinf(p90) else max(p90, known_p50 or 0.0), reason)
    return summary


@lru_cache(maxsize=4096)
def _shares(run: str) -> tuple[float, ...]:
    """The share of its distribution at which a run ends in each future."""
    order = list(range(FUTURES))
    random.Random(run).shuffle(order)
    return tuple((number + 0.5) / FUTURES for number in order)


@dataclass
class _Active:
    request: Request
    node: str
    slots: set[str]
    ends_at: float
    started_at: float = 0.0
    attempt: int = 0
    others: tuple[tuple[str, tuple[str, ...]], ...] = ()  # slots of further nodes


@dataclass
class _Future:
    """One replay."""

    pool: _Pool
    number: int
    bounds: bool  # runs of which only an upper bound is known end there; otherwise never
    cut_off: bool = False  # the most plans were made
    now: float = 0.0
    starts: dict[str, float] = field(default_factory=dict)

    def play(self) -> dict[str, float]:
        """Request → seconds until it starts; those that never start are left out."""
        self._set_up()
        for _ in range(self.pool.plans):
            self._plan()
            if self.pool.watched <= self.starts.keys() or not self._pass_time():
                return self.starts
        self.cut_off = True
        return self.starts

    def _set_up(self) -> None:
        snapshot = self.pool.snapshot
        self.slots: dict[str, tuple[SlotSnapshot, ...]] = {}
        self.busy: dict[str, set[str]] = {}
        self.nodes: dict[str, NodeSnapshot] = {}
        for node in snapshot.nodes:
            order = sorted((*node.free, *node.held), key=lambda slot: slot.name)
            self.slots[node.id] = tuple(order)
            self.busy[node.id] = {slot.name for slot in node.held}
            self.nodes[node.id] = node
        self.queue = {request.id: request for request in snapshot.queue}
        self.used, self.project_used = dict(snapshot.used), dict(snapshot.project_used)
        # Of a run over several nodes, the part on its first one.
        self.holders = {holder.id: holder for holder in reversed(snapshot.holders)}
        self.preempts_runs = bool(snapshot.reservations) or any(
            quota.nominal for quota in snapshot.quotas.values()
        )
        self.reservations = list(snapshot.reservations)
        self.events: list[tuple[float, str, str, int]] = []
        self.active: dict[str, _Active] = {}
        self.left: dict[str, float] = {}  # of runs that were preempted: seconds that they still need
        for one in self.pool.occupants:
            ends_at = self._sample(one.request.id, one.remaining)
            self.active[one.request.id] = _Active(
                one.request, one.node, set(one.slots), ends_at, others=one.others
            )
            self._at(ends_at, "end", one.request.id)
        for holder in snapshot.holders:
            if holder.leaving:
                self._at(RELEASE_SECONDS[holder.kind], "gone", holder.id)
        for request in snapshot.queue:
            if request.not_before is not None:
                self._at((request.not_before - snapshot.now).total_seconds(), "wake", request.id)
        for node in snapshot.nodes:
            if node.returns_at is not None:
                self._at((node.returns_at - snapshot.now).total_seconds(), "wake", "")
        for reservation in snapshot.reservations:
            start, end = reservation.starts_at, reservation.ends_at
            for at in (start - RELEASE_LEAD, start, end):
                if at > snapshot.now:
                    self._at((at - snapshot.now).total_seconds(), "wake", "")
        if any(holder.protected for holder in snapshot.holders):
            self._at(self.pool.min_runtime, "wake", "")

    def _sample(self, run: str, duration: Duration) -> float:
        if duration.is_bound:
            return duration.p90 if self.bounds and duration.p90 is not None else math.inf
        return duration.quantile(_shares(run)[self.number])

    def _at(self, at: float, event: str, of: str, attempt: int = 0) -> None:
        if at < LONGEST_SECONDS:
            heapq.heappush(self.events, (at, event, of, attempt))

    # --- the scheduler

    def _plan(self) -> None:
        snapshot = self.pool.snapshot
        now = snapshot.now + timedelta(seconds=self.now)
        decided = plan(
            replace(
                snapshot,
                now=now,
                nodes=[
                    replace(node, accepts=True, state="")
                    if node.returns_at is not None and node.returns_at <= now
                    else node
                    for node in self.nodes.values()
                ],
                queue=list(self.queue.values()),
                used=self.used,
                project_used=self.project_used,
                holders=[self._aged(holder) for holder in self.holders.values()],
                free_at=self._free_at(),
                reservations=self.reservations,
            )
        )
        self.reservations = [
            replace(one, allocation=decided.allocations.get(one.id, one.allocation))
            for one in self.reservations
        ]
        for placement in decided.placements:
            self._start(placement)
        for preemption in decided.preemptions:
            self._preempt(preemption)

    def _free_at(self) -> dict[tuple[str, str], datetime]:
        """The ends in this future are the predictions of its scheduler."""
        now = self.pool.snapshot.now
        return {
            (one.node, slot): now + timedelta(seconds=one.ends_at)
            for one in self.active.values()
            if one.ends_at < LONGEST_SECONDS
            for slot in one.slots
        } | {
            (node, slot): now + timedelta(seconds=one.ends_at)
            for one in self.active.values()
            if one.ends_at < LONGEST_SECONDS
            for node, slots in one.others
            for slot in slots
        }

    def _aged(self, holder: Holder) -> Holder:
        if holder.kind != HolderKind.RUN:
            return holder
        active = self.active.get(holder.id)
        since = active.started_at if active is not None else 0.0
        return replace(
            holder,
            protected=holder.protected and self.now - since < self.pool.min_runtime,
            lost_gpu_seconds=holder.lost_gpu_seconds + len(holder.slots) * (self.now - since),
        )

    def _start(self, placement: Placement) -> None:
        name, node, slots = placement.request, placement.node, placement.slots
        request = self.queue.pop(name)
        self.starts.setdefault(name, self.now)
        seconds = self.left.pop(name, None)
        if seconds is None:
            seconds = self._sample(name, self.pool.durations.get(name, UNKNOWN))
        attempt = self.active[name].attempt + 1 if name in self.active else 0
        self.active[name] = _Active(
            request, node, set(slots), self.now + seconds, self.now, attempt, placement.others
        )
        self._at(self.now + seconds, "end", name, attempt)
        for node_id, names in placement.parts:
            self.busy[node_id] |= set(names)
            self._count(request, len(names))
            self._renew(node_id)
        if request.preemptible or self.preempts_runs:
            kind = HolderKind.PLAYGROUND if request.preemptible else HolderKind.RUN
            self.holders[name] = Holder(
                name, request.team, node, slots, False, kind, self.pool.min_runtime > 0, 0.0, request.project
            )
            self._at(self.now + self.pool.min_runtime, "wake", "")

    def _preempt(self, preemption: Preemption) -> None:
        holder = self.holders[preemption.holder]
        if not holder.leaving:
            self.holders[holder.id] = replace(holder, leaving=True)
            self._at(self.now + RELEASE_SECONDS[holder.kind], "gone", holder.id)
            self._at(self.now + 1.0, "wake", "")

    # --- time

    def _pass_time(self) -> bool:
        """Apply the next events. False when nothing will happen any more."""
        if not self.events:
            return False
        until = self.events[0][0] + max(MIN_GRAIN_SECONDS, GRAIN * self.events[0][0])
        while self.events and self.events[0][0] <= until:
            at, event, of, attempt = heapq.heappop(self.events)
            self.now = max(self.now, at)
            if event == "end" and of in self.active and self.active[of].attempt == attempt:
                self._release(of)
            elif event == "gone" and of in self.holders:
                self._leave(self.holders[of])
        return True

    def _leave(self, holder: Holder) -> None:
        active = self.active.get(holder.id)
        if active is None:  # an engine of a run
            del self.holders[holder.id]
            for one in self.active.values():
                if one.node == holder.node and one.slots >= set(holder.slots):
                    one.slots -= set(holder.slots)
                    self._free(one, set(holder.slots))
            return
        was_leaving = any(one.id == holder.id and one.leaving for one in self.pool.snapshot.holders)
        left = active.ends_at - self.now
        self._release(holder.id)
        if holder.kind == HolderKind.RUN and not was_leaving:
            self.queue[holder.id], self.left[holder.id] = active.request, left

    def _release(self, run: str) -> None:
        active = self.active[run]
        slots, active.slots, active.attempt = active.slots, set(), active.attempt + 1
        self.holders = {
            identity: holder
            for identity, holder in self.holders.items()
            if identity != run and not (holder.node == active.node and slots >= set(holder.slots))
        }
        self._free(active, slots)
        for node, names in active.others:
            self.busy[node] -= set(names)
            self._renew(node)
            self._count(active.request, -len(names))
        active.others = ()

    def _free(self, active: _Active, slots: set[str]) -> None:
        if active.node in self.busy:
            self.busy[active.node] -= slots
            self._renew(active.node)
        self._count(active.request, -len(slots))

    def _count(self, request: Request, slots: int) -> None:
        self.used[request.team] = self.used.get(request.team, 0) + slots
        self.project_used[request.project] = self.project_used.get(request.project, 0) + slots

    def _renew(self, node: str) -> None:
        busy = self.busy[node]
        self.nodes[node] = replace(
            self.nodes[node],
            free=tuple(slot for slot in self.slots[node] if slot.name not in busy),
            held=tuple(slot for slot in self.slots[node] if slot.name in busy),
        )
