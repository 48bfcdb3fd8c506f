"""From the groups of a batch to what each rank computes: minibatches, packed microbatches, equal counts.

Pure functions over plain data. Rank 0 plans and deals every rank its share; all ranks then run the same number of
forward passes, because under FSDP2 each pass is a collective.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oolong.contracts.rollout import Group

# A sequence of T tokens costs about T * (this + T): attention, which is quadratic, then costs as much as the rest.
ATTENTION_EVEN_AT = 1024


class BatchUnusable(Exception):
    """A group breaks the contract; the message names it and the field."""


@dataclass(frozen=True)
class TrainingSequence:
    """Prompt and completion of one trajectory, and its N loss tokens."""

    group: int  # place of its group in the batch
    member: int  # place in the group
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


@dataclass(frozen=True)
class RankPlan:
    """A train step of one rank."""

    version: int  # policy version that the batch is trained at
    minibatches: list[Minibatch]
    rewards: list[list[float]]  # of the whole batch, [groups][members], on every rank


def training_sequences(groups: Sequence[Group]) -> list[list[TrainingSequence]]:
    """[groups][members]; checks that every list of a trajectory has its completion's length."""
    return [
        [_sequence(group, number, member) for member in range(len(group.trajectories))]
        for number, group in enumerate(groups)
    ]


def _sequence(group: Group, number: int, member: int) -> TrainingSequence:
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
        member=member,
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
) -> list[RankPlan]:
    """One plan per rank. Minibatch k holds the k-th run of groups, in the order in which they were taken."""
    sequences = training_sequences(groups)
    rewards = [[float(trajectory.reward or 0.0) for trajectory in group.trajectories] for group in groups]
    per_minibatch = len(groups) // minibatches
    if per_minibatch * minibatches != len(groups):
        raise BatchUnusable(f"{len(groups)} groups do not divide into {minibatches} minibatches")
    shares: list[list[Minibatch]] = [[] for _ in range(ranks)]
    for start in range(0, len(groups), per_minibatch):
        members = [one for group in sequences[start : start + per_minibatch] for one in group if one.loss_at]
        loss_tokens = sum(len(one.loss_at) for one in members)
        bins = [_fill(share, token_budget) for share in _balance(members, ranks)]
        count = max(1, *(len(share) for share in bins))
        for share, packed in zip(shares, bins, strict=True):
            padded = packed + [_dummy(groups[0])] * (count - len(packed))
            share.append(Minibatch(microbatches=padded, loss_tokens=loss_tokens))
    return [RankPlan(version=version, minibatches=share, rewards=rewards) for share in shares]


def _balance(sequences: list[TrainingSequence], ranks: int) -> list[list[TrainingSequence]]:
    """Longest first, each to the rank with the least work so far."""
    loads = [0] * ranks
    shares: list[list[TrainingSequence]] = [[] for _ in range(ranks)]
    for sequence in sorted(sequences, key=lambda one: -len(one.tokens)):
        lightest = loads.index(min(loads))
        loads[lightest] += len(sequence.tokens) * (ATTENTION_EVEN_AT + len(sequence.tokens))
        shares[lightest].append(sequence)
    return shares


def _fill(sequences: list[TrainingSequence], token_budget: int) -> list[Microbatch]:
    """First fit, longest first. A sequence over the budget gets a microbatch of its own."""
    bins: list[list[TrainingSequence]] = []
    free: list[int] = []
    for sequence in sequences:
        size = len(sequence.tokens)
        place = next((number for number, room in enumerate(free) if room >= size), None)
        if place is None:
            bins.append([sequence])
            free.append(token_budget - size)
        else:
            bins[place].append(sequence)
            free[place] -= size
    return [Microbatch(sequences=one) for one in bins]


def _dummy(group: Group) -> Microbatch:
    return Microbatch(
        [
            TrainingSequence(
                group=0,
                member=0,
                tokens=group.prompt_token_ids[:1],
                loss_at=[],
                behaviour_logprobs=[],
                versions=[],
            )
        ]
    )
