"""Prefill a group's prompt once: one request precedes the rollouts, which then hit the prefix cache.

Without it, rollouts that are sent together land in one prefill batch, and each computes the whole prompt.
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

MIN_PROMPT_TOKENS = 64  # for shorter prompts the extra round trip costs more than the prefill saves


class PromptPrefill:
    """One per claimed group. If a load comes between it and the rollouts, they compute the prompt themselves."""

    def __init__(self, engine: EngineHandle, prompt_ids: list[int], rollouts: Sequence[RolloutState]) -> None:
        self._engine = engine
        self._prompt_ids = prompt_ids
        fresh = [rollout for rollout in rollouts if not rollout.token_ids]
        worthwhile = len(fresh) > 1 and len(prompt_ids) >= MIN_PROMPT_TOKENS
        self._first = fresh[0] if worthwhile else None
        self._done = asyncio.Event()
        if not worthwhile:
            self._done.set()

    async def before(self, rollout: RolloutState) -> None:
        """Wait until the prompt is in the cache, or prefilling it does not pay off. The prefill runs under the first
        rollout's request id, so that halting the group aborts it too."""
        if rollout is not self._first:
            await self._done.wait()
            return
        rollout.rid = uuid.uuid4().hex
        try:
            await self._engine.prefill(self._prompt_ids, rid=rollout.rid)
        except EngineUnavailable as error:  # the rollouts' own requests handle it
            log.info("the prompt was not prefilled: %s", error)
        finally:
            rollout.rid = ""
            self._done.set()
