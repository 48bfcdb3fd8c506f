"""Planning a train step: each loss token once, equal counts on all ranks, within the token budget."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from oolong.contracts.rollout import Group, Trajectory
from trainers.models.flops import ForwardFlops
from trainers.rl.batch_plan import (
    InvalidBatch,
    Minibatch,
    RankPlan,
    TrainingSequence,
    flops_imbalance,
    plan_batch,
)
from trainers.rl.step_metrics import batch_metrics


def trajectory(length: int, *, mask: list[int] | None = None, reward: float | None = 1.0) -> Trajectory:
    return Trajectory(
        token_ids=list(range(length)), loss_mask=mask or [1] * length, behavior_logprobs=[-0.5] * length,
        policy_versions=[3] * length, finish_reason="stop", reward=reward, score=reward,
    )  # fmt: skip


def group(number: int, *trajectories: Trajectory) -> Group:
    return Group(
        group_id=f"0-{number}-0", row=number, prompt_token_ids=[7, 8, 9], prompt="", answer="",
        trajectories=list(trajectories),
    )  # fmt: skip


def long_tailed(groups: int, members: int, seed: int) -> list[Group]:
    rng = random.Random(seed)
    return [
        group(number, *(trajectory(min(200, int(rng.lognormvariate(3, 0.9)) + 1)) for _ in range(members)))
        for number in range(groups)
    ]


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_each_sequence_is_in_one_microbatch_of_its_minibatch(num_ranks: int, seed: int) -> None:
    groups = long_tailed(8, 4, seed)
    plans = plan_batch(groups, version=5, num_ranks=num_ranks, minibatches=4, token_budget=256)
    for number in range(4):
        shares = [plan.minibatches[number] for plan in plans]
        found = [(one.group, one.rollout) for one in sequences_of(shares)]
        assert sorted(found) == [
            (place, member) for place in (2 * number, 2 * number + 1) for member in range(4)
        ]
        assert {share.loss_tokens for share in shares} == {
            sum(len(one.loss_positions) for one in sequences_of(shares))
        }


@pytest.mark.parametrize("num_ranks", [2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_all_ranks_run_the_same_number_of_forward_passes(num_ranks: int, seed: int) -> None:
    plans = plan_batch(
        long_tailed(8, 4, seed), version=5, num_ranks=num_ranks, minibatches=2, token_budget=256
    )
    for number in range(2):
        assert len({len(plan.minibatches[number].microbatches) for plan in plans}) == 1


@pytest.mark.parametrize("seed", range(5))
def test_only_single_long_sequences_exceed_the_token_budget(seed: int) -> None:
    [plan] = plan_batch(long_tailed(8, 4, seed), version=5, num_ranks=1, minibatches=2, token_budget=100)
    for minibatch in plan.minibatches:
        for microbatch in minibatch.microbatches:
            assert microbatch.tokens <= 100 or len(microbatch.sequences) == 1


def test_work_is_balanced_over_ranks() -> None:
    plans = plan_batch(long_tailed(32, 8, 1), version=5, num_ranks=2, minibatches=1, token_budget=512)
    loads = [sum(len(one.tokens) for one in sequences_of(plan.minibatches)) for plan in plans]
    assert abs(loads[0] - loads[1]) < 0.02 * sum(loads)
    assert 1 <= flops_imbalance(plans) < 1.02


def test_ranks_are_balanced_by_the_given_flops() -> None:
    """Three sequences of equal length; only loss tokens cost anything, and the first has as many as the others."""
    one, half = trajectory(10), trajectory(10, mask=[1, 0] * 5)
    only_the_head = ForwardFlops(per_token=0.0, per_pair=0.0, per_loss_token=1.0)
    plans = plan_batch(
        [group(0, one, half, half)],
        version=3,
        num_ranks=2,
        minibatches=1,
        token_budget=64,
        flops=only_the_head,
    )
    members = [[one.rollout for one in sequences_of(plan.minibatches)] for plan in plans]
    assert sorted(members) == [[0], [1, 2]] and flops_imbalance(plans, only_the_head) == 1.0
    assert flops_imbalance(plans) > 1.3


def test_imbalance_compares_concurrent_microbatches_not_totals() -> None:
    """One rank has a short then a long one, the other a long then a short: equal sums, yet each waits for the other."""
    [short, long] = plan_batch(
        [group(0, trajectory(6)), group(1, trajectory(60))],
        version=3,
        num_ranks=1,
        minibatches=2,
        token_budget=64,
    )[0].minibatches
    shared = {"version": 3, "rewards": [[1.0]]}
    crossed = [RankPlan(minibatches=[one], **shared) for one in (joined(short, long), joined(long, short))]
    abreast = [RankPlan(minibatches=[joined(short, long)], **shared)] * 2
    assert flops_imbalance(abreast) == 1.0
    assert flops_imbalance(crossed) > 1.7


def joined(*minibatches: Minibatch) -> Minibatch:
    microbatches = [microbatch for one in minibatches for microbatch in one.microbatches]
    return Minibatch(microbatches, loss_tokens=66, loss_sequences=2)


def test_idle_rank_gets_a_dummy_without_loss_tokens() -> None:
    plans = plan_batch([group(0, trajectory(5))], version=5, num_ranks=2, minibatches=1, token_budget=64)
    [dummy] = plans[1].minibatches[0].microbatches
    assert dummy.is_dummy and dummy.tokens == 1
    assert plans[1].minibatches[0].loss_tokens == 5


def test_environment_tokens_are_context_not_targets() -> None:
    [plan] = plan_batch(
        [group(0, trajectory(4, mask=[1, 0, 0, 1]))], version=3, num_ranks=1, minibatches=1, token_budget=64
    )
    [one] = plan.minibatches[0].microbatches[0].sequences
    assert (one.tokens, one.loss_positions) == ([7, 8, 9, 0, 1, 2, 3], [3, 6])
    assert len(one.behavior_logprobs) == len(one.versions) == 2


def test_masked_completion_is_in_no_denominator_and_keeps_its_reward() -> None:
    truncated = trajectory(4, mask=[0] * 4, reward=0.25)
    plans = plan_batch(
        [group(0, trajectory(3), truncated)], version=3, num_ranks=2, minibatches=1, token_budget=64
    )
    for plan in plans:
        [minibatch] = plan.minibatches
        assert (minibatch.loss_tokens, minibatch.loss_sequences) == (3, 1)
        assert plan.rewards == [[1.0, 0.25]]


def test_every_rank_gets_the_rewards_of_the_whole_batch() -> None:
    groups = [
        group(0, trajectory(3, reward=1.0), trajectory(3, reward=0.0)),
        group(1, trajectory(2, reward=0.5)),
    ]
    plans = plan_batch(groups, version=3, num_ranks=2, minibatches=1, token_budget=64)
    assert [plan.rewards for plan in plans] == [[[1.0, 0.0], [0.5]]] * 2


def test_rollout_of_several_trajectories_has_one_reward() -> None:
    calls = [
        replace(trajectory(2, reward=reward), rollout=rollout)
        for rollout, reward in ((1, 0.5), (0, 1.0), (1, 0.5))
    ]
    [plan] = plan_batch([group(0, *calls)], version=3, num_ranks=1, minibatches=1, token_budget=64)
    assert plan.rewards == [[1.0, 0.5]]
    assert sorted(one.rollout for one in sequences_of(plan.minibatches)) == [0, 1, 1]
    metrics = batch_metrics([group(0, *calls)])
    assert metrics["reward/mean"] == 0.75 and metrics["group/zero_variance_frac"] == 0.0


def minibatches_of(groups: list[Group], *, version: int, seed: int | None) -> list[set[int]]:
    """The groups in each minibatch, by the length that each of them alone has."""
    [plan] = plan_batch(groups, version=version, num_ranks=1, minibatches=4, token_budget=64, seed=seed)
    return [{len(one.loss_positions) for one in sequences_of([minibatch])} for minibatch in plan.minibatches]


def test_groups_are_shuffled_by_seed_and_version() -> None:
    groups = [group(number, trajectory(number + 1)) for number in range(8)]
    in_order = [{1, 2}, {3, 4}, {5, 6}, {7, 8}]
    assert minibatches_of(groups, version=5, seed=None) == in_order
    first = minibatches_of(groups, version=5, seed=1)
    assert set.union(*first) == set(range(1, 9)) and first != in_order
    assert minibatches_of(groups, version=5, seed=1) == first, "a resumed run cuts the same minibatches"
    assert minibatches_of(groups, version=6, seed=1) != first
    assert minibatches_of(groups, version=5, seed=2) != first


def test_shuffling_keeps_rewards_with_their_groups() -> None:
    groups = [group(number, trajectory(number + 1, reward=float(number))) for number in range(8)]
    [plan] = plan_batch(groups, version=5, num_ranks=1, minibatches=4, token_budget=64, seed=1)
    for one in sequences_of(plan.minibatches):
        assert plan.rewards[one.group] == [len(one.loss_positions) - 1]


def test_unscored_trajectory_is_rejected_by_name() -> None:
    with pytest.raises(InvalidBatch, match=r"group 0-4-0, trajectory 0: no reward"):
        plan_batch(
            [group(4, trajectory(3, reward=None))], version=3, num_ranks=1, minibatches=1, token_budget=64
        )


def test_lists_of_different_lengths_are_rejected_by_name() -> None:
    broken = Trajectory(
        token_ids=[1, 2], loss_mask=[1, 1], behavior_logprobs=[-0.1], policy_versions=[0, 0], finish_reason="stop",
        reward=0.0,
    )  # fmt: skip
    with pytest.raises(InvalidBatch, match="behavior_logprobs has 1 entries for 2"):
        plan_batch([group(0, broken)], version=3, num_ranks=1, minibatches=1, token_budget=64)


def sequences_of(minibatches: list) -> list[TrainingSequence]:  # type: ignore[type-arg]
    return [
        one
        for share in minibatches
        for microbatch in share.microbatches
        for one in microbatch.sequences
        if one.loss_positions
    ]


def test_environment_tokens_between_turns_are_not_trained_on() -> None:
    """Two turns with two tokens of feedback between them, in a conversation of nine tokens."""
    several_turns = Trajectory(
        token_ids=[10, 11, 20, 21, 12, 13], loss_mask=[1, 1, 0, 0, 1, 1], policy_versions=[3, 3, 3, 3, 4, 4],
        behavior_logprobs=[-0.1, -0.2, 0.0, 0.0, -0.3, -0.4], finish_reason="stop", reward=1.0, score=1.0,
    )  # fmt: skip
    (plan,) = plan_batch([group(0, several_turns)], version=5, num_ranks=1, minibatches=1, token_budget=64)
    (minibatch,) = plan.minibatches
    ((sequence,),) = (one.sequences for one in minibatch.microbatches)
    assert sequence.tokens == [7, 8, 9, 10, 11, 20, 21, 12, 13]
    assert sequence.loss_positions == [3, 4, 7, 8]
    assert sequence.behavior_logprobs == [-0.1, -0.2, -0.3, -0.4]
    assert sequence.versions == [3, 3, 4, 4]
    assert minibatch.loss_tokens == 4
