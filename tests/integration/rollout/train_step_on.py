"""Run by the node Python: one train step of the real learner on recorded groups.

`train_step_on.py GROUPS.msgpack MODEL VERSION TEMPERATURE`. Prints {"finite", "changed": largest change of a
weight, "loss_tokens"}.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import msgspec

from oolong.contracts.rollout import Group
from tests.support.tiny_specs import tiny_run_spec


def main() -> None:
    import torch

    from trainers.distributed.context import init_distributed, shutdown_distributed
    from trainers.distributed.fsdp import gather_full_tensors, shard_model
    from trainers.models.policy import load_policy
    from trainers.phase_timer import PhaseTimer
    from trainers.rl.batch_plan import plan_batch
    from trainers.rl.learner import Learner

    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    groups = msgspec.msgpack.decode(Path(sys.argv[1]).read_bytes(), type=list[Group])
    spec = tiny_run_spec(
        {
            "name": "step", "model": {"base_model": "tiny"}, "dataset": {"version": "d"},
            "rollout": {"group_size": 2, "temperature": float(sys.argv[4])},
            "trainer": {"groups_per_step": len(groups), "minibatches": 1},
        }
    )  # fmt: skip
    context = init_distributed("cpu")
    learner = Learner(shard_model(load_policy(Path(sys.argv[2])), context.mesh), spec, context)
    weights = gather_full_tensors(learner.policy, dtype=torch.float32, keep=True)
    before = {name: tensor.clone() for name, tensor in weights.items()}
    [plan] = plan_batch(groups, version=int(sys.argv[3]), num_ranks=1, minibatches=1, token_budget=4096)
    outcome = learner.train(plan, PhaseTimer())
    after = gather_full_tensors(learner.policy, dtype=torch.float32, keep=True)
    changed = max(float((after[name] - tensor).abs().max()) for name, tensor in before.items())
    shutdown_distributed()
    tokens = plan.minibatches[0].loss_tokens
    print(json.dumps({"finite": outcome.finite, "changed": changed, "loss_tokens": tokens}))


if __name__ == "__main__":
    main()
