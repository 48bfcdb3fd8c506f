"""Each preset of RL on one worked example, its numbers by hand, and one step of it on the tiny model.

The example: two prompts of two completions. Scores (1, 0) and (1, 1), loss tokens (1, 3) and (2, 2). The current policy
has moved by the ratio 1.25 on every token of the first completion and 0.75 on those of the second, and not at all on
the others; it gives every token log-probability -1. Behavior and proximal policy are one, so w is 1; reference and
critic have nothing to say yet (no KL, values 0).
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from oolong.contracts.rollout import Group
from oolong.contracts.run_spec import RunSpec
from oolong.presets import built_in_presets, completed
from tests.unit.trainers.rl.test_learner import batch, plain_logprobs
from tests.unit.trainers.rl.test_learner_terms import learner
from trainers.algorithms.loss_aggregation import token_weights
from trainers.algorithms.losses import OBJECTIVES, LossInputs
from trainers.distributed.context import DistributedContext
from trainers.distributed.fsdp import gather_full_tensors
from trainers.models.policy import Policy, load_policy
from trainers.phase_timer import PhaseTimer
from trainers.rl.advantage_estimation import (
    ForwardOutputs,
    estimate_gae_advantages,
    estimate_outcome_advantages,
)
from trainers.rl.batch_plan import Microbatch, TrainingSequence, plan_batch
from trainers.rl.microbatch_tensors import build_microbatch_tensors, sequence_lengths

SPECS = {preset.name: RunSpec.model_validate(completed(preset.spec)) for preset in built_in_presets()}
OF_RL = sorted(name for name, spec in SPECS.items() if spec.kind == "rl")

K = 0.5 / (0.5 + 1e-4)  # an advantage of 1 under a spread of 1/2, with the epsilon of the denominator
K2 = 1.0 / (1.0 + 1e-4)  # the same for rewards of +1 and -1
SPREAD = 0.1875**0.5  # of the batch's four rewards 1, 0, 1, 1
TOKENS = (15 / 64) ** 0.5  # of the reward over the batch's 8 tokens: 1 with share 5/8
GAE = 0.22546875**0.5  # of (1, 0, 0, 0, 0.95, 1, 0.95, 1), whose mean is 0.6125

WORKED = {
    # advantages 1, -1, 0, 0; sequence means -1.2, +0.8; four sequences
    "grpo": K * (-1.2 + 0.8) / 4,
    # the same advantages, mean over eight tokens
    "grpo-lora": K * (-1.2 + 3 * 0.8) / 8,
    # advantages 1/2, -1/2; 4 x 3000 in the denominator
    "dr-grpo": 0.5 * (-1.2 + 3 * 0.8) / (4 * 3000),
    # each against the other: 1, -1; 4 x max_new_tokens
    "rloo": (-1.2 + 3 * 0.8) / (4 * 1024),
    # reward of a token less the mean 5/8 over the spread; the second group counts, its ratio is 1
    "reinforce-plus-plus": ((-1.2 - 4) * 3 / 8 + 3 * 0.8 * 5 / 8) / (TOKENS + 1e-4) / 8,
    # the same with +-5: ten times the spread
    "areal-paper": 10 * ((-1.2 - 4) * 3 / 8 + 3 * 0.8 * 5 / 8) / (10 * TOKENS + 1e-4) / 8,
    "areal-8-gpus": 10 * ((-1.2 - 4) * 3 / 8 + 3 * 0.8 * 5 / 8) / (10 * TOKENS + 1e-4) / 8,
    # lambda 0.95: A = 1 | 0, 0, 0 | 0.95, 1 | 0.95, 1 before normalization
    "ppo": (-1.2 * 0.3875 + 3 * 0.8 * 0.6125 - 2 * (0.3375 + 0.3875)) / (GAE + 1e-4) / 8,
    # 1.25 is under the upper clip of 1.28; rewards +-1
    "dapo": K2 * (-1.25 + 3 * 0.8) / 8,
    # s is 1.25 and 0.75, far outside the range of whole sequences
    "gspo": K * (-1.0004 + 0.9997) / 4,
    # -clip(r) A log p with log p = -1, and clip(r) = r
    "cispo": K * (1.25 - 3 * 0.75) / 8,
    # the group's mean, the batch's spread
    "lite-ppo": 0.5 * (-1.2 + 3 * 0.8) / (SPREAD + 1e-4) / 8,
    # 4/t sigmoid(t (r - 1)) at t = 1 and 1.05
    "sapo": K * (-4 / (1 + math.exp(-0.25)) + 4 / 1.05 / (1 + math.exp(0.2625))) / 4,
    "m2po": K * (-1.2 + 3 * 0.8) / 8,
    "a-3po": K * (-1.2 + 3 * 0.8) / 8,
    "letter-sum-rl": K * (-1.2 + 3 * 0.8) / 8,
}


def worked(spec: RunSpec) -> float:
    """The minibatch's loss on the example, by the functions that the learner calls."""
    lengths, scores = [[1, 3], [2, 2]], [[1.0, 0.0], [1.0, 1.0]]
    rewards = [[spec.reward.scale * score + spec.reward.bias for score in group] for group in scores]
    sequences = [
        TrainingSequence(
            group=group, rollout=member, source=(str(group), member), tokens=[7] * (length + 1),
            loss_positions=list(range(1, length + 1)),
            behavior_logprobs=[0.0] * length, versions=[0] * length,
        )
        for group, members in enumerate(lengths)
        for member, length in enumerate(members)
    ]  # fmt: skip
    tensors = build_microbatch_tensors(Microbatch(sequences), version=0, device=torch.device("cpu"))
    current = torch.full((8,), -1.0, dtype=torch.float64)
    moved = torch.tensor([1.25, 0.75, 0.75, 0.75, 1, 1, 1, 1], dtype=torch.float64)
    proximal = current - moved.log()
    passes = ForwardOutputs(
        proximal=proximal.float(),
        reference=proximal.float() if spec.algorithm.kl is not None else None,
        values=torch.zeros(8) if spec.algorithm.critic is not None else None,
    )
    if spec.algorithm.advantage.estimator == "gae":
        [credit] = estimate_gae_advantages([tensors], [passes], rewards, spec.algorithm, list)
    else:
        [credit] = estimate_outcome_advantages([tensors], rewards, spec.algorithm)
    scale = token_weights(
        sequence_lengths(tensors), mode=spec.algorithm.loss_aggregation, loss_tokens=8, loss_sequences=4,
        constant_tokens=spec.algorithm.loss_constant_tokens or spec.rollout.max_new_tokens,
    )  # fmt: skip
    tokens = LossInputs(
        logprobs=current, proximal_logprobs=proximal, behavior_logprobs=proximal,
        advantages=credit.advantages.double(), importance_weights=torch.ones(8, dtype=torch.float64),
        version_lag=tensors.version_lag,
        sequence_ids=tensors.sequence_ids, num_sequences=4,
    )  # fmt: skip
    result = OBJECTIVES[spec.algorithm.objective](tokens, spec.algorithm)
    return float((scale.double() * result.loss).sum())


def test_every_rl_preset_has_a_worked_example() -> None:
    assert sorted(WORKED) == OF_RL


@pytest.mark.parametrize("name", OF_RL)
def test_worked_example_matches_the_hand_computed_loss(name: str) -> None:
    assert worked(SPECS[name]) == pytest.approx(WORKED[name], rel=1e-4)


def test_paper_recipe_gives_the_hand_computed_loss() -> None:
    """Mean 1.25 and variance 23.4375 of the rewards +-5 over 8 tokens: advantages 0.7746 and -1.2910."""
    assert WORKED["areal-paper"] == pytest.approx(
        (-1.2 * 0.774597 + 3 * 0.8 * 1.290994 - 4 * 0.774597) / 8, rel=1e-4
    )


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("areal-paper", {"trainer": {"learning_rate": 2e-5, "adam_betas": (0.9, 0.95), "adam_epsilon": 1e-5,
                                     "weight_decay": 0.05, "max_grad_norm": 1.0, "minibatches": 4,
                                     "groups_per_step": 512},
                         "rollout": {"group_size": 16, "max_new_tokens": 27648, "max_prompt_tokens": 1024},
                         "algorithm": {"objective": "decoupled_ppo", "proximal": "recompute", "kl": None,
                                       "critic": None, "clip_low": 0.2, "clip_high": 0.2,
                                       "loss_aggregation": "token_mean",
                                       "importance_weight": {"mode": "mask", "level": "token", "threshold": 5.0},
                                       "advantage": {"estimator": "gae", "mean": "batch", "std": "batch",
                                                     "gamma": 1.0, "gae_lambda": 1.0}},
                         "staleness": {"max": 8}, "reward": {"scale": 10.0, "bias": -5.0}}),
        ("areal-8-gpus", {"trainer": {"groups_per_step": 64, "num_ranks": 2, "learning_rate": 2e-5},
                          "rollout": {"group_size": 16, "engines": 6, "max_prompt_tokens": 1024,
                                      "max_new_tokens": 7168},
                          "staleness": {"max": 4}}),
        ("grpo", {"trainer": {"learning_rate": 1e-6, "minibatches": 1}, "rollout": {"group_size": 64},
                  "algorithm": {"kl": {"coefficient": 0.04, "estimator": "k3", "apply_to": "loss"}}}),
        ("dapo", {"trainer": {"minibatches": 16, "groups_per_step": 512, "warmup_steps": 20},
                  "rollout": {"group_size": 16, "max_new_tokens": 20480}, "reward": {"scale": 2.0, "bias": -1.0},
                  "algorithm": {"clip_low": 0.2, "clip_high": 0.28,
                                "overlong": {"margin_tokens": 4096, "penalty": 1.0}}}),
        ("cispo", {"trainer": {"adam_betas": (0.9, 0.95), "adam_epsilon": 1e-15}, "algorithm": {"clip_low": 1.0}}),
        ("gspo", {"algorithm": {"clip_low": 3e-4, "clip_high": 4e-4,
                                "importance_weight": {"mode": "mask", "level": "sequence_mean"}},
                  "trainer": {"minibatches": 4}}),
        ("rloo", {"trainer": {"minibatches": 1}, "algorithm": {"kl": None}}),
        ("reinforce-plus-plus", {"rollout": {"group_size": 1},
                                 "algorithm": {"kl": {"coefficient": 0.001, "estimator": "k1", "apply_to": "reward"}}}),
        ("ppo", {"algorithm": {"advantage": {"gamma": 1.0, "gae_lambda": 0.95}, "critic": {"clip": 0.2}}}),
        ("m2po", {"algorithm": {"importance_weight": {"mode": "second_moment", "level": "token", "threshold": 0.04}}}),
        ("sapo", {"algorithm": {"options": {"temperature_positive": 1.0, "temperature_negative": 1.05}}}),
        ("a-3po", {"algorithm": {"objective": "a3po", "proximal": "none"}}),
        ("dr-grpo", {"algorithm": {"kl": None, "loss_constant_tokens": None}, "rollout": {"max_new_tokens": 3000}}),
    ],
)  # fmt: skip
def test_preset_has_the_papers_hyperparameters(name: str, wanted: dict[str, Any]) -> None:
    assert taken(SPECS[name].model_dump(), wanted) == wanted


def taken(found: Any, wanted: Any) -> Any:
    """What `found` has of the keys that are wanted."""
    return {key: taken(found[key], wanted[key]) for key in wanted} if isinstance(wanted, dict) else found


def test_dapo_and_areal_use_dynamic_sampling_with_their_bounds() -> None:
    bounds = {
        name: (spec.rollout.filter.kind, spec.rollout.filter.low, spec.rollout.filter.high)
        for name, spec in SPECS.items()
        if spec.rollout.filter.kind != "none"
    }
    released = ("success_rate", 0.05, 0.95)
    assert bounds == {"dapo": ("success_rate", 0.0, 1.0), "areal-paper": released, "areal-8-gpus": released}


@pytest.fixture(scope="module")
def own_groups(tiny_model: Path) -> list[Group]:
    """Four groups of three whose behavior policy is the tiny model itself."""
    policy = load_policy(tiny_model)
    return [
        replace(group, trajectories=[
            replace(one, behavior_logprobs=plain_logprobs(policy, group.prompt_token_ids, one.token_ids).tolist())
            for one in group.trajectories
        ])
        for group in batch(tiny_model)
    ]  # fmt: skip


def preference(policy: Policy, groups: list[Group]) -> float:
    """How much likelier per token the rewarded completions are than the others of their group."""
    total = 0.0
    for group in groups:
        rewards = [one.reward or 0.0 for one in group.trajectories]
        mean = sum(rewards) / len(rewards)
        for reward, one in zip(rewards, group.trajectories, strict=True):
            likely = plain_logprobs(policy, group.prompt_token_ids, one.token_ids).mean()
            total += (reward - mean) * float(likely)
    return total


@pytest.mark.parametrize("name", OF_RL)
def test_preset_step_is_finite_and_raises_rewarded_completions(
    name: str, own_groups: list[Group], tiny_model: Path, context: DistributedContext
) -> None:
    """Sizes and learning rate are made to fit four tiny groups; the algorithm is the preset's."""
    own = SPECS[name]
    trainer = own.trainer.model_copy(
        update={
            "learning_rate": 3e-4,
            "groups_per_step": 4,
            "minibatches": 1,
            "dtype": "float32",
            "warmup_steps": 0,
        }
    )
    algorithm = own.algorithm
    if algorithm.critic is not None:
        algorithm = algorithm.model_copy(
            update={"critic": algorithm.critic.model_copy(update={"warmup_steps": 0})}
        )
    rollout = own.rollout.model_copy(update={"temperature": 0.7})
    spec = own.model_copy(update={"trainer": trainer, "algorithm": algorithm, "rollout": rollout})
    groups = [
        replace(group, trajectories=[
            replace(one, reward=own.reward.scale * (one.reward or 0.0) + own.reward.bias) for one in group.trajectories
        ])
        for group in own_groups
    ]  # fmt: skip
    one = learner(tiny_model, context, spec)
    [plan] = plan_batch(groups, version=0, num_ranks=1, minibatches=1, token_budget=256)
    outcome = one.train(plan, PhaseTimer())
    assert outcome.finite and all(math.isfinite(value) for value in outcome.metrics.values())
    policy = load_policy(tiny_model).requires_grad_(False)
    before = preference(policy, groups)
    policy.causal_lm.load_state_dict(
        gather_full_tensors(one.policy, dtype=torch.float32, keep=True), strict=False
    )
    policy.causal_lm.tie_weights()
    assert preference(policy, groups) > before + 1e-4
