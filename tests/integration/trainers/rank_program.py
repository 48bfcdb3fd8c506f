"""Started by torchrun: ten train steps on recorded batches; rank 0 writes what happened as JSON.

rank_program.py MODEL_DIRECTORY OUT.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from torch.distributed.tensor import DTensor

from oolong.contracts.run_spec import RunSpec
from tests.integration.trainers.scripted_controller import recorded_batches
from trainers.models.policy import load_policy
from trainers.models.shard import full_tensors, shard
from trainers.ranks import join_ranks, leave_ranks
from trainers.rl.learner import Learner
from trainers.rl.plan import plan_batch
from trainers.stopwatch import Stopwatch


def main() -> None:
    model_directory, out = Path(sys.argv[1]), Path(sys.argv[2])
    ranks = join_ranks("cpu")
    spec = RunSpec.model_validate(
        {
            "name": "ranks", "model": {"base_model": "tiny"}, "dataset": {"version": "d@1"},
            "trainer": {"learning_rate": 1e-3, "max_grad_norm": 0.5},
        }
    )  # fmt: skip
    policy = shard(load_policy(model_directory), ranks.mesh)
    shards = {
        name: (isinstance(parameter, DTensor), parameter.to_local().numel(), parameter.numel())
        for name, parameter in policy.named_parameters()
    }
    learner = Learner(policy, spec, ranks)
    batches = recorded_batches(groups=4, members=4, seed=9, longest=90)
    losses, norms, counts, metrics = [], [], [], {}
    for version in range(10):
        plans = plan_batch(
            batches(version), version=version, ranks=ranks.size, minibatches=2, token_budget=200
        )
        counts.append([[len(minibatch.microbatches) for minibatch in plan.minibatches] for plan in plans])
        outcome = learner.train(ranks.deal(plans if ranks.first else None), Stopwatch())
        losses += outcome.minibatch_losses
        norms += outcome.grad_norms
        metrics = outcome.metrics
    weights = full_tensors(policy, dtype=torch.float32, keep=ranks.first)
    if ranks.first:
        out.write_text(
            json.dumps(
                {
                    "shards": shards, "losses": losses, "norms": norms, "counts": counts, "metrics": metrics,
                    "weights": {name: tensor.flatten()[:50].tolist() for name, tensor in weights.items()},
                }
            )
        )  # fmt: skip
    leave_ranks()


if __name__ == "__main__":
    main()
