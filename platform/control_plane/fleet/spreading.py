"""Spreads a trainer's ranks over several nodes where none is large enough: pure functions (decision 0068).

The head node gets the engines and at least one rank, because the controller is there. The other nodes get ranks only,
each on a separate device. All nodes are of one peer network, and they are as few as possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from control_plane.fleet.slot_choice import allocate, matching_slots
from control_plane.fleet.snapshot import NodeSnapshot, Request, SlotSnapshot
from oolong.gpu_slots import device_of

Parts = tuple[tuple[str, tuple[SlotSnapshot, ...]], ...]  # (node, slots), the head node first


def networks(nodes: Iterable[NodeSnapshot]) -> list[tuple[NodeSnapshot, ...]]:
    """Nodes that reach each other, by the name of their network."""
    found: dict[str, list[NodeSnapshot]] = {}
    for node in nodes:
        if node.peer_network:
            found.setdefault(node.peer_network, []).append(node)
    return [tuple(found[name]) for name in sorted(found)]


def spread(slots: Mapping[str, Sequence[SlotSnapshot]], request: Request) -> Parts | None:
    """The slots for the request over at most `request.max_nodes` of these nodes (node → slots); None when they do not
    suffice, or when one node does."""
    devices = {
        node: sorted({device_of(slot.name) for slot in matching_slots(of_node, request)})
        for node, of_node in slots.items()
    }
    by_size = sorted(
        (node for node in devices if devices[node]), key=lambda node: (-len(devices[node]), node)
    )
    best: list[tuple[str, int]] | None = None  # (node, ranks)
    for head in by_size:
        ranks = _ranks_beside_engines(slots[head], request, most=len(devices[head]))
        if not ranks:
            continue
        chosen, missing = [(head, ranks)], request.trainer_ranks - ranks
        for node in by_size:
            if missing <= 0 or len(chosen) == request.max_nodes:
                break
            if node != head:
                count = min(missing, len(devices[node]))
                chosen.append((node, count))
                missing -= count
        if missing <= 0 and len(chosen) > 1 and (best is None or len(chosen) < len(best)):
            best = chosen
    if best is None:
        return None
    (head, ranks), *others = best
    engines = request.slots - request.trainer_ranks
    first = allocate(slots[head], replace(request, slots=ranks + engines, trainer_ranks=ranks))
    parts = [
        (node, allocate(slots[node], replace(request, slots=count, trainer_ranks=count)))
        for node, count in others
    ]
    return tuple((node, found) for node, found in [(head, first), *parts] if found is not None)


def _ranks_beside_engines(slots: Sequence[SlotSnapshot], request: Request, *, most: int) -> int:
    """How many ranks fit beside all engines of the request, at most one less than it has."""
    engines = request.slots - request.trainer_ranks
    for ranks in range(min(most, request.trainer_ranks - 1), 0, -1):
        if allocate(slots, replace(request, slots=ranks + engines, trainer_ranks=ranks)) is not None:
            return ranks
    return 0
