"""One member of a group while it is sampled: its tokens so far, across engines, aborts and versions."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from gpu_agents.rollout.engines.client import Finish, Sampling
from gpu_agents.rollout.engines.errors import EngineGone
from gpu_agents.rollout.worker.engine_slot import DEATHS_OF_ONE_REQUEST, EngineSlot
from oolong.contracts.rollout import PartialTrajectory, Trajectory


@dataclass(kw_only=True)
class Member:
    index: int
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    finish: Finish | None = None  # stop or length, once it is whole
    interruptions: int = 0
    generate_seconds: float = 0.0
    reward_seconds: float = 0.0
    reward: float | None = None
    score: float | None = None
    rid: str = ""  # of the request in flight

    @classmethod
    def resumed(cls, partial: PartialTrajectory) -> Member:
        """Go on from what an earlier worker gave back."""
        trajectory = partial.trajectory
        return cls(
            index=partial.index,
            token_ids=list(trajectory.token_ids),
            logprobs=list(trajectory.behaviour_logprobs),
            versions=list(trajectory.policy_versions),
            finish=trajectory.finish_reason if partial.finished else None,
            interruptions=trajectory.interruptions,
            generate_seconds=trajectory.generate_seconds,
            reward_seconds=trajectory.reward_seconds,
            reward=trajectory.reward,
            score=trajectory.score,
        )

    def trajectory(self) -> Trajectory:
        return Trajectory(
            token_ids=self.token_ids,
            loss_mask=[1] * len(self.token_ids),
            behaviour_logprobs=self.logprobs,
            policy_versions=self.versions,
            finish_reason=self.finish or "abort",
            reward=self.reward,
            score=self.score,
            interruptions=self.interruptions,
            generate_seconds=self.generate_seconds,
            reward_seconds=self.reward_seconds,
        )

    def partial(self) -> PartialTrajectory:
        return PartialTrajectory(
            index=self.index, trajectory=self.trajectory(), finished=self.finish is not None
        )


async def sample_member(
    member: Member,
    slot: EngineSlot,
    prompt_ids: list[int],
    *,
    max_new_tokens: int,
    temperature: float,
    interrupted: Callable[[], bool],
) -> None:
    """Sample until the member is whole, or until `interrupted()`; its tokens so far are kept either way.

    An abort returns partial tokens and the next request goes on from them; a dead engine loses those that it
    had not returned. Raises EngineGone when one request has cost several engines their life.
    """
    started = time.monotonic()
    deaths = 0
    try:
        while member.finish is None and not interrupted():
            left = max_new_tokens - len(member.token_ids)
            if left <= 0:
                member.finish = "length"
                break
            # Request ids are of one length, so that none is a prefix of another: the engine matches prefixes.
            member.rid = uuid.uuid4().hex
            try:
                generation = await slot.generate(
                    prompt_ids + member.token_ids,
                    Sampling(max_new_tokens=left, temperature=temperature),
                    rid=member.rid,
                )
            except EngineGone:
                deaths += 1
                if deaths >= DEATHS_OF_ONE_REQUEST:
                    raise
                await asyncio.sleep(0.5)  # until the supervisor has seen it too, and closed the slot
                continue
            finally:
                member.rid = ""
            member.token_ids += generation.token_ids
            member.logprobs += generation.logprobs
            member.versions += generation.versions
            aborted = generation.finish == "abort"
            member.interruptions += bool(generation.retractions or (aborted and generation.token_ids))
            if not aborted:
                member.finish = generation.finish
    finally:
        member.generate_seconds += time.monotonic() - started
