"""A drawn group on its way: what the controller knows of it between draw and fate."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpu_agents.rollout.controller.prompt_order import Draw
from oolong.contracts.rollout import Group, PartialTrajectory, Trajectory


@dataclass(kw_only=True)
class GroupState:
    draw: Draw
    order: int  # claim order: the n-th drawn group; kept when it is claimed again
    max_staleness: (
        int  # the largest bound in force since it was drawn: lowering the run's bound does not lower this
    )
    claim_version: int = -1  # version that its engine had loaded when it was claimed last
    partial: list[PartialTrajectory] = field(default_factory=list)  # given back by an earlier worker
    finished: Group | None = None

    @property
    def group_id(self) -> str:
        return self.draw.group_id

    @property
    def trajectories(self) -> list[Trajectory]:
        """Those that the controller holds: of a finished group all, of an unfinished one what was given back."""
        return self.finished.trajectories if self.finished else [m.trajectory for m in self.partial]

    @property
    def tokens(self) -> int:
        """Tokens that the policy sampled for it and that the controller holds."""
        if self.finished is not None:
            return group_tokens(self.finished)
        return sum(sampled_tokens(member.trajectory) for member in self.partial)

    @property
    def oldest_version(self) -> int:
        """Oldest version among its tokens, or, before the first one is known, the version of its claim."""
        versions = [min(t.policy_versions) for t in self.trajectories if t.policy_versions]
        if self.finished is None:
            versions.append(self.claim_version)
        return min(versions) if versions else self.claim_version

    @property
    def deadline(self) -> int:
        """The last version at which training on it keeps its bound."""
        return self.oldest_version + self.max_staleness


def group_tokens(group: Group) -> int:
    return sum(sampled_tokens(trajectory) for trajectory in group.trajectories)


def sampled_tokens(trajectory: Trajectory) -> int:
    """What the ledger counts: the environment's tokens cost no generation and train nothing."""
    return sum(trajectory.loss_mask)
