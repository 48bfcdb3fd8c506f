"""Enroll the node once with a single-use join token; afterwards its credential identifies it."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

import msgspec

from gpu_agents.agent.api import AgentApi, ApiError
from gpu_agents.agent.inventory import take_inventory
from gpu_agents.agent.isolation.node import NodeIsolation
from gpu_agents.agent.records import Node, read_json, write_json
from gpu_agents.agent.settings import AgentSettings, DataDirectory
from oolong.contracts.agent import PROTOCOL, EnrollRequest, Inventory

REASON_CHARACTERS = 400
OTHER_PROTOCOL = frozenset({"agent_too_old", "agent_too_new"})


class EnrollmentError(Exception):
    """This node has no credential and could not get one."""


async def enroll(settings: AgentSettings) -> Node:
    """Return the node's identity from node.json, or enroll it with the join token."""
    data = DataDirectory(settings.data_directory)
    if data.node.exists():
        return read_json(data.node, Node)
    if not settings.join_token:
        raise EnrollmentError(
            f"{data.node} does not exist, so this node must be enrolled first: pass --join-token with a token from "
            "the pool page (or --join-token-file)"
        )
    api = AgentApi(settings.server, settings.join_token)
    try:
        reply = await api.enroll(
            EnrollRequest(name=settings.name, inventory=inventory_of(settings), protocol=PROTOCOL)
        )
    except ApiError as refusal:
        if refusal.code in OTHER_PROTOCOL:
            raise EnrollmentError(str(refusal)) from refusal
        raise EnrollmentError(
            f"the control plane rejected the join token ({refusal}); a token works once, so get a new one"
        ) from refusal
    finally:
        await api.close()
    node = Node(
        server=settings.server,
        node_id=reply.node_id,
        credential=reply.credential,
        heartbeat_seconds=reply.heartbeat_seconds,
        orphan_ttl_seconds=reply.orphan_ttl_seconds,
    )
    write_json(data.node, node)
    return node


def inventory_of(settings: AgentSettings, isolation: NodeIsolation | None = None) -> Inventory:
    """Take the inventory. `isolation` is the result of detection, once known."""
    inventory = take_inventory(
        settings.data_directory, device=settings.device, slots=settings.slots, version=agent_version(),
        model_roots=settings.model_roots, slots_per_gpu=settings.slots_per_gpu,
    )  # fmt: skip
    allocation = settings.allocation
    inventory = msgspec.structs.replace(
        inventory, provider=allocation.provider, provider_job=allocation.job, partition=allocation.partition,
        account=allocation.account, ends_at=allocation.ends_at,
    )  # fmt: skip
    if settings.peer_address:
        inventory = msgspec.structs.replace(
            inventory, peer_address=settings.peer_address, peer_network=settings.peer_network
        )
    if isolation is None:
        return inventory
    return msgspec.structs.replace(
        inventory, job_isolation=isolation.kind, job_isolation_reason=isolation.reason[:REASON_CHARACTERS]
    )


def agent_version() -> str:
    try:
        return version("oolong")
    except PackageNotFoundError:
        return "0+checkout"
