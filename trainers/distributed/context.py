"""The process group of one trainer job: rank, device, mesh and collectives over plain Python values."""

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

# Rank 0 may wait hours for a batch while the other ranks wait for rank 0. This timeout does not detect dead ranks:
# torchrun terminates the others as soon as one exits.
COLLECTIVE_TIMEOUT = timedelta(hours=24)


@dataclass(frozen=True)
class DistributedContext:
    rank: int
    world_size: int
    device: torch.device
    mesh: DeviceMesh
    spans_nodes: bool = False  # its ranks are on several nodes, which share no directory
    # gloo, for background threads: their messages must not interleave with those of the train loop.
    background_group: dist.ProcessGroup | None = None

    @property
    def is_rank0(self) -> bool:
        return self.rank == 0

    def scatter(self, shares: Sequence[T] | None) -> T:
        """Return this rank's share. Rank 0 passes one share per rank, the other ranks pass None."""
        if self.world_size == 1:
            assert shares is not None
            return shares[0]
        received: list[T | None] = [None]
        dist.scatter_object_list(received, list(shares) if shares is not None else None, src=0)
        share = received[0]
        assert share is not None
        return share

    def gather(self, value: T) -> list[T] | None:
        """Return the values of all ranks, in order, on rank 0; None on the others."""
        if self.world_size == 1:
            return [value]
        received: list[T | None] | None = [None] * self.world_size if self.is_rank0 else None
        dist.gather_object(value, received, dst=0)
        return received  # type: ignore[return-value]

    def broadcast(self, value: T | None) -> T:
        """Return rank 0's value on every rank."""
        return self.scatter([value] * self.world_size if self.is_rank0 else None)  # type: ignore[return-value]

    def sum(self, values: Sequence[float]) -> list[float]:
        """Sum each value over all ranks."""
        return self._all_reduce(values, dist.ReduceOp.SUM)

    def max(self, values: Sequence[float]) -> list[float]:
        """Take the maximum of each value over all ranks."""
        return self._all_reduce(values, dist.ReduceOp.MAX)

    def barrier(self) -> None:
        if self.world_size > 1:
            dist.barrier()

    def _all_reduce(self, values: Sequence[float], operation: dist.ReduceOp) -> list[float]:
        if self.world_size == 1:
            return list(values)
        tensor = torch.tensor(list(values), dtype=torch.float64)
        dist.all_reduce(tensor, op=operation)
        return tensor.tolist()


def init_distributed(
    device: str, *, gpu_share: float = 1.0, rendezvous_file: Path | None = None
) -> DistributedContext:
    """Join the process group that torchrun's environment variables describe. `device` is cpu or cuda.

    With `rendezvous_file`, the ranks of one node find each other through that file: no port is opened, and only their
    own user can reach it. Without it they use MASTER_ADDR and MASTER_PORT.
    `gpu_share` below 1 is the fraction of the GPU's memory that this rank may allocate, for GPUs shared with engines.
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
    if rendezvous_file is None:
        dist.init_process_group(backend, timeout=COLLECTIVE_TIMEOUT)
    else:
        rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        store = dist.FileStore(str(rendezvous_file), world_size)
        dist.init_process_group(
            backend, store=store, rank=rank, world_size=world_size, timeout=COLLECTIVE_TIMEOUT
        )
    world_size = dist.get_world_size()
    return DistributedContext(
        rank=dist.get_rank(),
        world_size=world_size,
        device=local,
        mesh=init_device_mesh(local.type, (world_size,), mesh_dim_names=("shard",)),
        spans_nodes=spans_nodes(),
        background_group=dist.new_group(backend="gloo", timeout=COLLECTIVE_TIMEOUT),
    )


def spans_nodes() -> bool:
    """Whether torchrun's environment variables describe ranks on several nodes."""
    return int(os.environ.get("GROUP_WORLD_SIZE", "1")) > 1


def is_first_of_node() -> bool:
    return int(os.environ.get("LOCAL_RANK", "0")) == 0


def shutdown_distributed() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
