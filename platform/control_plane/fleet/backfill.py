"""Conservative backfill: which requests may use a node that is reserved for a request ahead of them.

The slots of a reserved node stay idle until enough of them are free for the request that waits (the head). With a
predicted time for that, its reserved start, a request behind it may use them if it either ends before it (its p90) or
leaves enough slots for the head at that time. What is unknown is no permission: without a predicted end of the runs on
the node, nothing is placed there.

Predictions may be wrong. The earliest start that was ever predicted for a request while it was the first that waits for
slots is kept as its promise. When that time has passed by GRACE and it still waits, nothing is placed before it any
more, so wrong predictions delay it by no more than what is running by then.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from control_plane.fleet.quota_usage import QuotaUsage
from control_plane.fleet.slot_choice import allocate, matches
from control_plane.fleet.snapshot import HolderKind, NodeSnapshot, Request, SlotSnapshot, Snapshot

GRACE = timedelta(minutes=10)


@dataclass(frozen=True)
class Gap:
    """Free slots of a reserved node for a request behind the head."""

    node: str
    slots: tuple[SlotSnapshot, ...]
    returns: bool  # they are free again at the reserved start


@dataclass
class _Window:
    """A reserved node until its head starts."""

    head: Request
    seconds: float  # until its reserved start
    at_start: list[SlotSnapshot]  # that the head can have then, without those that are free now


@dataclass
class Backfill:
    snapshot: Snapshot
    leaving: Mapping[str, Sequence[SlotSnapshot]] = field(kw_only=True)  # node → slots that become free soon
    usage: QuotaUsage = field(kw_only=True)
    promises: dict[str, datetime] = field(default_factory=dict)
    _windows: dict[str, _Window] = field(default_factory=dict)  # by node
    _reserved: int = 0  # nodes so far
    _opened: int = 0  # windows so far
    # Shape → how many windows had been opened when none was found, and for which predicted time. They only shrink.
    _in_vain: dict[Any, tuple[int, float]] = field(default_factory=dict)
    _seconds: dict[Any, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._holders = {
            (holder.node, slot): holder for holder in self.snapshot.holders for slot in holder.slots
        }

    def seconds_until(self, node: NodeSnapshot, request: Request, *, free: int) -> float:
        """Until the node is predicted to have the slots for the request, of which so many are free; infinite when that
        is unknown."""
        missing = request.slots - free
        if missing <= 0:
            return 0.0
        if not self.snapshot.free_at:
            return math.inf
        needs = (node.id, request.device, request.slot_memory_bytes, request.gpu_model)
        if needs not in self._seconds:
            soon = {slot.name for slot in self.leaving.get(node.id, ())}
            self._seconds[needs] = sorted(
                self._until_free(node.id, slot)
                for slot in node.held
                if slot.name not in soon and matches(slot, request)
            )
        times = self._seconds[needs]
        return times[missing - 1] if missing <= len(times) else math.inf

    def reserve(self, node: NodeSnapshot, head: Request, free: Sequence[SlotSnapshot]) -> None:
        """The node is reserved for the head from now on."""
        if self.snapshot.free_at:
            self._open(node, head, free)
        self._reserved += 1

    def _open(self, node: NodeSnapshot, head: Request, free: Sequence[SlotSnapshot]) -> None:
        """Open a window where the time until the head starts is predicted."""
        coming = sorted(
            ((self._until_head_has(node.id, slot, head), slot) for slot in node.held), key=lambda one: one[0]
        )
        at_start: list[SlotSnapshot] = []
        for seconds, slot in coming:
            if math.isinf(seconds):
                return
            at_start.append(slot)
            if len(free) + len(at_start) < head.slots or allocate((*free, *at_start), head) is None:
                continue
            if seconds <= 0:
                return  # it starts as soon as somebody has left
            now = self.snapshot.now
            start = now + timedelta(seconds=seconds)
            promise = min(start, head.promised_start or start)
            if not self._reserved:  # those behind it may still have to give way to it
                self.promises[head.id] = promise
            if free and now <= promise + GRACE:
                # Whatever ends at the same time is there as well.
                at_start = [other for at, other in coming if at <= seconds]
                self._windows[node.id] = _Window(head, seconds, at_start)
                self._opened += 1
            return

    def find(
        self,
        request: Request,
        shape: Any,
        free: Mapping[str, Sequence[SlotSnapshot]],
        big_enough: Collection[str],
    ) -> Gap | None:
        """Free slots of a reserved node that the request may have."""
        if not self._windows:
            return None
        seconds = math.inf if request.predicted_seconds is None else request.predicted_seconds
        searched, at_least = self._in_vain.get(shape, (0, math.inf))
        if searched == self._opened and seconds >= at_least:
            return None
        for node, window in self._windows.items():
            count = len(free[node])
            if count < request.slots or node not in big_enough:
                continue
            ends_before = seconds <= window.seconds
            if not ends_before and count + len(window.at_start) < request.slots + window.head.slots:
                continue
            slots = allocate(free[node], request)
            if slots is None:
                continue
            if ends_before:
                return Gap(node, slots, returns=True)
            others = [slot for slot in free[node] if slot not in slots]
            if allocate((*others, *window.at_start), window.head) is not None:
                return Gap(node, slots, returns=False)
        self._in_vain[shape] = (self._opened, seconds)
        return None

    def take(self, gap: Gap, *, left: int) -> None:
        """The slots are placed; so many of the node are still free."""
        if not left:
            del self._windows[gap.node]
        elif gap.returns:
            self._windows[gap.node].at_start += gap.slots

    def _until_free(self, node: str, slot: SlotSnapshot) -> float:
        at = self.snapshot.free_at.get((node, slot.name))
        return math.inf if at is None else max(0.0, (at - self.snapshot.now).total_seconds())

    def _until_head_has(self, node: str, slot: SlotSnapshot, head: Request) -> float:
        """Until the slot is free for the head: at once if its holder leaves, or if the head may preempt it."""
        holder = self._holders.get((node, slot.name))
        if holder is not None and holder.leaving:
            return 0.0
        if holder is not None and not head.preemptible:
            own = self.usage.within_nominal(head) or self.usage.within_project_nominal(head)
            if holder.kind != HolderKind.RUN or own:
                return 0.0
        return self._until_free(node, slot)
