"""The trainer processes of one attempt, started by torchrun: who am I, on which device, and how do we talk."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

T = TypeVar("T")

# Rank 0 may wait for a batch for hours while the others wait for rank 0. A dead rank is not found by this
# timeout: torchrun ends the others as soon as one exits.
PATIENCE = timedelta(hours=24)


@dataclass(frozen=True)
class Ranks:
    rank: int
    size: int
    device: torch.device
    mesh: DeviceMesh
    background: dist.ProcessGroup | None = (
        None  # gloo, for threads: their messages must not mix with the loop's
    )

    @property
    def first(self) -> bool:
        return self.rank == 0

    def deal(self, shares: Sequence[T] | None) -> T:
        """Rank 0 passes one share per rank, the others None; everyone gets its own."""
        if self.size == 1:
            assert shares is not None
            return shares[0]
        received: list[T | None] = [None]
        dist.scatter_object_list(received, list(shares) if shares is not None else None, src=0)
        share = received[0]
        assert share is not None
        return share

    def tell(self, value: T | None) -> T:
        """Rank 0's value, on every rank."""
        return self.deal([value] * self.size if self.first else None)  # type: ignore[return-value]

    def sum(self, values: Sequence[float]) -> list[float]:
        return self._reduce(values, dist.ReduceOp.SUM)

    def max(self, values: Sequence[float]) -> list[float]:
        return self._reduce(values, dist.ReduceOp.MAX)

    def wait_for_all(self) -> None:
        if self.size > 1:
            dist.barrier()

    def _reduce(self, values: Sequence[float], operation: dist.ReduceOp) -> list[float]:
        if self.size == 1:
            return list(values)
        tensor = torch.tensor(list(values), dtype=torch.float64)
        dist.all_reduce(tensor, op=operation)
        return tensor.tolist()


def join_ranks(device: str, *, gpu_share: float = 1.0, meeting_file: Path | None = None) -> Ranks:
    """Join the process group that torchrun's environment describes. `device` is cpu or cuda.

    The ranks of one node meet in a file: no port is opened for that, and only their own user can reach it. Without a
    file they meet at the address in the environment.
    Below 1, `gpu_share` is how much of the GPU's memory this rank may allocate: engines hold the rest.
    """
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    if device == "cuda":
        local = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(local)
        if gpu_share < 1:
            torch.cuda.set_per_process_memory_fraction(gpu_share, local)
    else:
        local = torch.device("cpu")
    backend = "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo"
    if meeting_file is None:
        dist.init_process_group(backend, timeout=PATIENCE)
    else:
        rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        store = dist.FileStore(str(meeting_file), ranks)
        dist.init_process_group(backend, store=store, rank=rank, world_size=ranks, timeout=PATIENCE)
    size = dist.get_world_size()
    return Ranks(
        rank=dist.get_rank(),
        size=size,
        device=local,
        mesh=init_device_mesh(local.type, (size,), mesh_dim_names=("shard",)),
        background=dist.new_group(backend="gloo", timeout=PATIENCE),
    )


def leave_ranks() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
