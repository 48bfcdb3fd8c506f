"""torchrun for one node without an open port: `python -m trainers.distributed.launch NUM_RANKS MODULE ARGUMENT…`

The rendezvous store of torchrun listens on every interface without authentication. One node needs no such store: the
launcher keeps its own in memory, and the ranks join through a file that only their job can open
(`trainers.distributed.context`).
"""

from __future__ import annotations

import sys

from torch.distributed import HashStore
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    rendezvous_handler_registry,
)
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

BACKEND = "single_node"


class SingleNodeRendezvous(RendezvousHandler):
    """The rendezvous of a single launcher: world size 1, rank 0, an in-memory store."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._store = HashStore()

    @property
    def use_agent_store(self) -> bool:
        return False

    def get_backend(self) -> str:
        return BACKEND

    def next_rendezvous(self) -> RendezvousInfo:
        return RendezvousInfo(self._store, 0, 1, RendezvousStoreInfo("127.0.0.1", 0))

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None:
        pass

    def num_nodes_waiting(self) -> int:
        return 0

    def get_run_id(self) -> str:
        return self._run_id

    def shutdown(self) -> bool:
        return True


def _handler(parameters: RendezvousParameters) -> RendezvousHandler:
    return SingleNodeRendezvous(parameters.run_id)


def main(num_ranks: int, module: str, arguments: list[str]) -> int:
    rendezvous_handler_registry.register(BACKEND, _handler)
    config = LaunchConfig(
        min_nodes=1, max_nodes=1, nproc_per_node=num_ranks, run_id="attempt", rdzv_backend=BACKEND, rdzv_endpoint="",
        max_restarts=0, monitor_interval=0.1,
    )  # fmt: skip
    try:
        elastic_launch(config, sys.executable)("-u", "-m", module, *arguments)
    except ChildFailedError as error:
        print(error, file=sys.stderr)
        return next(iter(error.failures.values())).exitcode or 1
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
