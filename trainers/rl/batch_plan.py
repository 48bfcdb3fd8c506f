"""The plan of a train step: splits the groups of a batch into minibatches and packed microbatches for each rank.

Pure functions over plain data. Rank 0 plans and scatters the plans. All ranks run the same number of forward passes,
because each pass is a collective under FSDP2.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from oolong.contracts.rollout import Group, rollout_indices, rollouts_of
from trainers.distributed.sequence_packing import (
    Microbatches,
    SequenceSize,
    lockstep_flops,
    pack_microbatches,
)
from trainers.models.flops import DEFAULT_FLOPS, ForwardFlops


class InvalidBatch(Exception):
    """A group violates the contract. The message names the group and the field."""


@dataclass(frozen=True)
class TrainingSequence:
    """Prompt and completion of one trajectory, with its N loss tokens."""

    group: int  # index of its group in the batch
    rollout: int  # index of its rollout in the group
    source: tuple[str, int]  # group id, index of its trajectory in the group
    tokens: list[int]
    loss_positions: list[int]  # [N] positions in `tokens` that the policy sampled
    behavior_logprobs: list[float]  # [N]
    versions: list[int]  # [N] policy version that sampled each token


@dataclass(frozen=True)
class Microbatch:
    """One forward pass of one rank. A microbatch without loss tokens is a dummy, run to match the other ranks."""

    sequences: list[TrainingSequence]

    @property
    def tokens(self) -> int:
        return sum(len(sequence.tokens) for sequence in self.sequences)

    @property
    def is_dummy(self) -> bool:
        return not any(sequence.loss_positions for sequence in self.sequences)


@dataclass(frozen=True)
class Minibatch:
    """One optimizer step of one rank."""

    microbatches: list[Microbatch]
    loss_tokens: int  # over all ranks: the denominator
    loss_sequences: int  # over all ranks, those with loss tokens


@dataclass(frozen=True)
class RankPlan:
    """One train step of one rank."""

    version: int  # policy version that the batch is trained at
    minibatches: list[Minibatch]
    rewards: list[list[float]]  # of the whole batch, [groups][rollouts], on every rank


def training_sequences(groups: Sequence[Group]) -> list[list[TrainingSequence]]:
    """[groups][trajectories]. Raises `InvalidBatch` if a list of a trajectory differs from its completion's length."""
    return [
        [_sequence(group, number, index, rollout) for index, rollout in enumerate(rollout_indices(group))]
        for number, group in enumerate(groups)
    ]


def _sequence(group: Group, number: int, index: int, rollout: int) -> TrainingSequence:
    trajectory = group.trajectories[index]
    length = len(trajectory.token_ids)
    for field in ("loss_mask", "behavior_logprobs", "policy_versions"):
        if len(getattr(trajectory, field)) != length:
            raise InvalidBatch(
                f"group {group.group_id}, trajectory {index}: {field} has {len(getattr(trajectory, field))} "
                f"entries for {length} completion tokens"
            )
    if trajectory.reward is None:
        raise InvalidBatch(
            f"group {group.group_id}, trajectory {index}: no reward; only scored groups can be trained on"
        )
    if not group.prompt_token_ids:
        raise InvalidBatch(
            f"group {group.group_id}: empty prompt; the first completion token needs a token before it"
        )
    masked_in = [position for position in range(length) if trajectory.loss_mask[position]]
    prompt = len(group.prompt_token_ids)
    return TrainingSequence(
        group=number,
        rollout=rollout,
        source=(group.group_id, index),
        tokens=[*group.prompt_token_ids, *trajectory.token_ids],
        loss_positions=[prompt + position for position in masked_in],
        behavior_logprobs=[trajectory.behavior_logprobs[position] for position in masked_in],
        versions=[trajectory.policy_versions[position] for position in masked_in],
    )


def plan_batch(
    groups: Sequence[Group],
    *,
    version: int,
    num_ranks: int,
    minibatches: int,
    token_budget: int,
    flops: ForwardFlops = DEFAULT_FLOPS,
    seed: int | None = None,
) -> list[RankPlan]:
    """Return one plan per rank. Groups are shuffled by `seed` and version, then cut into minibatches in order.

    Without shuffling the first minibatch would always be the stalest, because the controller returns the oldest groups
    first, and long completions would cluster. `seed=None` keeps the given order.
    """
    if seed is not None:
        groups = shuffled(groups, seed=seed, version=version)
    sequences = training_sequences(groups)
    rewards = [[float(one[0].reward or 0.0) for one in rollouts_of(group)] for group in groups]
    per_minibatch = len(groups) // minibatches
    if per_minibatch * minibatches != len(groups):
        raise InvalidBatch(f"{len(groups)} groups do not divide into {minibatches} minibatches")
    shares: list[list[Minibatch]] = [[] for _ in range(num_ranks)]
    for start in range(0, len(groups), per_minibatch):
        members = [
            one for group in sequences[start : start + per_minibatch] for one in group if one.loss_positions
        ]
        loss_tokens = sum(len(one.loss_positions) for one in members)
        by_rank = pack_microbatches(
            [_size(one, flops) for one in members], num_ranks=num_ranks, token_budget=token_budget
        )
        for share, packed in zip(shares, by_rank, strict=True):
            microbatches = [
                Microbatch([members[index] for index in indices]) if indices else _dummy(groups[0])
                for indices in packed
            ]
            share.append(
                Minibatch(microbatches=microbatches, loss_tokens=loss_tokens, loss_sequences=len(members))
            )
    return [RankPlan(version=version, minibatches=share, rewards=rewards) for share in shares]


def shuffled(groups: Sequence[Group], *, seed: int, version: int) -> list[Group]:
    """Shuffle deterministically by the run's seed and the version, so that a resumed run gets the same order."""
    order = list(groups)
    random.Random(f"minibatches-{seed}-{version}").shuffle(order)
    return order


def flops_imbalance(plans: Sequence[RankPlan], flops: ForwardFlops = DEFAULT_FLOPS) -> float:
    """Lockstep FLOPs of a step over the mean FLOPs of a rank; 1 is perfect balance."""
    lockstep = total = 0.0
    for minibatches in zip(*(plan.minibatches for plan in plans), strict=True):
        sizes: list[SequenceSize] = []
        by_rank: list[Microbatches] = []
        for minibatch in minibatches:
            share = []
            for microbatch in minibatch.microbatches:
                first = len(sizes)
                sizes += [_size(one, flops) for one in microbatch.sequences]
                share.append(list(range(first, len(sizes))))
            by_rank.append(share)
        lockstep += lockstep_flops(sizes, by_rank)
        total += sum(size.flops for size in sizes)
    return lockstep * len(plans) / total


def _size(sequence: TrainingSequence, flops: ForwardFlops) -> SequenceSize:
    tokens = len(sequence.tokens)
    return SequenceSize(tokens=tokens, flops=flops.of_sequence(tokens, len(sequence.loss_positions)))


def _dummy(group: Group) -> Microbatch:
    return Microbatch(
        [
            TrainingSequence(
                group=0,
                rollout=0,
                source=(group.group_id, 0),
                tokens=group.prompt_token_ids[:1],
                loss_positions=[],
                behavior_logprobs=[],
                versions=[],
            )
        ]
    )
