"""Places the queue of one pool on free slots.

Gang scheduling: a request is placed on one node with all its slots, or it waits. Where no node is large enough, the
ranks of its trainer may be spread over several (fleet.spreading), again all at once. Each rank of a trainer gets a GPU
of its own, even where slots share GPUs. The first request that waits only for slots to become free reserves the node
where it fits soonest. Requests behind it are placed there only where they do not delay it (fleet.backfill): small
requests may pass a big one, but cannot starve it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from control_plane.fleet.backfill import Backfill
from control_plane.fleet.fair_order import sort_queue
from control_plane.fleet.quota_usage import QuotaUsage, quota_usage, slot_count
from control_plane.fleet.reservations import ReservedSlots, borrowers, without_reserved
from control_plane.fleet.reserved_placement import ReservedPlacement
from control_plane.fleet.slot_choice import allocate, matching_slots
from control_plane.fleet.snapshot import (
    NodeSnapshot,
    Placement,
    Request,
    SlotSnapshot,
    Snapshot,
    Wait,
    WaitCode,
)
from control_plane.fleet.spreading import Parts, networks, spread
from oolong.contracts.model_paths import root_of

# A node in a heap: the one that is predicted to hold the request first, then the one with the most slots that are free
# or become so, then with the most slots. (seconds until then, -free, -slots, ID)
_Soonest = tuple[float, int, int, str]


@dataclass
class _Shape:
    """What requests with the same requirements share, so that a long queue does not search all nodes for each run."""

    never_fits: str  # why no node is large enough; empty when one is
    totals: dict[str, int]  # node → number of its slots that match, leased or not
    big_enough: dict[str, NodeSnapshot]
    by_free: list[tuple[int, str, str]]  # heap of nodes that may fit now: free slots, name, ID
    by_soonest: list[_Soonest] | None = None  # heap of nodes to reserve, when it was needed
    networks: Sequence[tuple[NodeSnapshot, ...]] = ()  # where it is spread; empty: it is placed on one node


@dataclass
class PlacedQueue:
    """A pool while its queue is placed, and the result."""

    view: Snapshot  # without the slots that are reserved for others
    on_reserved: ReservedPlacement
    nodes: Mapping[str, NodeSnapshot]
    free: dict[str, list[SlotSnapshot]]  # node that accepts jobs → slots that are not placed
    usage: QuotaUsage
    leaving: Mapping[str, list[SlotSnapshot]]  # node → slots that become free soon
    shapes: Mapping[tuple[Any, ...], _Shape]
    order: list[Request] = field(default_factory=list)  # the queue, sorted
    placements: list[Placement] = field(default_factory=list)
    waiting: dict[str, Wait] = field(default_factory=dict)
    reserved: dict[str, Request] = field(default_factory=dict)  # node → the request that it is reserved for
    backfill: Backfill = field(kw_only=True)

    def networks_for(self, request: Request) -> Sequence[tuple[NodeSnapshot, ...]]:
        """Over whose nodes the request is spread; empty when it is placed on one node."""
        return self.shapes[shape_of(request)].networks

    def could_hold(self, node: NodeSnapshot, request: Request) -> bool:
        """Whether the request would fit the node if all slots of the node were free."""
        return node.id in self.shapes[shape_of(request)].big_enough


def place_queue(snapshot: Snapshot, reserved: ReservedSlots) -> PlacedQueue:
    on_reserved, counted = ReservedPlacement(snapshot, reserved), borrowers(snapshot, reserved)
    snapshot = without_reserved(snapshot, reserved)
    usage = quota_usage(snapshot, counted)
    free = {node.id: list(node.free) for node in snapshot.nodes if node.accepts}
    gone = {(holder.node, slot) for holder in snapshot.holders if holder.leaving for slot in holder.slots}
    leaving = {
        node.id: [slot for slot in node.held if (node.id, slot.name) in gone] for node in snapshot.nodes
    }
    examples = {shape_of(request): request for request in snapshot.queue}
    counts: dict[Any, dict[str, int]] = {}
    shapes = {shape: _build_shape(request, snapshot, counts) for shape, request in examples.items()}
    stuck = {one.id: wait for one in snapshot.queue if (wait := _cannot_start(one, shapes, snapshot))}

    def in_order(requests: Sequence[Request], stuck: Mapping[str, Wait]) -> list[Request]:
        return sort_queue(
            requests,
            quotas=snapshot.quotas,
            held=usage.held,
            slot_hours=snapshot.slot_hours,
            stuck=stuck,
            project_quotas=snapshot.project_quotas,
            project_held=usage.project_held,
        )

    owners = (
        [one for one in snapshot.queue if one.id not in stuck and on_reserved.own(one)]
        if on_reserved.nodes
        else []
    )
    placements = []
    for request in in_order(owners, {}) if owners else []:
        found = on_reserved.place(request, shapes[shape_of(request)].big_enough)
        if isinstance(found, Placement):
            placements.append(found)
    started = {placement.request for placement in placements}
    fixed = {**stuck, **on_reserved.claims}
    pool = PlacedQueue(
        view=snapshot,
        on_reserved=on_reserved,
        nodes={node.id: node for node in snapshot.nodes},
        free=free,
        usage=usage,
        leaving=leaving,
        shapes=shapes,
        placements=placements,
        backfill=Backfill(snapshot, leaving=leaving, usage=usage),
        order=in_order([one for one in snapshot.queue if one.id not in started], fixed),
    )
    for request in pool.order:
        found = fixed.get(request.id) or _place(request, pool)
        if isinstance(found, Placement):
            pool.placements.append(found)
        else:
            pool.waiting[request.id] = found
    return pool


def _place(request: Request, pool: PlacedQueue) -> Placement | Wait:
    if wait := pool.usage.refusal(request):
        return wait
    shape = pool.shapes[shape_of(request)]
    if shape.networks:
        return _place_over_nodes(request, pool, shape)
    while shape.by_free:  # best fit: keep the nodes with many free slots free
        count, _, node = shape.by_free[0]
        slots = None
        if count == len(pool.free[node]) and node not in pool.reserved:
            slots = allocate(pool.free[node], request)
        if slots is None:  # free slots only become fewer, and nodes stay reserved
            heapq.heappop(shape.by_free)
            continue
        _offer_rest(node, _take(slots, node, request, pool), pool)
        return Placement(request.id, node, tuple(slot.name for slot in slots))
    if found := pool.backfill.find(request, shape_of(request), pool.free, shape.big_enough):
        pool.backfill.take(found, left=_take(found.slots, found.node, request, pool))
        return Placement(request.id, found.node, tuple(slot.name for slot in found.slots))
    search = (request, shape_of(request), pool.free, shape.big_enough, pool.reserved)
    if borrowed := pool.on_reserved.borrow(*search):
        slots = tuple(
            slot
            for slot in (*pool.free[borrowed.node], *pool.on_reserved.free[borrowed.node])
            if slot.name in borrowed.slots
        )
        pool.usage.available += pool.on_reserved.take(borrowed.node, slots)
        _offer_rest(borrowed.node, _take(slots, borrowed.node, request, pool), pool)
        return borrowed
    blocked = pool.on_reserved.blocking(*search)
    wait = _reserve(request, pool, shape)
    return blocked or wait


def _place_over_nodes(request: Request, pool: PlacedQueue, shape: _Shape) -> Placement | Wait:
    """Place it on several nodes at once, or reserve the nodes that it waits for: no other request starts there."""
    unreserved = [
        [node for node in nodes if node.id in pool.free and node.id not in pool.reserved]
        for nodes in shape.networks
    ]
    for nodes in unreserved:
        if parts := spread({node.id: pool.free[node.id] for node in nodes}, request):
            for node, slots in parts:
                pool.free[node] = [slot for slot in pool.free[node] if slot not in slots]
                _offer_rest(node, len(pool.free[node]), pool)
            pool.usage.add(request)
            (head, first), *others = [(node, tuple(slot.name for slot in slots)) for node, slots in parts]
            return Placement(request.id, head, first, tuple(others))
    for nodes in unreserved:
        if parts := spread(_all_slots(nodes), request):
            pool.reserved |= dict.fromkeys((node for node, _ in parts), request)
            return Wait(WaitCode.CAPACITY, _waits_for(parts, request, pool))
    message = f"needs {slot_count(request.slots)} on {request.max_nodes} nodes at most; "
    if any(
        spread(_all_slots(node for node in nodes if node.id in pool.free), request)
        for nodes in shape.networks
    ):
        return Wait(WaitCode.BEHIND, message + "the nodes are reserved for runs ahead of it")
    return Wait(WaitCode.CAPACITY, message + "too few of them accept jobs now")


def _waits_for(parts: Parts, request: Request, pool: PlacedQueue) -> str:
    free = sum(len(matching_slots(pool.free[node], request)) for node, _ in parts)
    names = " and ".join(sorted(pool.nodes[node].name for node, _ in parts))
    return f"needs {slot_count(request.slots)} on {len(parts)} nodes; {free} are free on {names}"


def _all_slots(nodes: Iterable[NodeSnapshot]) -> dict[str, tuple[SlotSnapshot, ...]]:
    return {node.id: (*node.free, *node.held) for node in nodes}


def _offer_rest(node: str, left: int, pool: PlacedQueue) -> None:
    """So many slots of the node are still free for other requests."""
    for (wanted, *_), other in pool.shapes.items():
        if wanted <= left and node in other.big_enough:
            heapq.heappush(other.by_free, (left, pool.nodes[node].name, node))


def _take(slots: Sequence[SlotSnapshot], node: str, request: Request, pool: PlacedQueue) -> int:
    """Returns how many slots of the node stay free."""
    pool.free[node] = [slot for slot in pool.free[node] if slot not in slots]
    pool.usage.add(request)
    return len(pool.free[node])


def meets_requirements(node: NodeSnapshot, request: Request) -> bool:
    """Whether the node meets the requirements other than slots: that the run does not exclude it, job isolation and the
    model's directory."""
    if request.exclude_nodes and not request.exclude_nodes.isdisjoint((node.id, node.name)):
        return False
    if request.isolated and not node.isolates_jobs:
        return False
    return not request.model_path or _offers(node.model_roots, request.model_path)


@lru_cache(maxsize=4096)  # few paths and roots, on many nodes
def _offers(model_roots: tuple[str, ...], path: str) -> bool:
    return root_of(path, model_roots) is not None


def _cannot_start(
    request: Request, shapes: Mapping[tuple[Any, ...], _Shape], snapshot: Snapshot
) -> Wait | None:
    """Why the request cannot start now, whatever becomes free."""
    if snapshot.teams is not None and request.team not in snapshot.teams:
        message = (
            f"the team may not use pool {snapshot.pool}; ask an installation admin to allow it, or cancel the run and "
            "clone it with another placement.pool"
        )
        return Wait(WaitCode.NEVER_FITS, message)
    if reason := shapes[shape_of(request)].never_fits:
        return Wait(WaitCode.NEVER_FITS, reason)
    if why := snapshot.exhausted.get(request.team) or snapshot.exhausted.get(request.project):
        return Wait(WaitCode.BUDGET, why)
    if request.not_before is not None and request.not_before > snapshot.now:
        message = f"retries at {request.not_before:%H:%M:%S} UTC, because its last attempt ended early"
        return Wait(WaitCode.DELAYED, message)
    return None


def shape_of(request: Request) -> tuple[Any, ...]:
    """Requests with the same shape fit the same slots."""
    return (
        request.slots, request.trainer_ranks, request.device, request.slot_memory_bytes, request.model_path,
        request.isolated, request.exclude_nodes, request.avoid_nodes, request.gpu_model, request.max_nodes,
    )  # fmt: skip


def _build_shape(request: Request, snapshot: Snapshot, counts: dict[Any, dict[str, int]]) -> _Shape:
    """`counts` caches the matching slots of each node by what a slot must offer."""
    eligible = [node for node in snapshot.nodes if meets_requirements(node, request)]
    needs = (request.device, request.slot_memory_bytes, request.gpu_model)
    if needs not in counts:
        counts[needs] = {
            node.id: len(matching_slots((*node.free, *node.held), request)) for node in snapshot.nodes
        }
    totals = {node.id: counts[needs][node.id] for node in eligible}
    big_enough = {
        node.id: node
        for node in eligible
        if totals[node.id] >= request.slots
        and (request.trainer_ranks == 1 or allocate((*node.free, *node.held), request) is not None)
    }
    over = _networks_for(request, eligible) if request.max_nodes > 1 and not big_enough else []
    if request.avoid_nodes:
        others = {name: node for name, node in big_enough.items() if name not in request.avoid_nodes}
        if any(node.accepts for node in others.values()):
            big_enough = others
    accepting = [node for node in big_enough.values() if node.accepts]
    shape = _Shape(
        never_fits="" if over else _never_fits_reason(request, eligible, totals, big_enough, snapshot),
        totals=totals,
        big_enough=big_enough,
        networks=over,
        by_free=[
            (len(node.free), node.name, node.id) for node in accepting if len(node.free) >= request.slots
        ],
    )
    heapq.heapify(shape.by_free)
    return shape


def _networks_for(request: Request, eligible: Sequence[NodeSnapshot]) -> list[tuple[NodeSnapshot, ...]]:
    """The networks over whose nodes the request fits; without the nodes on which it has failed, where they suffice."""
    for nodes in ([node for node in eligible if node.id not in request.avoid_nodes], eligible):
        found = [network for network in networks(nodes) if spread(_all_slots(network), request)]
        if any(spread(_all_slots(node for node in network if node.accepts), request) for network in found):
            return found
    return found


def _never_fits_reason(
    request: Request,
    eligible: Sequence[NodeSnapshot],
    totals: Mapping[str, int],
    big_enough: Mapping[str, NodeSnapshot],
    snapshot: Snapshot,
) -> str:
    """Why the request fits no node of the pool, even if all slots were free; empty when it fits one."""
    if not snapshot.nodes:
        return "the pool has no nodes"
    excluded = [node for node in snapshot.nodes if not request.exclude_nodes.isdisjoint((node.id, node.name))]
    if len(excluded) == len(snapshot.nodes):
        return "placement.exclude_nodes excludes every node of the pool; clone the run with a shorter list"
    if not eligible and request.isolated and not any(node.isolates_jobs for node in snapshot.nodes):
        return "its trainer runs an uploaded loss function, and no node isolates jobs; see the nodes' job isolation"
    if not eligible:
        return f"no node offers the model's directory {request.model_path}"
    largest = max(totals.values())
    if not largest:
        return _no_such_slot(request, eligible, snapshot)
    if largest < request.slots and request.model_path:
        return (
            f"needs {slot_count(request.slots)} on one node that offers {request.model_path}; the largest such node "
            f"has {largest}"
        )
    if largest < request.slots and request.max_nodes > 1:
        return (
            f"needs {slot_count(request.slots)}: its engines and a rank of the trainer on one node, the other ranks on "
            f"{request.max_nodes - 1} more at most (placement.nodes), all with peer addresses in one network; the "
            f"largest node has {largest}"
        )
    if largest < request.slots:
        return f"needs {slot_count(request.slots)} on one node; the largest node has {largest}"
    if not big_enough:
        return f"needs {request.trainer_ranks} GPUs on one node, one per rank of the trainer; no node has that many"
    return ""


def _no_such_slot(request: Request, nodes: Sequence[NodeSnapshot], snapshot: Snapshot) -> str:
    """The reason when no slot of these nodes has the device and memory that the request needs."""
    slots = [slot for node in nodes for slot in (*node.free, *node.held)]
    where = f"pool {snapshot.pool}"
    if not slots:
        return f"no node of {where} has a healthy slot"
    if len(nodes) < len(snapshot.nodes):
        needs = [f"offer {request.model_path}"] if request.model_path else []
        needs += ["isolate jobs"] if request.isolated else []
        needs += ["the run does not exclude"] if request.exclude_nodes else []
        where += f", of nodes that {' and '.join(needs)},"
    wanted = f"{request.device} slots" if request.device else "slots"
    of_device = [slot for slot in slots if request.device in ("", slot.device)]
    if request.gpu_model and of_device:
        models = sorted({slot.model for slot in of_device if slot.model})
        named = " and ".join(models[:5]) or "none with a model name"
        of_device = [slot for slot in of_device if request.gpu_model in slot.model.casefold()]
        if not of_device:
            return f"needs GPUs with {request.gpu_model!r} in their model name; {where} has {named}"
    same = [slot.memory_bytes for slot in of_device]
    if not same:
        return (
            f"needs {wanted}; {where} has {' and '.join(sorted({slot.device for slot in slots}))} slots only"
        )
    needed, largest = request.slot_memory_bytes / 2**30, max(same) / 2**30
    return f"needs {wanted} of at least {needed:.4g} GiB; the largest of {where} has {largest:.4g} GiB"


def _reserve(request: Request, pool: PlacedQueue, shape: _Shape) -> Wait:
    """Reserve the node where the request fits soonest. Returns why the request waits."""
    if shape.by_soonest is None:
        shape.by_soonest = [
            _soonest(node, request, pool, shape) for node in shape.big_enough.values() if node.id in pool.free
        ]
        heapq.heapify(shape.by_soonest)
    if not any(node in pool.free for node in shape.big_enough):
        named = ", ".join(
            f"{node.name} is {node.state or 'not ready'}" for node in list(shape.big_enough.values())[:3]
        )
        return Wait(WaitCode.CAPACITY, f"no node accepts jobs: {named}")
    while shape.by_soonest:
        entry = shape.by_soonest[0]
        node = pool.nodes[entry[-1]]
        if node.id in pool.reserved:
            heapq.heappop(shape.by_soonest)
            continue
        current = _soonest(node, request, pool, shape)
        if current != entry:  # slots were placed since
            heapq.heapreplace(shape.by_soonest, current)
            continue
        pool.reserved[node.id] = request
        pool.backfill.reserve(node, request, pool.free[node.id])
        free, total = len(matching_slots(pool.free[node.id], request)), shape.totals[node.id]
        message = f"needs {slot_count(request.slots)} on one node; {free} of {total} are free on {node.name}"
        return Wait(WaitCode.CAPACITY, message)
    first = next(node for node in shape.big_enough.values() if node.id in pool.free)
    ahead = pool.reserved[first.id]
    # Names of other teams' runs are not shown.
    named = repr(ahead.name) if ahead.team == request.team else "another team's run"
    return Wait(WaitCode.BEHIND, f"waits behind {named}, for which {first.name} is reserved")


def _soonest(node: NodeSnapshot, request: Request, pool: PlacedQueue, shape: _Shape) -> _Soonest:
    slots = [*pool.free[node.id], *pool.leaving[node.id]]
    free = (
        len(slots)
        if not (request.device or request.slot_memory_bytes or request.gpu_model)
        else len(matching_slots(slots, request))
    )
    predicted = pool.backfill.seconds_until(node, request, free=free)
    return predicted, -free, -shape.totals[node.id], node.id
