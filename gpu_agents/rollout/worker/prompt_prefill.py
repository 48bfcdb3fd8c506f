"""A group's prompt is computed once: one request goes ahead of the members, who find it in the prefix cache.

Members that are sent at once come into one prefill, and each computes the whole prompt beside the others.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Sequence

from gpu_agents.rollout.engines.errors import EngineUnavailable
from gpu_agents.rollout.worker.engine_handle import EngineHandle
from gpu_agents.rollout.worker.rollout_state import RolloutState

log = logging.getLogger(__name__)

WORTH_TOKENS = (
    64  # a request of its own costs a round trip: below this, computing the prompt again is cheaper
)


class PromptPrefill:
    """One per claimed group. After a load between it and the members, these compute the prompt themselves."""

    def __init__(self, slot: EngineHandle, prompt_ids: list[int], members: Sequence[RolloutState]) -> None:
        self._slot = slot
        self._prompt_ids = prompt_ids
        fresh = [member for member in members if not member.token_ids]
        worth = len(fresh) > 1 and len(prompt_ids) >= WORTH_TOKENS
        self._first = fresh[0] if worth else None
        self._over = asyncio.Event()
        if not worth:
            self._over.set()

    async def before(self, member: RolloutState) -> None:
        """Returns once the prompt is in the cache, or need not be. The first member's request id is the prefill's
        meanwhile, so that who halts the group aborts it too."""
        if member is not self._first:
            await self._over.wait()
            return
        member.rid = uuid.uuid4().hex
        try:
            await self._slot.prefill(self._prompt_ids, rid=member.rid)
        except EngineUnavailable as error:  # the members' own requests deal with that
            log.info("the prompt was not computed ahead: %s", error)
        finally:
            member.rid = ""
            self._over.set()
