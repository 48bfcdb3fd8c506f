"""What a submitted group must look like before it may enter the buffer."""

from __future__ import annotations

from oolong.contracts.rollout import Group


def check_group(group: Group, *, group_size: int, branching: bool = False) -> None:
    """Raise ValueError unless the group is one that a step can train on."""
    count = len(group.trajectories)
    if count < group_size or (count > group_size and not branching):
        raise ValueError(
            f"group {group.group_id} has {len(group.trajectories)} trajectories, not {group_size}"
        )
    for index, trajectory in enumerate(group.trajectories):
        lengths = {
            len(trajectory.token_ids),
            len(trajectory.loss_mask),
            len(trajectory.behaviour_logprobs),
            len(trajectory.policy_versions),
        }
        if len(lengths) != 1 or 0 in lengths:
            raise ValueError(
                f"group {group.group_id}, member {index}: its four lists have lengths {sorted(lengths)}"
            )
        if trajectory.reward is None:
            raise ValueError(f"group {group.group_id}, member {index} has no reward")
