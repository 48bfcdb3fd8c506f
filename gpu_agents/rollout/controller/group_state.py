"""What the controller knows of one group, from its prompt to its final state."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpu_agents.rollout.controller.prompt_order import SampledPrompt
from oolong.contracts.rollout import Group, PartialTrajectory, Trajectory


@dataclass(kw_only=True)
class GroupState:
    prompt: SampledPrompt
    order: int  # claim order: n for the n-th group of the run; kept when it is claimed again
    max_staleness: int  # the largest bound in force since the group started; a lower one does not apply to it
    claim_version: int = -1  # version that its engine had loaded at the last claim
    partial: list[PartialTrajectory] = field(default_factory=list)  # released by an earlier worker
    finished: Group | None = None

    @property
    def group_id(self) -> str:
        return self.prompt.group_id

    @property
    def trajectories(self) -> list[Trajectory]:
        """Those that the controller has: all of a finished group, the released ones of an unfinished group."""
        return self.finished.trajectories if self.finished else [p.trajectory for p in self.partial]

    @property
    def tokens(self) -> int:
        """Sampled tokens that the controller has."""
        if self.finished is not None:
            return group_tokens(self.finished)
        return sum(sampled_tokens(partial.trajectory) for partial in self.partial)

    @property
    def oldest_version(self) -> int:
        """The oldest version among its tokens; before the first token is known, the version of its claim."""
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
    """What the ledger counts: environment tokens are neither generated nor trained on."""
    return sum(trajectory.loss_mask)
