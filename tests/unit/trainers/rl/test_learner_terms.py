"""Train steps with KL, entropy bonus, critic and other options against a reference implementation."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from oolong.contracts.rollout import Group
from oolong.contracts.run_spec import RunSpec
from tests.support.tiny_specs import tiny_run_spec
from tests.unit.trainers.rl.test_learner import batch, plain_logprobs
from trainers.algorithms.losses import LossInputs, LossOutputs
from trainers.distributed.context import DistributedContext
from trainers.distributed.fsdp import gather_full_tensors, shard_model
from trainers.models.critic import load_critic
from trainers.models.optimizer import OffloadedAdamW
from trainers.models.packed_row import pack_row
from trainers.models.policy import Policy, load_policy
from trainers.phase_timer import PhaseTimer
from trainers.rl.batch_plan import plan_batch
from trainers.rl.critic_learner import CriticLearner
from trainers.rl.learner import Learner, StepOutcome


def spec(algorithm: dict[str, Any], **trainer: Any) -> RunSpec:
    return tiny_run_spec(
        {
            "name": "test", "model": {"base_model": "tiny"}, "dataset": {"version": "d@1"},
            "rollout": {"group_size": 3, "temperature": 0.7, "max_new_tokens": 50},
            "trainer": {"groups_per_step": 4, "minibatches": 1, "learning_rate": 1e-3, **trainer},
            "algorithm": algorithm,
        }
    )  # fmt: skip


def learner(model: Path, context: DistributedContext, wanted: RunSpec, **more: Any) -> Learner:
    section = wanted.algorithm.critic
    critic = None
    if section is not None:
        critic = CriticLearner(
            shard_model(load_critic(model), context.mesh), section, wanted.trainer, context
        )
    reference = None
    if wanted.algorithm.kl is not None:
        reference = shard_model(load_policy(model), context.mesh).requires_grad_(False)
    return Learner(
        shard_model(load_policy(model), context.mesh),
        wanted,
        context,
        reference=reference,
        critic=critic,
        **more,
    )


def step(one: Learner, groups: list[Group], *, version: int = 0, minibatches: int = 1) -> StepOutcome:
    [plan] = plan_batch(groups, version=version, num_ranks=1, minibatches=minibatches, token_budget=64)
    return one.train(plan, PhaseTimer())


def plain_entropy(policy: Policy, prompt: list[int], tokens: list[int]) -> torch.Tensor:
    ids = torch.tensor([[*prompt, *tokens]])
    edges = torch.tensor([0, ids.shape[1]], dtype=torch.int32)
    logits = policy.causal_lm(ids, use_cache=False, cu_seqlens=edges, seqlens=[ids.shape[1]]).logits[0]
    log_softmax = (logits / 0.7).log_softmax(-1)[len(prompt) - 1 : -1]
    return -(log_softmax.exp() * log_softmax).sum(-1)


def test_kl_entropy_bonus_and_seq_mean_match_the_formulas(
    tiny_model: Path, context: DistributedContext
) -> None:
    """The reference differs from the policy after a first step; the second step is compared."""
    groups = batch(tiny_model)
    wanted = spec(
        {
            "kl": {"coefficient": 0.3, "estimator": "k2"}, "entropy_bonus": 0.05,
            "loss_aggregation": "seq_mean", "importance_weight": {"mode": "none"},
        },
        max_grad_norm=1e6, learning_rate=3e-3,
    )  # fmt: skip
    one = learner(tiny_model, context, wanted)
    first = step(one, groups)
    assert first.finite and first.metrics["policy/reference_kl"] == 0.0
    policy, reference = load_policy(tiny_model), load_policy(tiny_model)
    policy.causal_lm.load_state_dict(
        gather_full_tensors(one.policy, dtype=torch.float32, keep=True), strict=False
    )
    policy.causal_lm.tie_weights()

    total, kl_sum, tokens = torch.zeros(()), 0.0, 0
    for number, group in enumerate(groups):
        for member, trajectory in enumerate(group.trajectories):
            prompt, completion = group.prompt_token_ids, trajectory.token_ids
            current = plain_logprobs(policy, prompt, completion)
            far = plain_logprobs(reference, prompt, completion).detach()
            weight = (current.detach() - torch.tensor(trajectory.behavior_logprobs)).exp()
            rewards = torch.tensor([float(other.reward or 0) for other in group.trajectories]).double()
            spread = rewards.std(correction=0) + 1e-4
            value = 0.0 if number == 2 else float((rewards[member] - rewards.mean()) / spread)
            kl = (far - current).exp() - 1 - (far - current)  # the metric is k3, the loss has k2
            loss = -weight * (current - current.detach()).exp() * value + 0.3 * (current - far).square() / 2
            loss = loss - 0.05 * plain_entropy(policy, prompt, completion)
            total = total + loss.mean() / 12
            kl_sum, tokens = kl_sum + float(kl.sum()), tokens + len(completion)
    total.backward()
    norm = math.sqrt(sum(float(parameter.grad.square().sum()) for parameter in policy.parameters()))
    second = step(one, groups)
    assert second.minibatch_losses == pytest.approx([float(total)], abs=2e-6)
    assert second.grad_norms == pytest.approx([norm], rel=1e-4)
    assert second.metrics["policy/reference_kl"] == pytest.approx(kl_sum / tokens, rel=1e-3)
    assert second.metrics["policy/reference_kl"] > 1e-3


@pytest.mark.parametrize("threshold", [1e6, 1.1])
def test_corrected_kl_is_weighted_by_the_bounded_importance_weight(
    threshold: float, tiny_model: Path, context: DistributedContext
) -> None:
    """One minibatch a step, so u is 1 and the factor is w; at the second step the reference is elsewhere."""
    groups = batch(tiny_model)

    def two_steps(*, corrected: bool) -> tuple[Policy, StepOutcome]:
        wanted = spec(
            {
                "kl": {"coefficient": 0.3, "estimator": "k2", "importance_correction": corrected},
                "importance_weight": {"mode": "mask", "threshold": threshold},
            },
            max_grad_norm=1e6, learning_rate=3e-3,
        )  # fmt: skip
        one = learner(tiny_model, context, wanted)
        step(one, groups)
        before = gather_full_tensors(one.policy, dtype=torch.float32, keep=True)
        outcome = step(one, groups)
        policy = load_policy(tiny_model)
        policy.causal_lm.load_state_dict(before, strict=False)
        policy.causal_lm.tie_weights()
        return policy, outcome

    policy, outcome = two_steps(corrected=True)
    reference = load_policy(tiny_model)
    kl = weighed = masked = tokens = 0.0
    for group in groups:
        for one in group.trajectories:
            current = plain_logprobs(policy, group.prompt_token_ids, one.token_ids).detach()
            far = plain_logprobs(reference, group.prompt_token_ids, one.token_ids).detach()
            weight = (current - torch.tensor(one.behavior_logprobs)).exp()
            masked += float((weight > threshold).sum())
            weight = weight.masked_fill(weight > threshold, 0.0)
            weighed += float((weight * 0.3 * (current - far).square() / 2).sum())
            kl += float((0.3 * (current - far).square() / 2).sum())
            tokens += len(one.token_ids)
    assert (masked > 0) == (threshold < 2) and abs(weighed - kl) / kl > 0.01
    policy_loss = outcome.metrics["loss/policy"]
    assert outcome.minibatch_losses[0] - policy_loss == pytest.approx(weighed / tokens, abs=2e-6)


def test_constant_aggregation_divides_by_sequences_times_length_limit_or_given_constant(
    tiny_model: Path, context: DistributedContext
) -> None:
    groups = batch(tiny_model)
    tokens = sum(len(one.token_ids) for group in groups for one in group.trajectories)
    [mean] = step(learner(tiny_model, context, spec({})), groups).minibatch_losses
    for given, wanted in ((None, 50), (7, 7)):  # rollout.max_new_tokens is 50
        constant = spec({"loss_aggregation": "constant", "loss_constant_tokens": given})
        [loss] = step(learner(tiny_model, context, constant), groups).minibatch_losses
        assert loss * 12 * wanted == pytest.approx(mean * tokens, rel=1e-4)


def test_sequence_weights_are_separate_across_microbatches(
    tiny_model: Path, context: DistributedContext
) -> None:
    groups, policy = batch(tiny_model), load_policy(tiny_model)
    over = tokens = 0
    for group in groups:
        for one in group.trajectories:
            own = plain_logprobs(policy, group.prompt_token_ids, one.token_ids).detach()
            over += len(one.token_ids) * float(
                (own - torch.tensor(one.behavior_logprobs)).mean() > math.log(1.02)
            )
            tokens += len(one.token_ids)
    capped = {"importance_weight": {"mode": "truncate", "level": "sequence_mean", "threshold": 1.02}}
    outcome = step(learner(tiny_model, context, spec(capped)), groups)
    assert outcome.metrics["packing/microbatches"] > 2 and 0.1 < over / tokens < 0.9
    assert outcome.metrics["importance_ratio/masked_frac"] == pytest.approx(over / tokens)


def test_kl_and_entropy_have_gradients_for_zero_advantage_groups(
    tiny_model: Path, context: DistributedContext
) -> None:
    solved = batch(tiny_model)[2:3] * 4
    one = learner(tiny_model, context, spec({"kl": {"coefficient": 0.1}}))
    step(one, batch(tiny_model))
    assert step(one, solved).grad_norms[0] > 1e-4
    assert step(learner(tiny_model, context, spec({"entropy_bonus": 0.1})), solved).grad_norms[0] > 1e-4
    assert step(learner(tiny_model, context, spec({})), solved).grad_norms == [0.0]


def test_reference_policy_stays_frozen(tiny_model: Path, context: DistributedContext) -> None:
    one = learner(tiny_model, context, spec({"kl": {"coefficient": 0.1}}))
    before = gather_full_tensors(one.reference, dtype=torch.float32, keep=True)
    for version in range(3):
        step(one, batch(tiny_model), version=version)
    after = gather_full_tensors(one.reference, dtype=torch.float32, keep=True)
    moved = gather_full_tensors(one.policy, dtype=torch.float32, keep=True)
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert not any(torch.equal(before[name], moved[name]) for name in before)


PPO = {
    "objective": "ppo",
    "advantage": {"estimator": "gae", "mean": "none", "std": "none", "gamma": 1.0, "gae_lambda": 1.0},
    "critic": {"learning_rate": 3e-3, "clip": None},
}


def test_new_critic_predicts_zero_and_its_first_loss_equals_squared_returns(
    tiny_model: Path, context: DistributedContext
) -> None:
    groups = batch(tiny_model)
    outcome = step(learner(tiny_model, context, spec(PPO)), groups)
    returns = [one.reward or 0 for group in groups for one in group.trajectories for _ in one.token_ids]
    assert outcome.critic_losses == pytest.approx([sum(one**2 / 2 for one in returns) / len(returns)])
    assert outcome.metrics["value/mean"] == 0.0
    assert outcome.metrics["value/return_mean"] == pytest.approx(sum(returns) / len(returns))
    assert outcome.metrics["value/explained_variance"] == pytest.approx(0.0, abs=1e-9)
    assert outcome.metrics["advantage/mean"] == pytest.approx(sum(returns) / len(returns))


def test_value_is_of_the_state_before_its_token(tiny_model: Path) -> None:
    critic = load_critic(tiny_model)
    torch.nn.init.normal_(critic.value_head.weight, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        values, changed = (critic(pack_row([[5, 6, 7, last]], [[2, 3]])) for last in (8, 9))
        earlier = critic(pack_row([[5, 6, 4, 8]], [[2, 3]]))
    assert torch.equal(values, changed)
    assert torch.equal(values[:1], earlier[:1]) and not torch.equal(values[1:], earlier[1:])


def test_values_are_clipped_around_those_before_the_step(
    tiny_model: Path, context: DistributedContext
) -> None:
    """The second minibatch finds values that the first has moved, most of them towards their returns."""
    for clip, clipped in ((1e-6, True), (1e3, False)):
        near = {**PPO, "critic": {"learning_rate": 3e-3, "clip": clip}}
        outcome = step(
            learner(tiny_model, context, spec(near, minibatches=2)), batch(tiny_model), minibatches=2
        )
        assert (outcome.metrics["value/clip_frac"] > 0.1) is clipped


def test_critic_learns_returns_and_advantages_shrink(tiny_model: Path, context: DistributedContext) -> None:
    groups = batch(tiny_model)
    one = learner(tiny_model, context, spec(PPO, learning_rate=1e-6))
    outcomes = [step(one, groups, version=version) for version in range(12)]
    assert outcomes[-1].metrics["value/loss"] < 0.5 * outcomes[0].metrics["value/loss"]
    assert outcomes[-1].metrics["value/explained_variance"] > 0.3
    assert outcomes[-1].metrics["advantage/std"] < outcomes[0].metrics["advantage/std"]


def test_optimizers_use_the_trainer_sections_settings(tiny_model: Path, context: DistributedContext) -> None:
    asked = {
        "adam_betas": (0.8, 0.7), "adam_epsilon": 1e-5, "weight_decay": 0.3, "offload_optimizer": True,
        "learning_rate": 2e-3, "warmup_steps": 4,
    }  # fmt: skip
    one = learner(tiny_model, context, spec(PPO, **asked))
    metrics = step(one, batch(tiny_model), version=1).metrics
    assert metrics["optim/learning_rate"] == pytest.approx(1e-3)  # the second of four steps of warm-up
    assert metrics["optim/critic_learning_rate"] == pytest.approx(1.5e-3)
    assert one.critic is not None
    for optimizer, rate in ((one.optimizer, 1e-3), (one.critic.optimizer, 1.5e-3)):
        assert isinstance(optimizer, OffloadedAdamW)
        for group in optimizer.param_groups:
            assert (group["betas"], group["eps"], group["weight_decay"]) == ((0.8, 0.7), 1e-5, 0.3)
            assert group["lr"] == pytest.approx(rate)


def test_gradients_are_clipped_to_max_grad_norm(tiny_model: Path, context: DistributedContext) -> None:
    """What the optimizers step with, while the norms that are told are those before."""
    clipped = {**PPO, "critic": {**PPO["critic"], "max_grad_norm": 0.02}}  # type: ignore[dict-item]
    one = learner(tiny_model, context, spec(clipped, max_grad_norm=0.01))
    assert one.critic is not None
    norms: list[float] = []
    for optimizer, parameters in (
        (one.optimizer, one.parameters),
        (one.critic.optimizer, one.critic.parameters),
    ):

        def noted(optimizer: Any, *_: Any, parameters: Any = parameters) -> None:
            norms.append(math.sqrt(sum(float(each.grad.to_local().square().sum()) for each in parameters)))

        optimizer.register_step_pre_hook(noted)
    outcome = step(one, batch(tiny_model))
    assert norms == pytest.approx([0.01, 0.02], rel=1e-4)
    assert outcome.grad_norms[0] > 0.1 and outcome.critic_grad_norms[0] > 0.1
    assert outcome.metrics["optim/grad_norm_clipped_frac"] == 1.0


def test_policy_is_bit_identical_during_critic_warmup(tiny_model: Path, context: DistributedContext) -> None:
    alone = {**PPO, "critic": {**PPO["critic"], "warmup_steps": 1}}  # type: ignore[dict-item]
    one = learner(tiny_model, context, spec(alone, weight_decay=0.1))
    weights = [gather_full_tensors(one.policy, dtype=torch.float32, keep=True)]
    for version in range(2):
        step(one, batch(tiny_model), version=version)
        weights.append(gather_full_tensors(one.policy, dtype=torch.float32, keep=True))
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert not any(torch.equal(weights[1][name], weights[2][name]) for name in weights[0])


def test_nonfinite_value_loss_rolls_back_policy_and_critic(
    tiny_model: Path, context: DistributedContext
) -> None:
    groups = batch(tiny_model)
    one = learner(tiny_model, context, spec(PPO, minibatches=2))
    step(one, groups, minibatches=2)
    assert one.critic is not None
    policy = gather_full_tensors(one.policy, dtype=torch.float32, keep=True)
    critic = {name: value.full_tensor().clone() for name, value in one.critic.critic.state_dict().items()}
    [plan] = plan_batch(groups, version=1, num_ranks=1, minibatches=2, token_budget=64)
    plan.rewards[3][0] = 1e30  # in the second minibatch; its square is not finite in float32
    outcome = one.train(plan, PhaseTimer())
    assert not outcome.finite and math.isfinite(outcome.critic_losses[0])
    after = gather_full_tensors(one.policy, dtype=torch.float32, keep=True)
    assert all(torch.equal(policy[name], after[name]) for name in policy)
    kept = {name: value.full_tensor() for name, value in one.critic.critic.state_dict().items()}
    assert all(torch.equal(critic[name], kept[name]) for name in critic)


def test_kl_in_reward_lowers_returns_of_tokens_far_from_the_reference(
    tiny_model: Path, context: DistributedContext
) -> None:
    plus_plus = {
        "advantage": {"estimator": "gae", "mean": "batch", "std": "batch"},
        "kl": {"coefficient": 0.5, "estimator": "k1", "apply_to": "reward"},
    }
    one = learner(tiny_model, context, spec(plus_plus))
    first, second = (step(one, batch(tiny_model), version=version) for version in range(2))
    assert first.finite and second.finite
    # At first policy and reference are one: a KL of 0, whose gradient in the loss would not be 0.
    without = step(
        learner(tiny_model, context, spec({"advantage": plus_plus["advantage"]})), batch(tiny_model)
    )
    assert first.grad_norms == pytest.approx(without.grad_norms, rel=1e-5)
    for outcome in (first, second):  # normalize_advantages over the batch's tokens
        assert outcome.metrics["advantage/mean"] == pytest.approx(0.0, abs=1e-5)
        assert outcome.metrics["advantage/std"] == pytest.approx(1.0, abs=1e-2)


def test_without_proximal_pass_ratios_are_against_the_behavior_policy(
    tiny_model: Path, context: DistributedContext
) -> None:
    groups = batch(tiny_model)
    bypass = step(learner(tiny_model, context, spec({"objective": "ppo", "proximal": "none"})), groups)
    recomputed = step(learner(tiny_model, context, spec({"objective": "ppo"})), groups)
    assert recomputed.metrics["policy/ratio_max"] == pytest.approx(1.0, abs=1e-5)
    assert bypass.metrics["policy/ratio_max"] > 1.3 > 0.8 > bypass.metrics["policy/ratio_min"]
    assert "importance_ratio/mean" in recomputed.metrics and "importance_ratio/mean" not in bypass.metrics
    assert bypass.metrics["policy/clip_high_frac"] > 0.02 and "policy/entropy" in bypass.metrics


def test_a3po_uses_the_version_lag_of_each_token(tiny_model: Path, context: DistributedContext) -> None:
    """Trained at version 5; of every completion the first three tokens are of version 2, the others fresh."""
    groups = [
        replace(group, trajectories=[
            replace(one, policy_versions=[2] * 3 + [5] * (len(one.token_ids) - 3)) for one in group.trajectories
        ])
        for group in batch(tiny_model)
    ]  # fmt: skip
    bypass = {
        "objective": "a3po",
        "proximal": "none",
        "importance_weight": {"mode": "truncate", "threshold": 1.1},
    }
    policy = load_policy(tiny_model)
    total, capped, tokens = 0.0, 0, 0
    for number, group in enumerate(groups):
        rewards = torch.tensor([float(one.reward or 0) for one in group.trajectories]).double()
        values = (rewards - rewards.mean()) / (rewards.std(correction=0) + 1e-4)
        for value, one in zip([0.0] * 3 if number == 2 else values.tolist(), group.trajectories, strict=True):
            away = plain_logprobs(policy, group.prompt_token_ids, one.token_ids) - torch.tensor(
                one.behavior_logprobs
            )
            fresh = torch.arange(len(one.token_ids)) >= 3
            weight = torch.where(fresh, 1.0, (away * 3 / 4).exp())
            ratio = torch.where(fresh, away.exp(), (away / 4).exp())
            bounded = torch.minimum(ratio * value, ratio.clamp(0.8, 1.2) * value)
            total -= float((weight.clamp(max=1.1) * bounded).sum())
            capped += int((weight > 1.1).sum()) if value else 0
            tokens += len(one.token_ids)
    outcome = step(learner(tiny_model, context, spec(bypass)), groups, version=5)
    assert outcome.minibatch_losses == pytest.approx([total / tokens], abs=1e-6)
    assert outcome.metrics["importance_ratio/masked_frac"] == pytest.approx(capped / tokens) and capped > 3


def test_user_loss_receives_zero_advantage_tokens(tiny_model: Path, context: DistributedContext) -> None:
    seen = []

    def cloning(tokens: LossInputs, _: Any) -> LossOutputs:
        seen.append(len(tokens.logprobs))
        return LossOutputs(loss=-tokens.logprobs)

    groups = batch(tiny_model)
    outcome = step(learner(tiny_model, context, spec({}), objective=cloning), groups)
    assert sum(seen) == outcome.metrics["perf/trained_tokens"] and outcome.finite
    assert "policy/ratio_mean" not in outcome.metrics and "policy/clip_low_frac" not in outcome.metrics
