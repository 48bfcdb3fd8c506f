"""The values by token that telemetry shows are those that the loss used."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from oolong.contracts.run_spec import AlgorithmSection
from tests.unit.trainers.rl.test_learner import batch
from tests.unit.trainers.rl.test_shared_pass import spec
from trainers.algorithms.losses import OBJECTIVES, LossInputs, LossOutputs
from trainers.distributed.context import DistributedContext
from trainers.distributed.fsdp import shard_model
from trainers.models.policy import load_policy
from trainers.phase_timer import PhaseTimer
from trainers.rl.batch_plan import plan_batch
from trainers.rl.learner import Learner
from trainers.rl.token_recorder import trained_tokens


@pytest.mark.parametrize("minibatches", [1, 2], ids=["shared pass", "proximal pass"])
def test_recorded_values_are_those_of_the_loss(
    minibatches: int, tiny_model: Path, context: DistributedContext
) -> None:
    used: list[tuple[float, float]] = []  # rounded proximal log-probability and advantage of each token

    def objective(inputs: LossInputs, algorithm: AlgorithmSection) -> LossOutputs:
        pairs = torch.stack([inputs.proximal_logprobs, inputs.advantages], dim=1).tolist()
        used.extend((round(logprob, 5), round(advantage, 5)) for logprob, advantage in pairs)
        return OBJECTIVES["ppo"](inputs, algorithm)

    learner = Learner(
        shard_model(load_policy(tiny_model), context.mesh), spec({}), context, objective=objective
    )
    groups = batch(tiny_model)
    [plan] = plan_batch(groups, version=0, num_ranks=1, minibatches=minibatches, token_budget=64, seed=3)
    every = {(group.group_id, member) for group in groups for member in range(len(group.trajectories))}
    outcome = learner.train(plan, PhaseTimer(), record=every)
    tokens = trained_tokens(groups, outcome.recorded)

    assert {(one.group_id, one.member) for one in tokens} == every
    recorded = []
    for one in tokens:
        [group] = [group for group in groups if group.group_id == one.group_id]
        mask = group.trajectories[one.member].loss_mask
        assert [value is not None for value in one.logprobs] == [bool(trained) for trained in mask]
        pairs = zip(one.logprobs, one.advantages, strict=True)
        recorded += [pair for pair in pairs if pair[0] is not None]
    assert sorted(recorded) == sorted(used)


def test_only_the_named_trajectories_are_recorded(tiny_model: Path, context: DistributedContext) -> None:
    groups = batch(tiny_model)
    [plan] = plan_batch(groups, version=0, num_ranks=1, minibatches=1, token_budget=64)
    learner = Learner(shard_model(load_policy(tiny_model), context.mesh), spec({}), context)
    assert learner.train(plan, PhaseTimer()).recorded == []
    [one] = learner.train(plan, PhaseTimer(), record={(groups[1].group_id, 2)}).recorded
    assert one.place == (groups[1].group_id, 2) and len(one.logprobs) == len(one.advantages) == len(
        one.positions
    )


def test_without_a_proximal_policy_only_the_advantages_are_recorded(
    tiny_model: Path, context: DistributedContext
) -> None:
    groups = batch(tiny_model)
    [plan] = plan_batch(groups, version=0, num_ranks=1, minibatches=1, token_budget=64)
    learner = Learner(
        shard_model(load_policy(tiny_model), context.mesh),
        spec({"proximal": "none", "objective": "ppo"}),
        context,
    )
    [one] = learner.train(plan, PhaseTimer(), record={(groups[0].group_id, 0)}).recorded
    [shown] = trained_tokens(groups, [one])
    assert shown.logprobs == [] and len(shown.advantages) == len(groups[0].trajectories[0].token_ids)
