"""Who gets the credit: one advantage per loss token of this rank, from the rewards of the whole batch.

A token advantage is a tensor [T] per sequence, T its loss tokens, whatever the estimator: an outcome's advantage is the
same for all tokens of its trajectory, that of gae differs from token to token. A reward that a workflow gives in the
middle of a trajectory (a turn's) belongs into `token_rewards`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from oolong.contracts.run_spec import AlgorithmSection
from trainers.algorithms.advantages import advantages
from trainers.algorithms.gae import gae, normalised
from trainers.algorithms.kl import reference_kl
from trainers.rl.columns import TokenColumns

Sum = Callable[[Sequence[float]], list[float]]  # over all ranks


@dataclass(frozen=True)
class Credit:
    """Of one microbatch, [N]."""

    advantages: torch.Tensor
    returns: torch.Tensor | None  # what a critic's value should be


@dataclass(frozen=True)
class Passes:
    """What the forward passes before the updates said of one microbatch, [N]."""

    proximal: torch.Tensor  # log-probabilities
    reference: torch.Tensor | None = None  # log-probabilities
    values: torch.Tensor | None = None  # of the critic


def outcome_credit(
    batch: Sequence[TokenColumns], rewards: list[list[float]], algorithm: AlgorithmSection
) -> list[Credit]:
    """`rewards` [groups][rollouts]: every trajectory of a rollout has the rollout's advantage."""
    section = algorithm.advantage
    values = advantages(
        rewards,
        mean=section.mean,
        std=section.std,
        std_of=section.std_of,
        epsilon=section.epsilon,
        leave_one_out=section.leave_one_out,
    )
    return [
        Credit(
            advantages=torch.tensor(
                [values[one.group][one.rollout] for one in columns.sequences for _ in one.loss_at],
                dtype=torch.float32,
                device=columns.behaviour.device,
            ),
            returns=None,
        )
        for columns in batch
    ]


def gae_credit(
    batch: Sequence[TokenColumns],
    passes: Sequence[Passes],
    rewards: list[list[float]],
    algorithm: AlgorithmSection,
    total: Sum,
) -> list[Credit]:
    """Without a critic all values are 0. Advantages are normalised after estimation, returns are not."""
    section = algorithm.advantage
    token_advantages: list[torch.Tensor] = []
    token_returns: list[torch.Tensor] = []
    groups: list[int] = []
    for columns, one in zip(batch, passes, strict=True):
        values = torch.zeros_like(columns.behaviour) if one.values is None else one.values
        found, returns = gae(
            columns.by_sequence(token_rewards(columns, one, rewards, algorithm)),
            columns.by_sequence(values),
            gamma=section.gamma,
            gae_lambda=section.gae_lambda,
        )
        token_advantages += found
        token_returns += returns
        groups += [sequence.group for sequence in columns.sequences]
    token_advantages = normalised(
        token_advantages, groups, group_count=len(rewards), section=section, total=total
    )
    credits, start = [], 0
    for columns in batch:
        end = start + len(columns.sequences)
        credits.append(
            Credit(
                advantages=torch.cat(token_advantages[start:end]), returns=torch.cat(token_returns[start:end])
            )
        )
        start = end
    return credits


def token_rewards(
    columns: TokenColumns, passes: Passes, rewards: list[list[float]], algorithm: AlgorithmSection
) -> torch.Tensor:
    """[N]: the trajectory's reward at its last loss token; with kl.place: reward, minus beta KL at every token."""
    earned = torch.zeros_like(columns.behaviour)
    kl = algorithm.kl
    if kl is not None and kl.place == "reward":
        assert passes.reference is not None
        earned -= kl.coefficient * reference_kl(passes.proximal, passes.reference, estimator=kl.estimator)
    end = 0
    for sequence in columns.sequences:
        if sequence.loss_at:
            end += len(sequence.loss_at)
            earned[end - 1] += rewards[sequence.group][sequence.rollout]
    return earned
