"""What this machine has: cores, memory, disk, and the slots it offers to the pool."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from gpu_agents.agent.processes import boot_id
from oolong.contracts.agent import Inventory, SlotInventory

NVIDIA_SMI_SECONDS = 20.0


class InventoryError(Exception):
    """The machine cannot offer what was asked of it; the message says what to do."""


def take_inventory(
    data_directory: Path, *, device: str, slots: int, version: str, model_roots: Sequence[str] = ()
) -> Inventory:
    """Look at the machine. `slots` counts CPU slots (0: one per core) and is ignored for device=cuda."""
    return Inventory(
        hostname=socket.gethostname(),
        agent_version=version,
        boot_id=boot_id(),
        cpu_count=usable_cores(),
        memory_bytes=memory_bytes(),
        disk_free_bytes=shutil.disk_usage(data_directory).free,
        slots=gpu_slots() if device == "cuda" else cpu_slots(slots),
        model_roots=list(model_roots),
    )


def usable_cores() -> int:
    return max(1, len(os.sched_getaffinity(0)))


def memory_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    raise InventoryError("/proc/meminfo has no MemTotal line")


def cpu_slots(count: int) -> list[SlotInventory]:
    """CPU slots are places for one engine or one trainer rank each; by default one per core, at least one."""
    wanted = count or usable_cores()
    return [
        SlotInventory(
            slot=f"cpu-{number}", device="cpu", model=_cpu_model(), memory_bytes=memory_bytes() // wanted
        )
        for number in range(wanted)
    ]


def gpu_slots() -> list[SlotInventory]:
    """One slot per GPU, by UUID, as nvidia-smi lists them."""
    try:
        answer = subprocess.run(
            ["nvidia-smi", "--query-gpu=uuid,name,memory.total", "--format=csv,noheader,nounits"],
            capture_output=True, text=True, timeout=NVIDIA_SMI_SECONDS, check=True,
        )  # fmt: skip
    except FileNotFoundError as error:
        raise InventoryError(
            "device=cuda, but nvidia-smi is not on PATH: install the NVIDIA driver, or use device=cpu"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise InventoryError(
            f"nvidia-smi did not answer within {NVIDIA_SMI_SECONDS:g} s; the driver may hang"
        ) from error
    except subprocess.CalledProcessError as error:
        raise InventoryError(
            f"nvidia-smi failed with status {error.returncode}: {error.stderr.strip() or error.stdout.strip()}"
        ) from error
    return parse_gpus(answer.stdout)


def parse_gpus(text: str) -> list[SlotInventory]:
    """Lines `GPU-<uuid>, <model>, <MiB>` → slots."""
    slots = []
    for line in filter(None, (line.strip() for line in text.splitlines())):
        uuid, model, mebibytes = (part.strip() for part in line.split(","))
        slots.append(
            SlotInventory(slot=uuid, device="cuda", model=model, memory_bytes=int(mebibytes) * 1024**2)
            if mebibytes.isdigit()
            else SlotInventory(
                slot=uuid, device="cuda", model=model, healthy=False, reason=f"memory reads {mebibytes!r}"
            )
        )
    if not slots:
        raise InventoryError("device=cuda, but nvidia-smi lists no GPU")
    return slots


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return ""
