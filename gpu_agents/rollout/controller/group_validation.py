"""Checks the shape of a submitted group before it may enter the buffer."""

from __future__ import annotations

from oolong.contracts.rollout import Group, rollouts_of


def validate_group(group: Group, *, group_size: int, branching: bool = False) -> None:
    """Raise ValueError unless a train step can use the group.

    `branching`: a rollout may have several trajectories; each then names its rollout.
    """
    _validate_rollouts(group, group_size=group_size, branching=branching)
    for index, trajectory in enumerate(group.trajectories):
        lengths = {
            len(trajectory.token_ids),
            len(trajectory.loss_mask),
            len(trajectory.behavior_logprobs),
            len(trajectory.policy_versions),
        }
        if len(lengths) != 1 or 0 in lengths:
            raise ValueError(
                f"group {group.group_id}, trajectory {index}: its four lists have lengths {sorted(lengths)}; they "
                "must be equal and not 0"
            )
        if trajectory.reward is None:
            raise ValueError(f"group {group.group_id}, trajectory {index} has no reward")


def _validate_rollouts(group: Group, *, group_size: int, branching: bool) -> None:
    count = len(group.trajectories)
    named = [one.rollout for one in group.trajectories if one.rollout is not None]
    if not branching or not named:
        if count != group_size:
            raise ValueError(f"group {group.group_id} has {count} trajectories, not {group_size}")
        return
    if len(named) != count or set(named) != set(range(group_size)):
        raise ValueError(
            f"group {group.group_id}: its {count} trajectories name the rollouts {sorted(set(named))}; "
            f"each must name one, and every one of 0 to {group_size - 1} must have a trajectory"
        )
    for index, trajectories in enumerate(rollouts_of(group)):
        if len({one.reward for one in trajectories}) != 1:
            raise ValueError(
                f"group {group.group_id}, rollout {index}: its trajectories have unequal rewards"
            )
