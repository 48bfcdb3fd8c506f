"""The worker's last call to the controller."""

from __future__ import annotations

import logging

from oolong.contracts.rollout import Ack, DeregisterRequest
from oolong.system.rpc import RpcClient, RpcError, RpcUnavailable

log = logging.getLogger(__name__)

DEREGISTER_SECONDS = 2.0


async def deregister(controller: RpcClient, worker_id: str) -> None:
    """Remove this worker's engine at the controller now, instead of after the liveness timeout."""
    try:
        await controller.call(
            "deregister", DeregisterRequest(worker_id=worker_id), Ack, retry_seconds=DEREGISTER_SECONDS
        )
    except (RpcError, RpcUnavailable) as error:
        log.info("the controller did not receive the deregistration: %s", error)
