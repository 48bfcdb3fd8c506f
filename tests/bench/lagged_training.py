"""Reinforcement learning at a lag that is exactly η versions: the trainer's learner, and a sampler beside it that
always uses the weights of η versions ago.

In the whole system staleness is a distribution under a bound; here every batch has the same staleness, so that the
effect of staleness alone can be seen. What learns is the very code of a run: `plan_batch`, `Learner.train`, the
objectives; what samples is `tests.bench.sampler`. One process, one thread, no clock: a busy machine changes nothing.
"""

from __future__ import annotations

import math
import os
import random
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from gpu_agents.rewards import exact_match
from gpu_agents.rewards.reward import Completion
from oolong.contracts.attempt import CanonicalRow
from oolong.contracts.rollout import Group, Trajectory
from oolong.contracts.run_spec import RunSpec
from tests.bench.sampler import Sampled, Sampler
from tests.support.tiny_specs import tiny_run_spec
from trainers.dataset import read_rows
from trainers.distributed.context import DistributedContext, init_distributed, shutdown_distributed
from trainers.distributed.fsdp import gather_full_tensors, shard_model
from trainers.models.packed_row import pack_row
from trainers.models.policy import load_policy
from trainers.phase_timer import PhaseTimer
from trainers.rl.batch_plan import RankPlan, plan_batch
from trainers.rl.learner import Learner

Weights = dict[str, torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class LagSetting:
    objective: Literal["ppo", "decoupled_ppo"]  # ppo: the behavior policy is its old policy
    lag: int  # η: every batch is sampled by the weights of so many versions before
    learning_rate: float
    seed: int
    steps: int = 100
    prompts: int = 32  # groups of a batch
    group_size: int = 8
    minibatches: int = 4
    max_new_tokens: int = 112

    @property
    def name(self) -> str:
        size = f"{self.prompts}x{self.group_size}-{self.steps}"
        return f"{self.objective}-lag{self.lag}-lr{self.learning_rate:g}-{size}-seed{self.seed}"

    def spec(self) -> RunSpec:
        naive = self.objective == "ppo"
        return tiny_run_spec(
            {
                "name": "lag", "model": {"base_model": "warm"}, "dataset": {"version": "letter-sum"}, "seed": self.seed,
                "rollout": {"group_size": self.group_size, "max_new_tokens": self.max_new_tokens},
                "trainer": {
                    "groups_per_step": self.prompts, "minibatches": self.minibatches,
                    "learning_rate": self.learning_rate, "total_train_steps": self.steps,
                },
                "algorithm": {"objective": self.objective, "proximal": "none" if naive else "recompute"},
            }
        )  # fmt: skip


@dataclass(kw_only=True)
class LagCurve:
    """`reward[v]` is the mean reward of fresh samples of version v, for every version 0 … steps."""

    setting: dict[str, Any]
    reward: list[float]
    largest_weight: list[float]  # of each step's batch: max over tokens of w = proximal / behavior
    mean_abs_log_weight: list[float]
    masked_frac: list[float]
    nonfinite_steps: int = 0

    @property
    def mean(self) -> float:
        return sum(self.reward) / len(self.reward)

    @property
    def last_20(self) -> float:
        return sum(self.reward[-20:]) / len(self.reward[-20:])


def single_rank() -> DistributedContext:
    """A process group of one, as torchrun would make it."""
    for name, value in {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "0",
    }.items():
        os.environ.setdefault(name, value)
    return init_distributed("cpu")


def train_at_lag(setting: LagSetting, *, model_directory: Path, dataset: Path) -> LagCurve:
    context = single_rank()
    try:
        return _train(setting, model_directory, read_rows(dataset, split="train"), context)
    finally:
        shutdown_distributed()


def _train(
    setting: LagSetting, model_directory: Path, rows: list[CanonicalRow], context: DistributedContext
) -> LagCurve:
    torch.manual_seed(setting.seed)
    order = random.Random(f"lag/{setting.seed}")
    spec = setting.spec()
    learner = Learner(shard_model(load_policy(model_directory), context.mesh), spec, context)
    sampler = Sampler(model_directory, seed=setting.seed)
    versions: deque[tuple[int, Weights]] = deque(maxlen=setting.lag + 1)
    versions.append((0, _weights(learner)))
    rewards: dict[int, list[float]] = {}
    curve = LagCurve(
        setting=asdict(setting), reward=[], largest_weight=[], mean_abs_log_weight=[], masked_frac=[]
    )
    for version in range(setting.steps):
        behavior, weights = versions[0]  # version - lag, or 0 while there are fewer versions
        sampler.load(weights)
        groups = _sample(sampler, order.sample(rows, setting.prompts), setting, version=behavior)
        rewards.setdefault(behavior, []).append(_mean_reward(groups))
        [plan] = plan_batch(
            groups, version=version, num_ranks=1, minibatches=setting.minibatches,
            token_budget=spec.trainer.microbatch_tokens,
        )  # fmt: skip
        # The naive objective does not look at the policy as it is now; how far it has moved is measured for it.
        distance = _distance(learner, plan) if setting.objective == "ppo" else {}
        outcome = learner.train(plan, PhaseTimer())
        measured = {**outcome.metrics, **distance}
        curve.largest_weight.append(measured.get("importance_ratio/max", math.nan))
        curve.mean_abs_log_weight.append(measured.get("importance_ratio/abs_log_mean", math.nan))
        curve.masked_frac.append(outcome.metrics.get("importance_ratio/masked_frac", 0.0))
        curve.nonfinite_steps += not outcome.finite
        versions.append((version + 1, _weights(learner)))
    for version, weights in versions:  # the newest versions have not sampled a batch yet
        if version not in rewards:
            sampler.load(weights)
            groups = _sample(sampler, order.sample(rows, setting.prompts), setting, version=version)
            rewards[version] = [_mean_reward(groups)]
    curve.reward = [sum(rewards[v]) / len(rewards[v]) for v in range(setting.steps + 1)]
    return curve


def _weights(learner: Learner) -> Weights:
    tensors = gather_full_tensors(learner.policy, dtype=torch.float32, keep=True)
    return {name: tensor.clone() for name, tensor in tensors.items()}


_score = exact_match.build({})


def _sample(sampler: Sampler, rows: list[CanonicalRow], setting: LagSetting, *, version: int) -> list[Group]:
    prompts = [sampler.encode(row.messages) for row in rows]
    wanted = [prompt for prompt in prompts for _ in range(setting.group_size)]
    sampled = sampler.sample(wanted, max_new_tokens=setting.max_new_tokens)
    groups = []
    for number, (row, prompt) in enumerate(zip(rows, prompts, strict=True)):
        members = sampled[number * setting.group_size : (number + 1) * setting.group_size]
        trajectories = [_trajectory(sampler, member, row, version) for member in members]
        groups.append(
            Group(group_id=f"0-{row.row}-0", row=row.row, prompt_token_ids=prompt, prompt="", answer=row.answer,
                  trajectories=trajectories)
        )  # fmt: skip
    return groups


def _trajectory(sampler: Sampler, member: Sampled, row: CanonicalRow, version: int) -> Trajectory:
    finish: Literal["stop", "length"] = "stop" if member.stopped else "length"
    score = _score(
        Completion(
            prompt="",
            text=sampler.decode(member.token_ids),
            answer=row.answer,
            finish_reason=finish,
            row=row.row,
        )
    )
    length = len(member.token_ids)
    return Trajectory(
        token_ids=member.token_ids, loss_mask=[1] * length, behavior_logprobs=member.logprobs,
        policy_versions=[version] * length, finish_reason=finish, reward=score, score=score,
    )  # fmt: skip


def _mean_reward(groups: list[Group]) -> float:
    rewards = [float(one.reward or 0.0) for group in groups for one in group.trajectories]
    return sum(rewards) / len(rewards)


@torch.no_grad()
def _distance(learner: Learner, plan: RankPlan) -> dict[str, float]:
    """max w and mean |log w| over a batch's tokens, w = the policy now over the behavior policy."""
    largest, total, tokens = 0.0, 0.0, 0
    for microbatch in (one for minibatch in plan.minibatches for one in minibatch.microbatches):
        sequences = microbatch.sequences
        row = pack_row([one.tokens for one in sequences], [one.loss_positions for one in sequences])
        logprobs, _ = learner.policy(row, temperature=1.0)
        behavior = torch.tensor([value for one in sequences for value in one.behavior_logprobs])
        log_weight = (logprobs - behavior).double()
        largest = max(largest, float(log_weight.max().exp()))
        total += float(log_weight.abs().sum())
        tokens += log_weight.numel()
    return {"importance_ratio/max": largest, "importance_ratio/abs_log_mean": total / tokens}
