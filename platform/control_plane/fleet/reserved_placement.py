"""Hands out the free slots of reservations while the queue of one pool is placed: first to the requests for which they
are reserved, then to those that leave them in time (fleet.reservations)."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from control_plane.fleet.quota_usage import slot_count
from control_plane.fleet.reservations import (
    BORROW_LEAD,
    ReservedSlots,
    describe,
    nodes_of,
)
from control_plane.fleet.slot_choice import allocate, fewest
from control_plane.fleet.snapshot import (
    Holder,
    HolderKind,
    Placement,
    Preemption,
    Request,
    Reservation,
    SlotSnapshot,
    Snapshot,
    Wait,
    WaitCode,
)


class ReservedPlacement:
    """The reserved slots of the nodes that accept jobs. `free` are those that nobody has got yet."""

    def __init__(self, snapshot: Snapshot, reserved: ReservedSlots) -> None:
        self.reserved = reserved
        self.preemptions: list[Preemption] = []
        self.claims: dict[str, Wait] = {}  # request → why it waits for slots that are reserved for it
        nodes = {node.id: node for node in snapshot.nodes} if reserved.by_node else {}
        self.nodes = {node.id: node for node in nodes_of(reserved, nodes)}
        self.free: dict[str, list[SlotSnapshot]] = {
            name: [slot for slot in node.free if slot.name in reserved.by_node[name]]
            for name, node in self.nodes.items()
        }
        self._holders: dict[str, list[Holder]] = {name: [] for name in self.nodes}
        for holder in snapshot.holders if self.nodes else ():
            if holder.node in self._holders:
                self._holders[holder.node].append(holder)
        self._reservations = {
            one.id: one for slots in reserved.by_node.values() for chain in slots.values() for one in chain
        }.values()
        self._claimed: set[tuple[str, str]] = set()  # slots that somebody leaves for a claim
        self._own: dict[tuple[str, str], dict[str, set[str]]] = {}
        # What has found no slots to borrow, and for which predicted time. Free slots only become fewer.
        self._in_vain: dict[Any, float] = {}
        self._blocked: dict[Any, list[str]] = {}  # shape → nodes that may fit it with reserved slots

    def own(self, request: Request) -> Mapping[str, set[str]]:
        """Node → slots that are reserved for the request now."""
        key = (request.team, request.project)
        if key not in self._own:
            found = self.reserved.active_for(*key)
            self._own[key] = {name: slots for name, slots in found.items() if name in self.nodes}
        return self._own[key]

    def place(self, request: Request, big_enough: Collection[str]) -> Placement | Wait | None:
        """Place a request on slots that are reserved for it, beyond its quota. A Wait when borrowers leave them for it;
        None when they do not suffice."""
        own = {node: slots for node, slots in self.own(request).items() if node in big_enough}
        for node, names in own.items():
            free = [
                slot
                for slot in self.free[node]
                if slot.name in names and self.reserved.may_use_own(request, node, slot.name)
            ]
            if (slots := allocate(free, request)) is not None:
                self.take(node, slots)
                return Placement(request.id, node, tuple(slot.name for slot in slots))
        if request.preemptible:  # it preempts nobody
            return None
        for node, slots_of_node in own.items():
            names = {slot for slot in slots_of_node if self.reserved.may_use_own(request, node, slot)}
            if (victims := self._victims(request, node, names)) is not None:
                self._claim(request, node, names, victims)
                message = f"its slots on {self.nodes[node].name} are reserved for it; others leave them now"
                self.claims[request.id] = Wait(WaitCode.RESERVED, message)
                return self.claims[request.id]
        return None

    def borrow(
        self,
        request: Request,
        shape: Any,
        free: Mapping[str, Sequence[SlotSnapshot]],
        big_enough: Collection[str],
        taken: Collection[str],
    ) -> Placement | None:
        """Slots of a node of which some are reserved for others. `free` are those that are not; none of them on the
        nodes in `taken`, where a request ahead waits for them."""
        if not self.nodes:
            return None
        owner = (request.team, request.project) if self._is_owner(request) else None
        key = (shape, request.preemptible, request.saves_checkpoints, owner)
        seconds = math.inf if request.predicted_seconds is None else request.predicted_seconds
        if key in self._in_vain and seconds >= self._in_vain[key]:
            return None
        for node in self.nodes:
            unused, others = self.free[node], () if node in taken else free[node]
            if node not in big_enough or not unused or len(unused) + len(others) < request.slots:
                continue
            usable = [slot for slot in unused if self.reserved.may_borrow(request, node, slot.name)]
            slots = allocate((*others, *usable), request) if usable else None
            if slots is not None:
                return Placement(request.id, node, tuple(slot.name for slot in slots))
        self._in_vain[key] = seconds
        return None

    def take(self, node: str, slots: Collection[SlotSnapshot]) -> int:
        """The slots are placed. Returns how many of them were reserved."""
        before = len(self.free[node])
        self.free[node] = [slot for slot in self.free[node] if slot not in slots]
        return before - len(self.free[node])

    def blocking(
        self,
        request: Request,
        shape: Any,
        free: Mapping[str, Sequence[SlotSnapshot]],
        big_enough: Collection[str],
        taken: Collection[str],
    ) -> Wait | None:
        """Why the request waits, when it would fit if no slots were reserved."""
        if not self.nodes:
            return None
        nodes = self._blocked.setdefault(shape, [node for node in self.nodes if node in big_enough])
        while nodes:
            node = nodes[0]
            unused, others = self.free[node], () if node in taken else free[node]
            if (
                not unused
                or len(unused) + len(others) < request.slots
                or (allocate((*others, *unused), request) is None)
            ):
                del nodes[0]  # free slots only become fewer
                continue
            return self._blocked_by(request, node, unused)
        return None

    def idle(self) -> dict[str, list[SlotSnapshot]]:
        """Node → free slots that may be borrowed until somebody needs them."""
        return {
            node: [slot for slot in slots if all(map(self._lends, self.reserved.by_node[node][slot.name]))]
            for node, slots in self.free.items()
        }

    def _is_owner(self, request: Request) -> bool:
        """Whether slots are or will be unused for the request. It may use them before the start, within its quota."""
        return any(one.owns(request.team, request.project) for one in self._reservations)

    def _lends(self, reservation: Reservation) -> bool:
        lead = BORROW_LEAD if reservation.lead is None else reservation.lead
        return not reservation.is_maintenance or reservation.starts_at - self.reserved.now >= lead

    def _blocked_by(self, request: Request, node: str, unused: Sequence[SlotSnapshot]) -> Wait:
        of_node = self.reserved.by_node[node]
        slot = next(
            (one for one in unused if not self.reserved.may_borrow(request, node, one.name)), unused[0]
        )
        first = of_node[slot.name][0]
        count = sum(one.name in of_node and of_node[one.name][0] is first for one in unused)
        name, words = self.nodes[node].name, describe(first, self.reserved.now)
        if first.is_maintenance:
            message = f"needs {slot_count(request.slots)} on one node; {name} is {words}"
            return Wait(WaitCode.MAINTENANCE, message + self._late(request, first))
        verb = "is" if count == 1 else "are"
        message = (
            f"needs {slot_count(request.slots)} on one node; {slot_count(count)} of {name} {verb} {words}"
        )
        return Wait(WaitCode.RESERVED, message + self._late(request, first))

    def _late(self, request: Request, reservation: Reservation) -> str:
        if reservation.starts_at <= self.reserved.now:
            return ""
        if request.predicted_seconds is None:
            return ", and when this run would end is unknown"
        return ", and this run is not predicted to end before"

    def _victims(self, request: Request, node: str, names: Collection[str]) -> list[Holder] | None:
        """The fewest holders that have to leave slots reserved for the request; None when that does not suffice."""
        view = self.nodes[node]
        free = [slot for slot in self.free[node] if slot.name in names]
        others = []
        for holder in self._holders[node]:
            mine = [slot for slot in holder.slots if slot in names and (node, slot) not in self._claimed]
            if mine and (holder.leaving or holder.kind != HolderKind.RUN or self._is_foreign(holder, mine)):
                others.append(holder)
        leaving = [one for one in others if one.leaving]

        def fits(chosen: Sequence[Holder]) -> bool:
            coming = {
                slot
                for one in (*leaving, *chosen)
                for slot in one.slots
                if slot in names and (node, slot) not in self._claimed
            }
            return (
                allocate((*free, *(slot for slot in view.held if slot.name in coming)), request) is not None
            )

        staying = sorted(
            (one for one in others if not one.leaving),
            key=lambda one: (one.kind, one.lost_gpu_seconds, -len(one.slots), one.id),
        )
        return fewest(staying, fits)

    def _is_foreign(self, holder: Holder, slots: Collection[str]) -> bool:
        return not all(self.reserved.is_own(holder, slot) for slot in slots)

    def _claim(self, request: Request, node: str, names: Collection[str], victims: Sequence[Holder]) -> None:
        """The slots of the node that are reserved for the request are for it alone."""
        self.free[node] = [slot for slot in self.free[node] if slot.name not in names]
        for holder in self._holders[node]:
            if holder.leaving or holder in victims:
                self._claimed |= {(node, slot) for slot in holder.slots}
        self.preemptions += [
            Preemption(one.id, one.kind, request.id, one.lost_gpu_seconds, why="its slots are reserved")
            for one in victims
        ]
