"""A train step against a reference implementation: one unpacked forward pass per trajectory, no shortcuts."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from oolong.contracts.rollout import Group, Trajectory
from tests.support.tiny_specs import tiny_run_spec
from trainers.algorithms.advantages import rollout_advantages
from trainers.distributed.context import DistributedContext
from trainers.distributed.fsdp import gather_full_tensors, shard_model
from trainers.models.policy import Policy, load_policy
from trainers.phase_timer import PhaseTimer
from trainers.rl.batch_plan import plan_batch
from trainers.rl.learner import Learner

SPEC = tiny_run_spec(
    {
        "name": "test", "model": {"base_model": "tiny"}, "dataset": {"version": "d@1"},
        "rollout": {"group_size": 3, "temperature": 0.7},
        "trainer": {"groups_per_step": 4, "minibatches": 2, "learning_rate": 1e-3},
        "algorithm": {"importance_weight": {"mode": "mask", "threshold": 1.2}},
    }
)  # fmt: skip


def batch(model: Path) -> list[Group]:
    """Four groups of three; behavior log-probabilities near the model's own; the third group is solved throughout."""
    rng = torch.Generator().manual_seed(4)
    policy = load_policy(model)
    groups = []
    for number in range(4):
        trajectories = []
        for member in range(3):
            tokens = torch.randint(256, (3 + 7 * member + number,), generator=rng).tolist()
            own = plain_logprobs(policy, [5, 6, 7], tokens).detach()
            behavior = own + 0.2 * torch.randn(len(tokens), generator=rng)
            trajectories.append(
                Trajectory(
                    token_ids=tokens, loss_mask=[1] * len(tokens), behavior_logprobs=behavior.tolist(),
                    policy_versions=[0] * len(tokens), finish_reason="stop",
                    reward=1.0 if number == 2 else float(member == number % 3),
                )
            )  # fmt: skip
        groups.append(
            Group(group_id=f"0-{number}-0", row=number, prompt_token_ids=[5, 6, 7], prompt="", answer="",
                  trajectories=trajectories)
        )  # fmt: skip
    return groups


def plain_logprobs(policy: Policy, prompt: list[int], tokens: list[int]) -> torch.Tensor:
    ids = torch.tensor([[*prompt, *tokens]])
    edges = torch.tensor([0, ids.shape[1]], dtype=torch.int32)
    logits = policy.causal_lm(ids, use_cache=False, cu_seqlens=edges, seqlens=[ids.shape[1]]).logits[0]
    log_softmax = (logits / 0.7).log_softmax(-1)[len(prompt) - 1 : -1]
    return log_softmax.gather(1, torch.tensor(tokens)[:, None])[:, 0]


def plain_step(policy: Policy, groups: list[Group]) -> list[float]:
    """The same step in the order of the formulas; returns the minibatch losses."""
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.0)
    rewards = [[float(one.reward or 0) for one in group.trajectories] for group in groups]
    values = rollout_advantages(rewards, mean="group", std="group", epsilon=1e-4)
    proximal = [
        [plain_logprobs(policy, group.prompt_token_ids, one.token_ids).detach() for one in group.trajectories]
        for group in groups
    ]
    losses = []
    for start in (0, 2):
        total = torch.zeros(())
        tokens = 0
        for number in (start, start + 1):
            for member, one in enumerate(groups[number].trajectories):
                center = proximal[number][member]
                weight = (center - torch.tensor(one.behavior_logprobs)).exp()
                weight = torch.where(weight > 1.2, 0.0, weight)
                ratio = (
                    plain_logprobs(policy, groups[number].prompt_token_ids, one.token_ids) - center
                ).exp()
                value = values[number][member]
                total = total - (weight * torch.minimum(ratio * value, ratio.clamp(0.8, 1.2) * value)).sum()
                tokens += len(one.token_ids)
        (total / tokens).backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float((total / tokens).detach()))
    return losses


def test_train_step_equals_an_unpacked_reference_implementation(
    tiny_model: Path, context: DistributedContext
) -> None:
    groups = batch(tiny_model)
    plain = load_policy(tiny_model)
    losses = plain_step(plain, groups)
    learner = Learner(shard_model(load_policy(tiny_model), context.mesh), SPEC, context)
    [plan] = plan_batch(groups, version=0, num_ranks=1, minibatches=2, token_budget=64)
    outcome = learner.train(plan, PhaseTimer())
    assert outcome.finite and outcome.minibatch_losses == pytest.approx(losses, abs=1e-6)
    weights = gather_full_tensors(learner.policy, dtype=torch.float32, keep=True)
    for name, parameter in plain.causal_lm.named_parameters():
        # Adam's first step is the sign of the gradient where that is near 0, hence the few large differences.
        difference = (weights[name] - parameter).abs()
        assert float(difference.mean()) < 2e-6 and float(difference.max()) <= 4.1e-3, name


def test_step_metrics_include_zero_advantage_tokens(tiny_model: Path, context: DistributedContext) -> None:
    groups = batch(tiny_model)
    learner = Learner(shard_model(load_policy(tiny_model), context.mesh), SPEC, context)
    [plan] = plan_batch(groups, version=0, num_ranks=1, minibatches=2, token_budget=64)
    metrics = learner.train(plan, PhaseTimer()).metrics
    lengths = [len(one.token_ids) for group in groups for one in group.trajectories]
    assert metrics["perf/trained_tokens"] == sum(lengths) == metrics["mismatch/on_policy_tokens"]
    values = rollout_advantages(plan.rewards, mean="group", std="group", epsilon=1e-4)
    flat = [value for group in values for value in group]
    assert metrics["advantage/mean"] == pytest.approx(
        sum(value * length for value, length in zip(flat, lengths, strict=True)) / sum(lengths)
    )
    assert metrics["mismatch/on_policy_abs_mean"] == pytest.approx(metrics["importance_ratio/abs_log_mean"])
    assert 0.05 < metrics["importance_ratio/masked_frac"] < 0.4 and metrics["importance_ratio/max"] > 1.2


def test_batch_of_zero_advantages_is_a_step_that_changes_no_weight(
    tiny_model: Path, context: DistributedContext
) -> None:
    groups = batch(tiny_model)[2:3] * 4
    learner = Learner(shard_model(load_policy(tiny_model), context.mesh), SPEC, context)
    before = gather_full_tensors(learner.policy, dtype=torch.float32, keep=True)
    [plan] = plan_batch(groups, version=0, num_ranks=1, minibatches=2, token_budget=64)
    outcome = learner.train(plan, PhaseTimer())
    after = gather_full_tensors(learner.policy, dtype=torch.float32, keep=True)
    assert outcome.finite and outcome.grad_norms == [0.0, 0.0]
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_nonfinite_later_minibatch_rolls_back_the_whole_step(
    tiny_model: Path, context: DistributedContext
) -> None:
    groups = batch(tiny_model)
    learner = Learner(shard_model(load_policy(tiny_model), context.mesh), SPEC, context)
    [plan] = plan_batch(groups, version=0, num_ranks=1, minibatches=2, token_budget=64)
    learner.train(plan, PhaseTimer())
    before = gather_full_tensors(learner.policy, dtype=torch.float32, keep=True)
    moments = [
        {name: value.clone() for name, value in learner.optimizer.state[one].items()}
        for one in learner.parameters
    ]
    for microbatch in plan.minibatches[1].microbatches:
        for sequence in microbatch.sequences:
            sequence.behavior_logprobs[:] = [math.nan] * len(sequence.behavior_logprobs)
    outcome = learner.train(plan, PhaseTimer())
    assert (
        not outcome.finite
        and len(outcome.minibatch_losses) == 2
        and math.isfinite(outcome.minibatch_losses[0])
    )
    after = gather_full_tensors(learner.policy, dtype=torch.float32, keep=True)
    assert all(torch.equal(before[name], after[name]) for name in before)
    for parameter, kept in zip(learner.parameters, moments, strict=True):
        for name, value in kept.items():
            now = learner.optimizer.state[parameter][name]
            assert (
                bool((now == value).all())
                if name == "step"
                else torch.equal(now.to_local(), value.to_local())
            )


def test_bfloat16_step_matches_float32_within_its_precision(
    tiny_model: Path, context: DistributedContext
) -> None:
    groups = batch(tiny_model)
    [plan] = plan_batch(groups, version=0, num_ranks=1, minibatches=2, token_budget=64)
    outcomes = {}
    for dtype in (torch.float32, torch.bfloat16):
        policy = shard_model(load_policy(tiny_model), context.mesh, compute_dtype=dtype)
        learner = Learner(policy, SPEC, context)
        outcomes[dtype] = learner.train(plan, PhaseTimer())
        assert all(parameter.dtype == torch.float32 for parameter in policy.parameters())
    exact, rough = outcomes[torch.float32], outcomes[torch.bfloat16]
    assert rough.minibatch_losses != exact.minibatch_losses
    assert rough.finite and rough.grad_norms == pytest.approx(exact.grad_norms, rel=0.1)
    assert rough.metrics["policy/entropy"] == pytest.approx(exact.metrics["policy/entropy"], rel=0.01)


class Reductions(TorchDispatchMode):
    """Watches FSDP2 lay out gradients for their reduction over the ranks: once per sharded module, in which type."""

    def __init__(self) -> None:
        super().__init__()
        self.types: list[torch.dtype] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function.overloadpacket.__name__ == "chunk_cat":
            self.types.append(kwargs["out"].dtype)
        return function(*args, **(kwargs or {}))


def test_gradients_are_reduced_once_per_minibatch_in_float32(
    tiny_model: Path, context: DistributedContext
) -> None:
    policy = shard_model(load_policy(tiny_model), context.mesh, compute_dtype=torch.bfloat16)
    learner = Learner(policy, SPEC, context)
    [plan] = plan_batch(batch(tiny_model), version=0, num_ranks=1, minibatches=2, token_budget=64)
    assert all(len(minibatch.microbatches) > 1 for minibatch in plan.minibatches)
    with Reductions() as reductions:
        assert learner.train(plan, PhaseTimer()).finite
    sharded = len(policy.layers) + 1  # and the root
    assert reductions.types == [torch.float32] * sharded * len(plan.minibatches)
