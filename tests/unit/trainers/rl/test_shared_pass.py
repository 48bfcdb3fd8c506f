"""With one minibatch the training pass gives the proximal log-probabilities: same step, one forward pass less."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from oolong.contracts.run_spec import RunSpec
from tests.support.tiny_specs import tiny_run_spec
from tests.unit.trainers.rl.test_learner import batch
from trainers.algorithms.losses import OBJECTIVES, LossInputs, LossOutputs
from trainers.distributed.context import DistributedContext
from trainers.distributed.fsdp import shard_model
from trainers.models.policy import Policy, load_policy
from trainers.phase_timer import PhaseTimer
from trainers.rl.batch_plan import plan_batch
from trainers.rl.learner import Learner, StepOutcome


def spec(algorithm: dict[str, Any]) -> RunSpec:
    return tiny_run_spec(
        {
            "name": "test", "model": {"base_model": "tiny"}, "dataset": {"version": "d@1"},
            "rollout": {"group_size": 3, "temperature": 0.7},
            "trainer": {"groups_per_step": 4, "minibatches": 1, "learning_rate": 1e-3, "max_grad_norm": 1e6},
            "algorithm": algorithm,
        }
    )  # fmt: skip


class CountedPolicy:
    """Counts the tokens that a policy's forward passes see."""

    def __init__(self, policy: Policy) -> None:
        self.tokens = 0
        policy.register_forward_pre_hook(self._count)

    def _count(self, _: Any, arguments: tuple[Any, ...]) -> None:
        self.tokens += arguments[0].tokens


def two_steps(
    model: Path,
    context: DistributedContext,
    algorithm: dict[str, Any],
    *,
    shares_pass: bool,
    objective: Any = None,
) -> tuple[list[StepOutcome], list[torch.Tensor], int]:
    """Outcomes, the gradients of the second step, and the tokens that all forward passes saw."""
    policy = shard_model(load_policy(model), context.mesh)
    reference = load_policy(model).requires_grad_(False) if "kl" in algorithm else None
    if reference is not None:
        reference = shard_model(reference, context.mesh)
    learner = Learner(policy, spec(algorithm), context, reference=reference, objective=objective)
    if not shares_pass:
        learner._can_share_pass = lambda plan: False  # type: ignore[method-assign]
    counted = CountedPolicy(policy)
    gradients: list[torch.Tensor] = []
    step = learner.optimizer.step

    def keep_gradients() -> None:
        gradients[:] = [parameter.grad.full_tensor().clone() for parameter in learner.parameters]
        step()

    learner.optimizer.step = keep_gradients  # type: ignore[method-assign, assignment]
    groups, outcomes = batch(model), []
    for _ in range(2):
        [plan] = plan_batch(groups, version=0, num_ranks=1, minibatches=1, token_budget=64)
        assert learner._can_share_pass(plan) is shares_pass
        outcomes.append(learner.train(plan, PhaseTimer()))
    return outcomes, gradients, counted.tokens


def assert_equal_steps(
    model: Path, context: DistributedContext, algorithm: dict[str, Any], objective: Any = None
) -> None:
    apart, apart_gradients, apart_tokens = two_steps(
        model, context, algorithm, shares_pass=False, objective=objective
    )
    shared, gradients, tokens = two_steps(model, context, algorithm, shares_pass=True, objective=objective)
    for one, other in zip(shared, apart, strict=True):
        assert one.finite and one.minibatch_losses == pytest.approx(other.minibatch_losses, abs=1e-6)
        assert one.grad_norms == pytest.approx(other.grad_norms, rel=1e-5)
        assert one.metrics == pytest.approx(other.metrics, rel=1e-4, abs=1e-6)
    for one_gradient, other_gradient in zip(gradients, apart_gradients, strict=True):
        assert torch.allclose(one_gradient, other_gradient, rtol=1e-4, atol=1e-6)
    assert tokens < apart_tokens


@pytest.mark.parametrize("objective", sorted(set(OBJECTIVES) - {"a3po"}))
def test_loss_gradients_and_metrics_equal_those_of_a_proximal_pass(
    objective: str, tiny_model: Path, context: DistributedContext
) -> None:
    assert_equal_steps(tiny_model, context, {"objective": objective})


@pytest.mark.parametrize(
    "algorithm",
    [
        {"importance_weight": {"mode": "mask", "threshold": 1.2}},
        {"importance_weight": {"mode": "truncate", "threshold": 1.1, "level": "sequence"}},
        {"importance_weight": {"mode": "truncate", "threshold": 1.1, "level": "sequence_mean"}},
        {"kl": {"coefficient": 0.3, "importance_correction": True}, "entropy_bonus": 0.05},
        {"advantage": {"estimator": "gae", "mean": "batch", "std": "batch"}},
    ],
    ids=["mask", "sequence", "sequence mean", "KL and entropy", "gae"],
)
def test_every_weight_and_term_equals_that_of_a_proximal_pass(
    algorithm: dict[str, Any], tiny_model: Path, context: DistributedContext
) -> None:
    assert_equal_steps(tiny_model, context, algorithm)


def test_a_custom_loss_sees_the_same_inputs(tiny_model: Path, context: DistributedContext) -> None:
    def centered(inputs: LossInputs, settings: Any) -> LossOutputs:
        away = inputs.logprobs - inputs.proximal_logprobs
        return LossOutputs(
            loss=-inputs.importance_weights * away.exp() * inputs.advantages + 0.1 * away.square()
        )

    assert_equal_steps(tiny_model, context, {}, objective=centered)


@pytest.mark.parametrize(
    "algorithm",
    [
        {"importance_weight": {"mode": "second_moment", "threshold": 0.01}},
        {"kl": {"coefficient": 0.1, "apply_to": "reward"}, "advantage": {"estimator": "gae"}},
        {"objective": "ppo", "proximal": "none"},
    ],
    ids=["weights over the batch", "KL in the reward", "no proximal policy"],
)
def test_what_needs_the_proximal_policy_first_has_a_pass_of_its_own(
    algorithm: dict[str, Any], tiny_model: Path, context: DistributedContext
) -> None:
    policy = shard_model(load_policy(tiny_model), context.mesh)
    reference = shard_model(load_policy(tiny_model), context.mesh) if "kl" in algorithm else None
    learner = Learner(policy, spec(algorithm), context, reference=reference)
    [plan] = plan_batch(batch(tiny_model), version=0, num_ranks=1, minibatches=1, token_budget=64)
    assert not learner._can_share_pass(plan) and learner.train(plan, PhaseTimer()).finite
    plan = plan_batch(batch(tiny_model), version=0, num_ranks=1, minibatches=2, token_budget=64)[0]
    assert not Learner(policy, spec({}), context)._can_share_pass(plan)
