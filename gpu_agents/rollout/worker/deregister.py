"""The worker's last call to the controller."""

from __future__ import annotations

import logging

from gpu_agents.channel import CallRefused, Peer, PeerGone
from oolong.contracts.rollout import Ack, DeregisterRequest

log = logging.getLogger(__name__)

DEREGISTER_SECONDS = 2.0


async def deregister(controller: Peer, worker_id: str) -> None:
    """Remove this worker's engine at the controller now, instead of after the liveness timeout."""
    try:
        await controller.call(
            "deregister", DeregisterRequest(worker_id=worker_id), Ack, patience_seconds=DEREGISTER_SECONDS
        )
    except (CallRefused, PeerGone) as error:
        log.info("the controller did not receive the deregistration: %s", error)
