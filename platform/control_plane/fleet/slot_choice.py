"""Chooses slots of one node for a request: pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from control_plane.fleet.snapshot import Holder, Request, SlotSnapshot
from oolong.gpu_slots import device_of


def matches(slot: SlotSnapshot, request: Request) -> bool:
    """Whether the slot has the device, model and memory that the request needs."""
    return (
        request.device in ("", slot.device)
        and slot.memory_bytes >= request.slot_memory_bytes
        and (not request.gpu_model or request.gpu_model in slot.model.casefold())
    )


def matching_slots(slots: Iterable[SlotSnapshot], request: Request) -> list[SlotSnapshot]:
    return [slot for slot in slots if matches(slot, request)]


def allocate(slots: Sequence[SlotSnapshot], request: Request) -> tuple[SlotSnapshot, ...] | None:
    """The slots for the request: first one per trainer rank, each on a separate device (NCCL rejects two ranks on one
    GPU), then the engines, on devices without a rank where possible. None when the slots do not suffice."""
    by_device: dict[str, SlotSnapshot] = {}
    for slot in matching_slots(slots, request):
        by_device.setdefault(device_of(slot.name), slot)
    ranks = list(by_device.values())[: request.trainer_ranks]
    others = [slot for slot in matching_slots(slots, request) if slot not in ranks]
    others.sort(key=lambda slot: device_of(slot.name) in {device_of(rank.name) for rank in ranks})
    if len(ranks) < request.trainer_ranks or len(ranks) + len(others) < request.slots:
        return None
    return (*ranks, *others)[: request.slots]


def fewest(staying: Sequence[Holder], fits: Callable[[Sequence[Holder]], bool]) -> list[Holder] | None:
    """As few of the holders as possible that have to leave so that `fits` is true; the last ones are spared first.
    None when all of them do not suffice."""
    chosen = list(staying)
    if not fits(chosen):
        return None
    for holder in reversed(staying):
        others = [one for one in chosen if one is not holder]
        chosen = others if fits(others) else chosen
    return chosen
