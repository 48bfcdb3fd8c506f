"""Credit assignment: one advantage per loss token of this rank, from the rewards of the whole batch.

With the outcome estimator all tokens of a trajectory have the same advantage; with GAE each token has its own. Rewards
in the middle of a trajectory (of a turn) would be added in `token_rewards`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from oolong.contracts.run_spec import AlgorithmSection
from trainers.algorithms.advantages import rollout_advantages
from trainers.algorithms.gae import gae, normalize_advantages
from trainers.algorithms.kl import reference_kl
from trainers.rl.microbatch_tensors import MicrobatchTensors

SumOverRanks = Callable[[Sequence[float]], list[float]]


@dataclass(frozen=True)
class Advantages:
    """Of one microbatch."""

    advantages: torch.Tensor  # [N]
    returns: torch.Tensor | None  # [N], the critic's targets; None without GAE


@dataclass(frozen=True)
class ForwardOutputs:
    """Results of the forward passes before the optimizer steps, for one microbatch."""

    proximal: torch.Tensor  # [N] log-probabilities
    reference: torch.Tensor | None = None  # [N] log-probabilities
    values: torch.Tensor | None = None  # [N] of the critic


def estimate_outcome_advantages(
    batch: Sequence[MicrobatchTensors], rewards: list[list[float]], algorithm: AlgorithmSection
) -> list[Advantages]:
    """Give every loss token the advantage of its rollout. `rewards` is [groups][rollouts]."""
    section = algorithm.advantage
    values = rollout_advantages(
        rewards,
        mean=section.mean,
        std=section.std,
        std_of=section.std_of,
        epsilon=section.epsilon,
        leave_one_out=section.leave_one_out,
    )
    return [
        Advantages(
            advantages=torch.tensor(
                [values[one.group][one.rollout] for one in tensors.sequences for _ in one.loss_positions],
                dtype=torch.float32,
                device=tensors.behavior.device,
            ),
            returns=None,
        )
        for tensors in batch
    ]


def estimate_gae_advantages(
    batch: Sequence[MicrobatchTensors],
    outputs: Sequence[ForwardOutputs],
    rewards: list[list[float]],
    algorithm: AlgorithmSection,
    sum_over_ranks: SumOverRanks,
) -> list[Advantages]:
    """Estimate advantages by GAE, then normalize them; returns are not normalized. Without a critic, values are 0."""
    section = algorithm.advantage
    token_advantages: list[torch.Tensor] = []
    token_returns: list[torch.Tensor] = []
    groups: list[int] = []
    for tensors, one in zip(batch, outputs, strict=True):
        values = torch.zeros_like(tensors.behavior) if one.values is None else one.values
        advantages, returns = gae(
            tensors.by_sequence(token_rewards(tensors, one, rewards, algorithm)),
            tensors.by_sequence(values),
            gamma=section.gamma,
            gae_lambda=section.gae_lambda,
        )
        token_advantages += advantages
        token_returns += returns
        groups += [sequence.group for sequence in tensors.sequences]
    token_advantages = normalize_advantages(
        token_advantages, groups, num_groups=len(rewards), section=section, sum_over_ranks=sum_over_ranks
    )
    estimates, start = [], 0
    for tensors in batch:
        end = start + len(tensors.sequences)
        estimates.append(
            Advantages(
                advantages=torch.cat(token_advantages[start:end]), returns=torch.cat(token_returns[start:end])
            )
        )
        start = end
    return estimates


def token_rewards(
    tensors: MicrobatchTensors,
    outputs: ForwardOutputs,
    rewards: list[list[float]],
    algorithm: AlgorithmSection,
) -> torch.Tensor:
    """[N]: the rollout's reward at the last loss token of each trajectory; minus beta KL per token if configured."""
    token_reward = torch.zeros_like(tensors.behavior)
    kl = algorithm.kl
    if kl is not None and kl.apply_to == "reward":
        assert outputs.reference is not None
        token_reward -= kl.coefficient * reference_kl(
            outputs.proximal, outputs.reference, estimator=kl.estimator
        )
    end = 0
    for sequence in tensors.sequences:
        if sequence.loss_positions:
            end += len(sequence.loss_positions)
            token_reward[end - 1] += rewards[sequence.group][sequence.rollout]
    return token_reward
