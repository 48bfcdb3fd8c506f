"""Chooses the slots of reservations and says who may use them before: pure functions.

A reservation keeps slots for a team from its start to its end; a maintenance window reserves nodes for nobody. From
HORIZON before the start, other requests may use the slots only if they end before it by their p90, if they save
checkpoints and more than BORROW_LEAD is left, or if they are playgrounds or reward tests, which leave within seconds.

A node that its provider ends is reserved like one in maintenance (fleet.allocations), but with a lead of its own.

RELEASE_LEAD before the start, the runs that are still on the slots of a reservation save a checkpoint and return to the
queue. Nodes in maintenance are drained instead (fleet.maintenance).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from control_plane.fleet.snapshot import (
    Holder,
    HolderKind,
    NodeSnapshot,
    Preemption,
    Request,
    Reservation,
    SlotSnapshot,
    Snapshot,
)

HORIZON = timedelta(hours=24)  # before its start, from which a reservation affects what is placed
BORROW_LEAD = timedelta(hours=1)  # before its start, until which runs with checkpoints may borrow its slots
# Before its start, when runs leave its slots: a trainer saves within 180 s, then its checkpoint is uploaded.
RELEASE_LEAD = timedelta(minutes=5)

# What a reservation prefers to keep: slots that are free, that become free in time, that its own runs use, that other
# runs have to leave.
_FREE, _ENDS, _OWN, _FOREIGN = range(4)


@dataclass(frozen=True)
class ReservedSlots:
    """The slots of all reservations at one moment."""

    now: datetime
    # Node → slot → the reservations of it, in the order of their starts. Only maintenance overlaps others.
    by_node: Mapping[str, Mapping[str, Sequence[Reservation]]] = field(default_factory=dict)
    allocations: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)
    # Those that have started: the slots of each node
    active: Sequence[tuple[Reservation, str, Sequence[str]]] = ()

    def active_for(self, team: str, project: str) -> dict[str, set[str]]:
        """Node → names of its slots that are reserved for runs of this team and project now."""
        found: dict[str, set[str]] = {}
        for reservation, node, slots in self.active:
            if reservation.owns(team, project):
                found.setdefault(node, set()).update(slots)
        return found

    def is_own(self, holder: Holder, slot: str) -> bool:
        """Whether the holder uses a slot that is reserved for it now."""
        reservations = self.by_node.get(holder.node, {}).get(slot, ())
        return any(is_active(one, self.now) and one.owns(holder.team, holder.project) for one in reservations)

    def may_borrow(self, request: Request, node: str, slot: str) -> bool:
        """Whether the request may use a free slot that is reserved."""
        return all(_leaves_in_time(request, one, self.now) for one in self.by_node[node][slot])

    def may_use_own(self, request: Request, node: str, slot: str) -> bool:
        """Whether the request may use a free slot that is reserved for it now: not when maintenance comes before its
        end. For a reservation of others it leaves in time."""
        chain = self.by_node[node][slot]
        return all(_leaves_in_time(request, one, self.now) for one in chain if one.is_maintenance)


def is_active(reservation: Reservation, now: datetime) -> bool:
    return reservation.starts_at <= now < reservation.ends_at


def _leaves_in_time(request: Request, reservation: Reservation, now: datetime) -> bool:
    if reservation.owns(request.team, request.project):
        return True
    left = reservation.starts_at - now
    if request.predicted_seconds is not None and request.predicted_seconds <= left.total_seconds():
        return True
    if (
        reservation.lead is not None
    ):  # every node of the provider ends some day, so the unknown may start, too
        movable = request.saves_checkpoints or request.preemptible or request.predicted_seconds is None
        return movable and left >= reservation.lead
    if request.preemptible and not reservation.is_maintenance:
        return True
    return (request.saves_checkpoints or request.preemptible) and left >= BORROW_LEAD


def reserve_slots(snapshot: Snapshot) -> ReservedSlots:
    """Choose the slots of every reservation that starts within HORIZON."""
    near = sorted(
        (
            one
            for one in snapshot.reservations
            if one.starts_at - snapshot.now <= HORIZON and snapshot.now < one.ends_at
        ),
        key=lambda one: (one.starts_at, one.id),
    )
    if not near:
        return ReservedSlots(snapshot.now)
    choice = _Choice(snapshot)
    counts: dict[str, dict[str, int]] = {}
    for one in near:
        if one.nodes:
            counts[one.id] = {
                node: len(choice.slots(node, one)) for node in one.nodes if node in choice.nodes
            }
    for one in near:  # what was chosen before stays, so that a new reservation does not move others
        if not one.nodes:
            teams = [other for other in near if not other.is_maintenance]
            # What its runs use now stays until the maintenance.
            counts[one.id] = choice.keep(
                one, _overlapping(one, teams if is_active(one, snapshot.now) else near, counts)
            )
    for one in near:
        if not one.nodes:
            choice.fill(one, counts[one.id], _overlapping(one, near, counts))
    chains: dict[str, dict[str, list[Reservation]]] = {}
    allocations: dict[str, dict[str, Sequence[str]]] = {one.id: {} for one in near if not one.nodes}
    active = []
    for one in near:
        for node, count in sorted(counts[one.id].items()):
            slots = chains.setdefault(node, {})
            taken = {
                name
                for name, others in slots.items()
                if any(one.overlaps(other) and not other.is_maintenance for other in others)
            }
            taken = set() if one.is_maintenance else taken
            names = [slot.name for slot in choice.pick(one, node, count, taken)]
            for name in names:
                slots.setdefault(name, []).append(one)
            if not one.nodes:
                allocations[one.id][node] = names
            if is_active(one, snapshot.now):
                active.append((one, node, names))
    return ReservedSlots(snapshot.now, chains, allocations, active)


def _overlapping(
    reservation: Reservation, others: Iterable[Reservation], counts: Mapping[str, Mapping[str, int]]
) -> dict[str, int]:
    """Node → slots that reservations at the same time keep there."""
    found: dict[str, int] = {}
    for other in others:
        if other is not reservation and other.overlaps(reservation):
            for node, count in counts.get(other.id, {}).items():
                found[node] = found.get(node, 0) + count
    return found


class _Choice:
    """Chooses nodes, and slots on them."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.nodes = {node.id: node for node in snapshot.nodes}
        self._held = {node.id: {slot.name for slot in node.held} for node in snapshot.nodes}
        self._holders = {(one.node, slot): one for one in snapshot.holders for slot in one.slots}

    def slots(self, node: str, reservation: Reservation) -> list[SlotSnapshot]:
        view = self.nodes[node]
        return [slot for slot in (*view.free, *view.held) if reservation.device in ("", slot.device)]

    def keep(self, reservation: Reservation, others: Mapping[str, int]) -> dict[str, int]:
        """What an earlier plan has chosen, as far as the nodes still accept jobs or run its jobs."""
        counts, missing = {}, reservation.slots
        for node, slots in sorted(reservation.allocation.items()):
            if node in self.nodes and (self.nodes[node].accepts or self._runs_own(reservation, node, slots)):
                room = len(self.slots(node, reservation)) - others.get(node, 0)
                if granted := max(0, min(len(slots), missing, room)):
                    counts[node] = granted
                    missing -= granted
        return counts

    def _runs_own(self, reservation: Reservation, node: str, slots: Collection[str]) -> bool:
        """Whether runs of its team use these slots under the reservation."""
        if not is_active(reservation, self.snapshot.now):
            return False
        holders = (self._holders.get((node, slot)) for slot in slots)
        return any(one is not None and reservation.owns(one.team, one.project) for one in holders)

    def fill(self, reservation: Reservation, counts: dict[str, int], others: Mapping[str, int]) -> None:
        """Add nodes for the slots that are missing: as few nodes as possible, and those that fewest runs have to
        leave."""
        missing = reservation.slots - sum(counts.values())
        if missing <= 0:
            return
        room = {
            node.id: len(self.slots(node.id, reservation)) - others.get(node.id, 0) - counts.get(node.id, 0)
            for node in self.snapshot.nodes
            if node.accepts
        }
        room = {node: left for node, left in room.items() if left > 0}
        ready = {
            node: sum(
                self._rank(reservation, node, slot)[0] < _FOREIGN for slot in self.slots(node, reservation)
            )
            - others.get(node, 0)
            - counts.get(node, 0)
            for node in room
        }
        while missing > 0 and room:

            def cost(node: str, wanted: int = missing) -> tuple[object, ...]:
                taken = min(wanted, room[node])
                leave = max(0, taken - max(0, ready[node]))
                return wanted - taken, leave, room[node], self.nodes[node].name, node

            best = min(room, key=cost)
            taken = min(missing, room.pop(best))
            counts[best] = counts.get(best, 0) + taken
            missing -= taken

    def pick(
        self, reservation: Reservation, node: str, count: int, taken: Collection[str]
    ) -> list[SlotSnapshot]:
        """The slots of the node that are reserved. Before the start those that are free the soonest; from then on the
        same ones, because its runs use them."""
        slots = [slot for slot in self.slots(node, reservation) if slot.name not in taken]
        if count >= len(slots):
            return slots
        before = reservation.allocation.get(node, ()) if is_active(reservation, self.snapshot.now) else ()
        position = {slot.name: index for index, slot in enumerate(slots)}
        return sorted(
            slots,
            key=lambda slot: (
                slot.name not in before,
                *self._rank(reservation, node, slot),
                position[slot.name],
            ),
        )[:count]

    def _rank(self, reservation: Reservation, node: str, slot: SlotSnapshot) -> tuple[int, float, str]:
        if slot.name not in self._held[node]:
            return _FREE, 0.0, ""
        holder = self._holders.get((node, slot.name))
        if holder is not None and (holder.leaving or holder.kind != HolderKind.RUN):
            return _ENDS, 0.0, holder.id
        ends = self.snapshot.free_at.get((node, slot.name))
        if ends is not None and ends <= reservation.starts_at:
            return _ENDS, (ends - self.snapshot.now).total_seconds(), ""
        if holder is None:
            return _FOREIGN, 0.0, ""
        own = reservation.owns(holder.team, holder.project)
        return (_OWN, 0.0, holder.id) if own else (_FOREIGN, holder.lost_gpu_seconds, holder.id)


def without_reserved(snapshot: Snapshot, reserved: ReservedSlots) -> Snapshot:
    """The pool as requests see it for which no slot is reserved: reserved slots are held until the end of their
    reservation, and nobody can be preempted there. Slots in use by those for whom they are reserved do not count toward
    quotas."""
    if not reserved.by_node:
        return snapshot
    free_at = dict(snapshot.free_at)
    nodes = []
    for node in snapshot.nodes:
        chains = reserved.by_node.get(node.id)
        if chains:
            blocked = tuple(slot for slot in node.free if slot.name in chains)
            open_slots = tuple(slot for slot in node.free if slot.name not in chains)
            for slot in blocked:
                free_at[node.id, slot.name] = _last_end(chains[slot.name])
            for slot in node.held:
                if slot.name in chains and (ends := free_at.get((node.id, slot.name))) is not None:
                    free_at[node.id, slot.name] = max(ends, _last_end(chains[slot.name]))
            node = replace(node, free=open_slots, held=(*node.held, *blocked))
        nodes.append(node)
    used, project_used = dict(snapshot.used), dict(snapshot.project_used)
    holders = []
    for holder in snapshot.holders:
        chains = reserved.by_node.get(holder.node)
        if chains:
            own = sum(reserved.is_own(holder, slot) for slot in holder.slots)
            used[holder.team] = used.get(holder.team, 0) - own
            project_used[holder.project] = project_used.get(holder.project, 0) - own
            holder = replace(holder, slots=tuple(slot for slot in holder.slots if slot not in chains))
        if holder.slots:
            holders.append(holder)
    return replace(
        snapshot, nodes=nodes, free_at=free_at, holders=holders, used=used, project_used=project_used
    )


def _last_end(chain: Sequence[Reservation]) -> datetime:
    return max(one.ends_at for one in chain)


def borrowers(snapshot: Snapshot, reserved: ReservedSlots) -> list[Holder]:
    """The holders without the slots that are reserved for them."""
    if not reserved.by_node:
        return list(snapshot.holders)
    return [
        replace(one, slots=tuple(slot for slot in one.slots if not reserved.is_own(one, slot)))
        if one.node in reserved.by_node
        else one
        for one in snapshot.holders
    ]


def runs_to_release(snapshot: Snapshot, reserved: ReservedSlots) -> list[Preemption]:
    """The runs that leave the slots of reservations that start soon or have started, on nodes that accept jobs. Those
    that are predicted to end before the start may do so."""
    found = []
    accepting = {node.id for node in snapshot.nodes if node.accepts}
    for holder in sorted(snapshot.holders, key=lambda one: one.id) if reserved.by_node else ():
        chains = reserved.by_node.get(holder.node) if holder.node in accepting else None
        if not chains or holder.leaving or holder.kind != HolderKind.RUN:
            continue
        due = [
            one
            for slot in holder.slots
            for one in chains.get(slot, ())
            if not one.is_maintenance
            and one.starts_at - snapshot.now <= RELEASE_LEAD
            and not one.owns(holder.team, holder.project)
            and not _ends_before(snapshot, holder, slot, one)
        ]
        if due:
            found.append(
                Preemption(
                    holder.id, holder.kind, "", holder.lost_gpu_seconds,
                    why=f"its slots are {describe(due[0], snapshot.now)}",
                )
            )  # fmt: skip
    return found


def _ends_before(snapshot: Snapshot, holder: Holder, slot: str, reservation: Reservation) -> bool:
    ends = snapshot.free_at.get((holder.node, slot))
    return ends is not None and ends <= reservation.starts_at


def describe(reservation: Reservation, now: datetime) -> str:
    """ "held for team blue until 14:00 UTC"."""
    until = _clock(reservation.ends_at, now)
    if reservation.lead is not None:
        return f"drained from {_clock(reservation.starts_at, now)} on, because {reservation.title}"
    if reservation.is_maintenance:
        return f"in maintenance from {_clock(reservation.starts_at, now)} until {until} ({reservation.title})"
    if is_active(reservation, now):
        return f"held for {reservation.title} until {until}"
    return f"held for {reservation.title} from {_clock(reservation.starts_at, now)} until {until}"


def _clock(at: datetime, now: datetime) -> str:
    return f"{at:%H:%M} UTC" if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M} UTC"


def nodes_of(reserved: ReservedSlots, nodes: Mapping[str, NodeSnapshot]) -> list[NodeSnapshot]:
    """The nodes with reserved slots that accept jobs, by name."""
    found = [nodes[node] for node in reserved.by_node if node in nodes and nodes[node].accepts]
    return sorted(found, key=lambda node: (node.name, node.id))
