"""From the groups of a batch to what each rank computes: minibatches, packed microbatches, equal counts.

Pure functions over plain data. Rank 0 plans and deals every rank its share; all ranks then run the same number of
forward passes, because under FSDP2 each pass is a collective.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from oolong.contracts.rollout import Group, rollout_indices, rollouts_of
from trainers.microbatches import Size, allocate, lockstep_flops
from trainers.models.flops import OF_NO_MODEL, ForwardFlops


class BatchUnusable(Exception):
    """A group breaks the contract; the message names it and the field."""


@dataclass(frozen=True)
class TrainingSequence:
    """Prompt and completion of one trajectory, and its N loss tokens."""

    group: int  # place of its group in the batch
    rollout: int  # of the group: its place in the group's rewards
    tokens: list[int]
    loss_at: list[int]  # [N] positions in `tokens` that the policy sampled
    behaviour_logprobs: list[float]  # [N]
    versions: list[int]  # [N] policy version that sampled each


@dataclass(frozen=True)
class Microbatch:
    """One forward pass of one rank. Without loss tokens it is a dummy that keeps the ranks in step."""

    sequences: list[TrainingSequence]

    @property
    def tokens(self) -> int:
        return sum(len(sequence.tokens) for sequence in self.sequences)

    @property
    def is_dummy(self) -> bool:
        return not any(sequence.loss_at for sequence in self.sequences)


@dataclass(frozen=True)
class Minibatch:
    """One optimizer step of one rank."""

    microbatches: list[Microbatch]
    loss_tokens: int  # over all ranks: the denominator
    loss_sequences: int  # over all ranks, those with loss tokens


@dataclass(frozen=True)
class RankPlan:
    """A train step of one rank."""

    version: int  # policy version that the batch is trained at
    minibatches: list[Minibatch]
    rewards: list[list[float]]  # of the whole batch, [groups][rollouts], on every rank


def training_sequences(groups: Sequence[Group]) -> list[list[TrainingSequence]]:
    """[groups][trajectories]; checks that every list of a trajectory has its completion's length."""
    return [
        [_sequence(group, number, member, rollout) for member, rollout in enumerate(rollout_indices(group))]
        for number, group in enumerate(groups)
    ]


def _sequence(group: Group, number: int, member: int, rollout: int) -> TrainingSequence:
    trajectory = group.trajectories[member]
    length = len(trajectory.token_ids)
    for field in ("loss_mask", "behaviour_logprobs", "policy_versions"):
        if len(getattr(trajectory, field)) != length:
            raise BatchUnusable(
                f"group {group.group_id}, member {member}: {field} has {len(getattr(trajectory, field))} "
                f"entries for {length} completion tokens"
            )
    if trajectory.reward is None:
        raise BatchUnusable(
            f"group {group.group_id}, member {member}: no reward; only scored groups are trained on"
        )
    if not group.prompt_token_ids:
        raise BatchUnusable(
            f"group {group.group_id}: empty prompt; the first completion token has nothing before it"
        )
    wanted = [place for place in range(length) if trajectory.loss_mask[place]]
    prompt = len(group.prompt_token_ids)
    return TrainingSequence(
        group=number,
        rollout=rollout,
        tokens=[*group.prompt_token_ids, *trajectory.token_ids],
        loss_at=[prompt + place for place in wanted],
        behaviour_logprobs=[trajectory.behaviour_logprobs[place] for place in wanted],
        versions=[trajectory.policy_versions[place] for place in wanted],
    )


def plan_batch(
    groups: Sequence[Group],
    *,
    version: int,
    ranks: int,
    minibatches: int,
    token_budget: int,
    flops: ForwardFlops = OF_NO_MODEL,
    seed: int | None = None,
) -> list[RankPlan]:
    """One plan per rank. Minibatch k holds the k-th run of groups, in the order that `seed` and version give.

    The controller takes the oldest groups first, so in the order of the batch the first minibatch would always be the
    stalest, and long completions would cluster. None keeps the order given.
    """
    if seed is not None:
        groups = shuffled(groups, seed=seed, version=version)
    sequences = training_sequences(groups)
    rewards = [[float(one[0].reward or 0.0) for one in rollouts_of(group)] for group in groups]
    per_minibatch = len(groups) // minibatches
    if per_minibatch * minibatches != len(groups):
        raise BatchUnusable(f"{len(groups)} groups do not divide into {minibatches} minibatches")
    shares: list[list[Minibatch]] = [[] for _ in range(ranks)]
    for start in range(0, len(groups), per_minibatch):
        members = [one for group in sequences[start : start + per_minibatch] for one in group if one.loss_at]
        loss_tokens = sum(len(one.loss_at) for one in members)
        dealt = allocate([_size(one, flops) for one in members], ranks=ranks, token_budget=token_budget)
        for share, bins in zip(shares, dealt, strict=True):
            microbatches = [
                Microbatch([members[place] for place in places]) if places else _dummy(groups[0])
                for places in bins
            ]
            share.append(
                Minibatch(microbatches=microbatches, loss_tokens=loss_tokens, loss_sequences=len(members))
            )
    return [RankPlan(version=version, minibatches=share, rewards=rewards) for share in shares]


def shuffled(groups: Sequence[Group], *, seed: int, version: int) -> list[Group]:
    """In an order of the run's seed and the version alone, so that a resumed run has it again."""
    order = list(groups)
    random.Random(f"minibatches-{seed}-{version}").shuffle(order)
    return order


def flops_imbalance(plans: Sequence[RankPlan], flops: ForwardFlops = OF_NO_MODEL) -> float:
    """What the ranks wait for each other: lockstep cost of a step over the mean cost of a rank; 1 is perfect."""
    waited = total = 0.0
    for minibatches in zip(*(plan.minibatches for plan in plans), strict=True):
        sizes: list[Size] = []
        dealt: list[list[list[int]]] = []
        for minibatch in minibatches:
            share = []
            for microbatch in minibatch.microbatches:
                first = len(sizes)
                sizes += [_size(one, flops) for one in microbatch.sequences]
                share.append(list(range(first, len(sizes))))
            dealt.append(share)
        waited += lockstep_flops(sizes, dealt)
        total += sum(size.flops for size in sizes)
    return waited * len(plans) / total


def _size(sequence: TrainingSequence, flops: ForwardFlops) -> Size:
    tokens = len(sequence.tokens)
    return Size(tokens=tokens, flops=flops.of(tokens, len(sequence.loss_at)))


def _dummy(group: Group) -> Microbatch:
    return Microbatch(
        [
            TrainingSequence(
                group=0,
                rollout=0,
                tokens=group.prompt_token_ids[:1],
                loss_at=[],
                behaviour_logprobs=[],
                versions=[],
            )
        ]
    )
