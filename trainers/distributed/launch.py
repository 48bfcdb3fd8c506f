"""torchrun without a store that everybody reaches: `python -m trainers.distributed.launch [OPTIONS] NUM_RANKS MODULE …`

torchrun's rendezvous store listens on every interface, and its c10d rendezvous orders nodes by their addresses. Here:

* One node needs no listening store: the launcher keeps its own in memory, and the ranks join through a file that only
  their job can open (`trainers.distributed.context`).
* Ranks over several nodes share a c10d store that listens at the first node's peer address only. Each launcher has a
  fixed node rank, because rank 0 must be where the controller is. No node joins later, and none is replaced.
"""

from __future__ import annotations

import argparse
import ipaddress
import socket
import sys
import time
from datetime import timedelta

from torch.distributed import HashStore, PrefixStore, Store, TCPStore
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    rendezvous_handler_registry,
)
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

BACKEND = "fixed_nodes"
POLL_SECONDS = 0.2  # in Python, so that signals are handled while other nodes fetch their inputs
STORE_TIMEOUT = timedelta(minutes=10)


class FixedNodesRendezvous(RendezvousHandler):
    """The rendezvous of launchers whose number and ranks are fixed."""

    def __init__(self, run_id: str, *, nodes: int, node_rank: int, address: str, port: int) -> None:
        self._run_id = run_id
        self._nodes = nodes
        self._node_rank = node_rank
        self._address = address
        self._port = port
        self._store: Store | None = None

    @property
    def use_agent_store(self) -> bool:
        return self._nodes > 1

    def get_backend(self) -> str:
        return BACKEND

    def next_rendezvous(self) -> RendezvousInfo:
        if self._nodes == 1:
            self._store = HashStore()
        else:
            self._store = self._join()
        where = RendezvousStoreInfo(self._address, self._port)
        return RendezvousInfo(self._store, self._node_rank, self._nodes, where)

    def _join(self) -> Store:
        """Wait, without a limit, until every node has joined. The control plane ends attempts that cannot start."""
        if self._node_rank == 0:
            store = serve_store(self._address, self._port)
        else:
            wait_until_it_listens(self._address, self._port)
            store = TCPStore(self._address, self._port, is_master=False, timeout=STORE_TIMEOUT)
        nodes = PrefixStore("nodes", store)
        nodes.set(str(self._node_rank), "")
        while not nodes.check([str(rank) for rank in range(self._nodes)]):
            time.sleep(POLL_SECONDS)
        return store

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


def serve_store(address: str, port: int) -> TCPStore:
    """A store that listens at this address alone."""
    family = socket.AF_INET if ipaddress.ip_address(address).version == 4 else socket.AF_INET6
    listener = socket.create_server((address, port), family=family)
    return TCPStore(
        address, port, is_master=True, timeout=STORE_TIMEOUT, wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )  # fmt: skip


def wait_until_it_listens(address: str, port: int) -> None:
    while True:
        try:
            socket.create_connection((address, port), timeout=5.0).close()
            return
        except OSError:
            time.sleep(POLL_SECONDS)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="trainers.distributed.launch")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--node-rank", type=int, default=0)
    parser.add_argument("--address", default="127.0.0.1", help="peer address of node 0")
    parser.add_argument("--port", type=int, default=0, help="of the store on node 0")
    parser.add_argument("num_ranks", type=int, help="ranks of this node")
    parser.add_argument("module")
    parser.add_argument("rest", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)

    def handler(parameters: RendezvousParameters) -> RendezvousHandler:
        return FixedNodesRendezvous(
            parameters.run_id, nodes=options.nodes, node_rank=options.node_rank, address=options.address,
            port=options.port,
        )  # fmt: skip

    rendezvous_handler_registry.register(BACKEND, handler)
    config = LaunchConfig(
        min_nodes=options.nodes, max_nodes=options.nodes, nproc_per_node=options.num_ranks, run_id="attempt",
        rdzv_backend=BACKEND, rdzv_endpoint="", max_restarts=0, monitor_interval=0.1,
    )  # fmt: skip
    try:
        elastic_launch(config, sys.executable)("-u", "-m", options.module, *options.rest)
    except ChildFailedError as error:
        print(error, file=sys.stderr)
        return next(iter(error.failures.values())).exitcode or 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
