"""Names of slots on a GPU: the GPU's UUID where it is one slot, UUID/0, UUID/1, … where it is shared by several.

A shared GPU holds a trainer rank beside engines; two ranks of one trainer never share one (NCCL refuses it).
"""

from __future__ import annotations

from collections.abc import Iterable

SHARE_MARK = "/"


def slot_names(uuid: str, shares: int) -> list[str]:
    """The slots of one GPU."""
    return [uuid] if shares == 1 else [f"{uuid}{SHARE_MARK}{number}" for number in range(shares)]


def device_of(slot: str) -> str:
    """The device that a slot is on: a GPU's UUID, or the name of a CPU slot."""
    return slot.partition(SHARE_MARK)[0]


def visible_devices(slots: Iterable[str]) -> str:
    """CUDA_VISIBLE_DEVICES of a job that holds these slots: each GPU once, in the order of the slots."""
    return ",".join(dict.fromkeys(device_of(slot) for slot in slots))
