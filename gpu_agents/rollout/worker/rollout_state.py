"""One rollout of a group in progress: its turns and tokens so far, across engines, aborts and versions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from msgspec.structs import replace

from gpu_agents.rollout.engines.client import Generation
from oolong.contracts.rollout import PartialTrajectory, Trajectory, Turn

_NOT_SAMPLED = -1  # version of environment tokens that precede the first sampled token


@dataclass(kw_only=True)
class RolloutState:
    index: int
    group_id: str = ""  # empty for an evaluation
    token_ids: list[int] = field(default_factory=list)  # [T]
    loss_mask: list[int] = field(default_factory=list)  # [T] 1 where the policy sampled
    logprobs: list[float] = field(default_factory=list)  # [T]
    versions: list[int] = field(default_factory=list)  # [T]
    turns: list[Turn] = field(default_factory=list)
    outcomes: list[float | str | None] = field(default_factory=list)
    tool_calls: int = 0
    interruptions: int = 0
    generate_seconds: float = 0.0
    reward_seconds: float = 0.0
    reward: float | None = None  # set when the workflow has returned: the rollout is complete
    score: float | None = None  # the reward function's last value
    reward_parts: dict[str, float] = field(default_factory=dict)  # of that value
    reward_result: str = ""
    reward_text: str = ""
    rid: str = ""  # of the request in flight
    seed: int | None = None  # of sampling; None: the engine's own

    @classmethod
    def resumed(cls, partial: PartialTrajectory, group_id: str) -> RolloutState:
        """Resume from what an earlier worker released."""
        trajectory = partial.trajectory
        return cls(
            index=partial.index,
            group_id=group_id,
            token_ids=list(trajectory.token_ids),
            loss_mask=list(trajectory.loss_mask),
            logprobs=list(trajectory.behavior_logprobs),
            versions=list(trajectory.policy_versions),
            turns=list(trajectory.turns),
            outcomes=list(partial.outcomes),
            tool_calls=trajectory.tool_calls,
            interruptions=trajectory.interruptions,
            generate_seconds=trajectory.generate_seconds,
            reward_seconds=trajectory.reward_seconds,
            reward=trajectory.reward,
            score=trajectory.score,
            reward_parts=dict(trajectory.reward_parts),
            reward_result=trajectory.reward_result,
            reward_text=trajectory.reward_text,
        )

    @property
    def sampled_tokens(self) -> int:
        return sum(self.loss_mask)

    @property
    def finish_reason(self) -> Literal["stop", "length"] | None:
        """Finish reason of the last sampled turn; None while it continues."""
        return next((turn.finish_reason for turn in reversed(self.turns) if turn.sampled), None)

    def begin_turn(self) -> None:
        self.turns.append(Turn(tokens=0, sampled=True))

    def add_sampled(self, generation: Generation) -> None:
        """Append to the turn in progress."""
        self.token_ids += generation.token_ids
        self.loss_mask += [1] * len(generation.token_ids)
        self.logprobs += generation.logprobs
        self.versions += generation.versions
        aborted = generation.finish == "abort"
        self.interruptions += bool(generation.retractions or (aborted and generation.token_ids))
        turn = self.turns[-1]
        self.turns[-1] = replace(
            turn,
            tokens=turn.tokens + len(generation.token_ids),
            finish_reason=None if generation.finish == "abort" else generation.finish,
        )

    def end_turn(self, finish_reason: Literal["stop", "length"]) -> None:
        self.turns[-1] = replace(self.turns[-1], finish_reason=finish_reason)

    def add_environment(self, token_ids: list[int]) -> None:
        # The previous token's version leaves the trajectory's oldest version and version span unchanged.
        version = self.versions[-1] if self.versions else _NOT_SAMPLED
        self.token_ids += token_ids
        self.loss_mask += [0] * len(token_ids)
        self.logprobs += [0.0] * len(token_ids)
        self.versions += [version] * len(token_ids)
        self.turns.append(Turn(tokens=len(token_ids), sampled=False))

    def trajectory(self) -> Trajectory:
        """Return the trajectory. At least one token must have been sampled."""
        first = next(version for version in self.versions if version != _NOT_SAMPLED)
        return Trajectory(
            token_ids=self.token_ids,
            loss_mask=self.loss_mask,
            behavior_logprobs=self.logprobs,
            policy_versions=[first if version == _NOT_SAMPLED else version for version in self.versions],
            finish_reason=self.finish_reason or "abort",
            turns=self.turns,
            tool_calls=self.tool_calls,
            reward=self.reward,
            score=self.score,
            reward_parts=self.reward_parts,
            reward_result=self.reward_result,
            reward_text=self.reward_text,
            interruptions=self.interruptions,
            generate_seconds=self.generate_seconds,
            reward_seconds=self.reward_seconds,
        )

    def partial(self) -> PartialTrajectory:
        return PartialTrajectory(
            index=self.index,
            trajectory=self.trajectory(),
            finished=self.reward is not None,
            outcomes=self.outcomes,
        )
