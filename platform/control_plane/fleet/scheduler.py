"""Who gets slots now: a pure function from a snapshot of one pool to placements, and a why for each run that waits.

Order: higher priority first, then who submitted first; above USUAL_PRIORITY among the runs of one team only, because it
is the team's own operators who give it. A request is placed whole on one node (gang, all or
nothing) or waits; the ranks of a trainer get a GPU each, also where slots share GPUs. The first request that waits
only for slots to come free reserves the node where it will fit soonest, and nobody behind it is placed there: small
requests may pass a big one, but cannot starve it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from oolong.contracts.agent import PROTOCOL
from oolong.contracts.model_paths import root_of
from oolong.gpu_slots import device_of

USUAL_PRIORITY = 500  # above it a run goes ahead of others of its team: operators decide that


@dataclass(frozen=True)
class SlotView:
    name: str
    device: str = "cpu"  # cpu | cuda
    memory_bytes: int = 0


@dataclass(frozen=True)
class NodeView:
    id: str
    name: str
    free: tuple[SlotView, ...]  # healthy slots that can be leased now
    held: tuple[SlotView, ...]  # healthy slots that somebody holds
    accepts: bool  # READY, not cordoned, not draining
    refusal: str = ""  # why it does not accept: "cordoned"
    protocol: int = PROTOCOL  # that its agent speaks
    model_roots: tuple[str, ...] | None = ()  # directories of models; None: of an agent that takes any path
    isolates_jobs: bool = False  # from its agent and from each other


@dataclass(frozen=True)
class Request:
    id: str
    name: str
    team: str
    priority: int
    slots: int
    submitted_at: datetime
    trainer_ranks: int = 1  # of the slots: each on a device of its own
    not_before: datetime | None = None
    protocol: int = 1  # that an agent must speak for it
    model_path: str = ""  # a directory below one that its node must offer
    isolated: bool = False  # it runs code of a user inside its trainer, so its node must isolate jobs
    device: str = ""  # that its slots must have; "": any
    slot_memory_bytes: int = 0  # that each of its slots must have at least


@dataclass(frozen=True)
class Snapshot:
    now: datetime
    nodes: Sequence[NodeView]
    queue: Sequence[Request]
    used: Mapping[str, int]  # team → slots held
    limits: Mapping[str, int | None]  # team → hard limit; None or absent is unlimited
    pool: str = "default"  # its name, for the reasons
    teams: frozenset[str] | None = None  # that may use the pool; None: all


@dataclass(frozen=True)
class Placement:
    request: str
    node: str
    slots: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    placements: tuple[Placement, ...]
    waiting: Mapping[str, str]  # request → why, one line
    positions: Mapping[str, int]  # request → 1-based place in the queue of those that go on waiting
    idle: Mapping[str, tuple[SlotView, ...]] = field(
        default_factory=dict
    )  # node → slots left that are kept for nobody
    used: Mapping[str, int] = field(default_factory=dict)  # team → slots held, with these placements


@dataclass
class _Pool:
    nodes: Mapping[str, NodeView]
    free: dict[str, list[SlotView]]
    used: dict[str, int]
    reserved: dict[str, Request] = field(default_factory=dict)  # node → the request that it is kept for


def order(queue: Sequence[Request]) -> list[Request]:
    # Each team keeps the places that it has without priorities above the usual, and orders its own runs within them.
    places = sorted(queue, key=lambda one: (-min(one.priority, USUAL_PRIORITY), one.submitted_at, one.id))
    own: dict[str, list[Request]] = {}
    for request in sorted(queue, key=lambda one: (-one.priority, one.submitted_at, one.id), reverse=True):
        own.setdefault(request.team, []).append(request)
    return [own[place.team].pop() for place in places]


def plan(snapshot: Snapshot) -> Plan:
    pool = _Pool(
        nodes={node.id: node for node in snapshot.nodes},
        free={node.id: list(node.free) for node in snapshot.nodes if node.accepts},
        used=dict(snapshot.used),
    )
    placements: list[Placement] = []
    waiting: dict[str, str] = {}
    for request in order(snapshot.queue):
        found = _place(request, pool, snapshot)
        if isinstance(found, Placement):
            placements.append(found)
        else:
            waiting[request.id] = found
    positions = {identity: index for index, identity in enumerate(waiting, start=1)}
    idle = {node: tuple(slots) for node, slots in pool.free.items() if slots and node not in pool.reserved}
    return Plan(tuple(placements), waiting, positions, idle, pool.used)


def suits(slot: SlotView, request: Request) -> bool:
    """Whether the slot has the device and the memory that the request needs."""
    return request.device in ("", slot.device) and slot.memory_bytes >= request.slot_memory_bytes


def suiting(slots: Iterable[SlotView], request: Request) -> list[SlotView]:
    return [slot for slot in slots if suits(slot, request)]


def capacity(node: NodeView, request: Request) -> int:
    """How many slots the node would have for the request if nobody held any."""
    return len(suiting((*node.free, *node.held), request))


def allocate(slots: Sequence[SlotView], request: Request) -> tuple[SlotView, ...] | None:
    """The slots for the request, its trainer's ranks first, each on a device of its own (NCCL refuses two ranks on one
    GPU); engines share a device with a rank only where no other is left. None: they do not suffice."""
    by_device: dict[str, SlotView] = {}
    for slot in suiting(slots, request):
        by_device.setdefault(device_of(slot.name), slot)
    ranks = list(by_device.values())[: request.trainer_ranks]
    others = [slot for slot in suiting(slots, request) if slot not in ranks]
    others.sort(key=lambda slot: device_of(slot.name) in {device_of(rank.name) for rank in ranks})
    if len(ranks) < request.trainer_ranks or len(ranks) + len(others) < request.slots:
        return None
    return (*ranks, *others)[: request.slots]


def _place(request: Request, pool: _Pool, snapshot: Snapshot) -> Placement | str:
    if snapshot.teams is not None and request.team not in snapshot.teams:
        return (
            f"the team may not use pool {snapshot.pool}; an admin of the installation can allow it again, or cancel "
            "the run and clone it with another placement.pool"
        )
    if request.not_before is not None and request.not_before > snapshot.now:
        seconds = int((request.not_before - snapshot.now).total_seconds()) + 1
        return f"tries again in {seconds} s, after its last attempt ended early"
    limit = snapshot.limits.get(request.team)
    used = pool.used.get(request.team, 0)
    if limit is not None and used + request.slots > limit:
        return f"the team's limit is {_slots(limit)}, {used} are in use and this run needs {request.slots}"
    if not pool.nodes:
        return "no node has joined the pool"

    offering = [node for node in pool.nodes.values() if offers(node, request)]
    if not offering and request.isolated and not any(node.isolates_jobs for node in pool.nodes.values()):
        return "runs a loss of its own in the trainer, and no node isolates jobs; see what the nodes report"
    if not offering:
        return f"no node offers the model's directory {request.model_path}"
    if not any(capacity(node, request) for node in offering):
        return _no_such_slot(request, offering, snapshot)
    fitting = [
        (node, slots)
        for node in offering
        if node.id in pool.free
        and node.id not in pool.reserved
        and node.protocol >= request.protocol
        and (slots := allocate(pool.free[node.id], request)) is not None
    ]
    if fitting:
        # Best fit keeps the big holes whole.
        node, taken = min(
            fitting, key=lambda found: (len(pool.free[found[0].id]), found[0].name, found[0].id)
        )
        pool.free[node.id] = [slot for slot in pool.free[node.id] if slot not in taken]
        pool.used[request.team] = used + request.slots
        return Placement(request.id, node.id, tuple(slot.name for slot in taken))
    return _wait(request, pool, offering)


def offers(node: NodeView, request: Request) -> bool:
    """Whether the node has what the request needs besides slots: isolation of jobs, the model's directory."""
    if request.isolated and not node.isolates_jobs:
        return False
    if not request.model_path or node.model_roots is None:
        return True
    return root_of(request.model_path, node.model_roots) is not None


def _no_such_slot(request: Request, nodes: Sequence[NodeView], snapshot: Snapshot) -> str:
    """No slot of these nodes has the device and the memory that the request needs."""
    slots = [slot for node in nodes for slot in (*node.free, *node.held)]
    where = f"pool {snapshot.pool}"
    if not slots:
        return f"no node of {where} has a healthy slot"
    if len(nodes) < len(snapshot.nodes):
        needs = [f"offer {request.model_path}"] if request.model_path else []
        where += f", of nodes that {' and '.join([*needs, *(['isolate jobs'] if request.isolated else [])])},"
    wanted = f"{request.device} slots" if request.device else "slots"
    same = [slot.memory_bytes for slot in slots if request.device in ("", slot.device)]
    if not same:
        return (
            f"needs {wanted}; {where} has {' and '.join(sorted({slot.device for slot in slots}))} slots only"
        )
    needed, largest = request.slot_memory_bytes / 2**30, max(same) / 2**30
    return f"needs {wanted} of at least {needed:.4g} GiB; the largest of {where} has {largest:.4g} GiB"


def _wait(request: Request, pool: _Pool, offering: Sequence[NodeView]) -> str:
    big_enough = [node for node in offering if capacity(node, request) >= request.slots]
    if not big_enough:
        largest = max(capacity(node, request) for node in offering)
        if request.model_path:
            return (
                f"needs {_slots(request.slots)} on one node that offers {request.model_path}; the largest such node "
                f"has {largest}"
            )
        return f"needs {_slots(request.slots)} on one node; the largest node has {largest}"
    big_enough = [node for node in big_enough if allocate((*node.free, *node.held), request) is not None]
    if not big_enough:
        return f"needs {request.trainer_ranks} GPUs on one node, one for each rank of the trainer; no node has so many"
    big_enough = [node for node in big_enough if node.protocol >= request.protocol]
    if not big_enough:
        return "needs an agent of a newer version; upgrade those of the nodes that are large enough for it"
    open_nodes = [node for node in big_enough if node.id in pool.free]
    if not open_nodes:
        named = ", ".join(f"{node.name} is {node.refusal or 'not ready'}" for node in big_enough[:3])
        return f"no node accepts work: {named}"
    unreserved = [node for node in open_nodes if node.id not in pool.reserved]
    if not unreserved:
        ahead = pool.reserved[open_nodes[0].id]
        # Names of other teams' runs are not for this one.
        named = repr(ahead.name) if ahead.team == request.team else "another team's run"
        return f"waits behind {named}, for which the slots of {open_nodes[0].name} are kept"
    free_of = {node.id: len(suiting(pool.free[node.id], request)) for node in unreserved}
    best = max(unreserved, key=lambda node: (free_of[node.id], capacity(node, request), node.id))
    pool.reserved[best.id] = request
    free = f"{free_of[best.id]} of {capacity(best, request)} are free on {best.name}"
    return f"needs {_slots(request.slots)} on one node; {free}"


def _slots(count: int) -> str:
    return "1 slot" if count == 1 else f"{count} slots"
