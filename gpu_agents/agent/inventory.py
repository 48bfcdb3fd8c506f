"""The machine's cores, memory, disk, and the slots it offers to the pool."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from gpu_agents.agent import slot_readings
from oolong.contracts.agent import Inventory, SlotInventory
from oolong.gpu_slots import slot_names
from oolong.system.process_handle import boot_id

NVIDIA_SMI_SECONDS = 20.0
GPU_FIELDS = (
    "index,uuid,name,memory.total,mig.mode.current,utilization.gpu,memory.used,temperature.gpu,"
    "ecc.errors.uncorrected.volatile.total"
)
APP_FIELDS = "gpu_uuid,pid,used_memory"


class InventoryError(Exception):
    """The machine cannot offer the requested slots."""


def take_inventory(
    data_directory: Path,
    *,
    device: str,
    slots: int,
    version: str,
    model_roots: Sequence[str] = (),
    slots_per_gpu: int = 1,
) -> Inventory:
    """Take the inventory. `slots` counts CPU slots (0: one per core) and is ignored for device=cuda."""
    return Inventory(
        hostname=socket.gethostname(),
        agent_version=version,
        boot_id=boot_id(),
        cpu_count=usable_cores(),
        memory_bytes=memory_bytes(),
        disk_free_bytes=shutil.disk_usage(data_directory).free,
        slots=gpu_slots(slots_per_gpu) if device == "cuda" else cpu_slots(slots),
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
    """Each CPU slot holds one engine or one trainer rank; by default there is one per core."""
    wanted = count or usable_cores()
    return [
        SlotInventory(
            slot=f"cpu-{number}", device="cpu", model=_cpu_model(), memory_bytes=memory_bytes() // wanted
        )
        for number in range(wanted)
    ]


def gpu_slots(slots_per_gpu: int = 1) -> list[SlotInventory]:
    """Slots of the GPUs in nvidia-smi and, if it is set, in CUDA_VISIBLE_DEVICES, with their readings."""
    gpus = parse_gpus(
        _nvidia_smi(f"--query-gpu={GPU_FIELDS}"),
        slots_per_gpu=slots_per_gpu, visible=os.environ.get("CUDA_VISIBLE_DEVICES"),
    )  # fmt: skip
    foreign = slot_readings.parse_compute_apps(_nvidia_smi(f"--query-compute-apps={APP_FIELDS}"))
    return slot_readings.with_foreign_processes(gpus, foreign)


def _nvidia_smi(query: str) -> str:
    try:
        return subprocess.run(
            ["nvidia-smi", query, "--format=csv,noheader,nounits"],
            capture_output=True, text=True, timeout=NVIDIA_SMI_SECONDS, check=True,
        ).stdout  # fmt: skip
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


def parse_gpus(text: str, *, slots_per_gpu: int = 1, visible: str | None = None) -> list[SlotInventory]:
    """Lines of GPU_FIELDS → slots of the visible GPUs. Slots that share a GPU have its readings, memory divided.

    `visible` has the format of CUDA_VISIBLE_DEVICES: indices, UUIDs or UUID prefixes; None means all. A GPU with MIG
    instances is unhealthy: CUDA cannot use its UUID, and its memory is divided. So is one with memory errors that
    were not corrected, until the machine is restarted.
    """
    gpus = [[part.strip() for part in line.split(",")] for line in text.splitlines() if line.strip()]
    if not gpus:
        raise InventoryError("device=cuda, but nvidia-smi lists no GPU")
    chosen = gpus if visible is None else [gpu for gpu in gpus if _is_visible(gpu[0], gpu[1], visible)]
    if not chosen:
        raise InventoryError(
            f"device=cuda, but CUDA_VISIBLE_DEVICES={visible!r} names none of this machine's GPUs; they are "
            + ", ".join(f"{index} ({uuid})" for index, uuid, *_ in gpus)
        )
    return [slot for gpu in chosen for slot in _slots_of_gpu(*gpu[1:], shares=slots_per_gpu)]


def _is_visible(index: str, uuid: str, visible: str) -> bool:
    named = [word.strip() for word in visible.split(",") if word.strip()]
    return any(uuid.startswith(word) if word.startswith("GPU-") else word == index for word in named)


def _slots_of_gpu(
    uuid: str, model: str, mebibytes: str, mig_mode: str, utilization: str, used: str, celsius: str, errors: str,
    *, shares: int,
) -> list[SlotInventory]:  # fmt: skip
    reason = "" if mebibytes.isdigit() else f"memory reads {mebibytes!r}"
    if mig_mode == "Enabled":
        reason = "the GPU has MIG instances, which are not supported: disable them with nvidia-smi -mig 0"
    memory_bytes = int(mebibytes) * 1024**2 // shares if not reason else 0
    if errors.isdigit() and int(errors) > 0:
        reason = f"{errors} memory errors were not corrected: drain the node and restart it"
    return [
        SlotInventory(
            slot=name, device="cuda", model=model, memory_bytes=memory_bytes, healthy=not reason, reason=reason,
            utilization=min(1.0, int(utilization) / 100) if utilization.isdigit() else None,
            memory_used_bytes=int(used) * 1024**2 // shares if used.isdigit() else None,
            celsius=float(celsius) if celsius.isdigit() else None,
        )
        for name in slot_names(uuid, shares)
    ]  # fmt: skip


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return ""
