"""Seconds of a train step with one minibatch: `python -m tests.bench.train_step` with torch.

A model of 10 million parameters, 32 sequences of 96 to 480 tokens, float32, one thread; only the forward passes and the
backward pass count, each way alternating. The baseline runs a proximal pass before the training pass.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench.weight_publish import SIZES

KEY = "one_minibatch_step_speed"
REPEATS = 3
GROUPS, MEMBERS, PROMPT = 8, 4, 32


def measure() -> dict[str, Any]:
    import torch

    from oolong.contracts.rollout import Group, Trajectory
    from tests.support.tiny_specs import tiny_run_spec
    from trainers.distributed.context import init_distributed, shutdown_distributed
    from trainers.distributed.fsdp import apply_fsdp
    from trainers.models.policy import uninitialized_policy
    from trainers.models.tiny import tiny_config
    from trainers.phase_timer import PhaseTimer
    from trainers.rl.batch_plan import plan_batch
    from trainers.rl.learner import Learner

    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    context = init_distributed("cpu")
    rng = random.Random(1)

    def trajectory(reward: float) -> Trajectory:
        tokens = [rng.randrange(8192) for _ in range(rng.randrange(64, 449))]
        return Trajectory(
            token_ids=tokens, loss_mask=[1] * len(tokens), behavior_logprobs=[-9.0] * len(tokens),
            policy_versions=[0] * len(tokens), finish_reason="stop", reward=reward,
        )  # fmt: skip

    groups = [
        Group(
            group_id=f"0-{number}-0", row=number, prompt_token_ids=[5] * PROMPT, prompt="", answer="",
            trajectories=[trajectory(float(member == 0)) for member in range(MEMBERS)],
        )
        for number in range(GROUPS)
    ]  # fmt: skip
    spec = tiny_run_spec(
        {
            "name": "b", "model": {"base_model": "m"}, "dataset": {"version": "d@1"},
            "rollout": {"group_size": MEMBERS}, "trainer": {"minibatches": 1, "groups_per_step": GROUPS},
        }
    )  # fmt: skip
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as directory:
        config = tiny_config(
            "qwen3", vocab_size=8192, num_attention_heads=8, num_key_value_heads=2, **SIZES["10M"]
        )
        config.save_pretrained(directory)
        policy = uninitialized_policy(Path(directory)).requires_grad_(True)
    learner = Learner(apply_fsdp(policy, context.mesh, spec.trainer), spec, context)
    can_share_pass = learner._can_share_pass
    [plan] = plan_batch(groups, version=0, num_ranks=1, minibatches=1, token_budget=2048)
    spent: dict[str, list[float]] = {"shared_pass": [], "proximal_pass": []}
    for _ in range(REPEATS + 1):
        for name, seconds in spent.items():
            learner._can_share_pass = can_share_pass if name == "shared_pass" else lambda plan: False  # type: ignore[method-assign]
            began = time.process_time()
            if not learner.train(plan, PhaseTimer()).finite:
                raise AssertionError("a step was not finite")
            seconds.append(time.process_time() - began)
    shutdown_distributed()
    median = {name: statistics.median(seconds[1:]) for name, seconds in spent.items()}
    return {
        "key": KEY,
        "value": median["proximal_pass"] / median["shared_pass"],
        "unit": "speed ratio",
        "baseline": "the same step with a proximal pass of its own",
        "settings": {
            "cpu_seconds": median, "parameters": sum(one.numel() for one in learner.parameters), "dtype": "float32",
            "tokens": sum(len(one.token_ids) + PROMPT for group in groups for one in group.trajectories),
            "threads": 1, "repeats": REPEATS, "statistic": "median of processor seconds, after one step each",
        },
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(measure(), indent=1))
