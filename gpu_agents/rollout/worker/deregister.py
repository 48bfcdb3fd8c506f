"""The last call of a worker."""

from __future__ import annotations

import logging

from gpu_agents.channel import CallRefused, Peer, PeerGone
from oolong.contracts.rollout import Ack, DeregisterRequest

log = logging.getLogger(__name__)

GOODBYE_SECONDS = 2.0


async def deregister(controller: Peer, worker_id: str) -> None:
    """So that nobody waits for this engine; without it, silence says the same half a minute later."""
    try:
        await controller.call(
            "deregister", DeregisterRequest(worker_id=worker_id), Ack, patience_seconds=GOODBYE_SECONDS
        )
    except (CallRefused, PeerGone) as error:
        log.info("the controller did not hear the goodbye: %s", error)
