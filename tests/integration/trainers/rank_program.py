"""Started by torchrun: train steps on recorded batches, the plain way and with each option; rank 0 writes JSON.

rank_program.py MODEL_DIRECTORY OUT.json plain | options CHECKPOINTS
rank_program.py MODEL_DIRECTORY OUT.json resume CHECKPOINTS_OF_ONE_RANK CHECKPOINTS

Each writes a checkpoint behind step 5 into CHECKPOINTS; resume continues from that of one rank, and from its own.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from oolong.contracts.attempt import AttemptFile
from tests.integration.trainers.fake_controller import recorded_batches
from tests.support.preference_rows import preference_rows
from tests.support.tiny_specs import tiny_run_spec
from trainers import checkpoint
from trainers.distributed.context import DistributedContext, init_distributed, shutdown_distributed
from trainers.distributed.fsdp import gather_full_tensors, load_sharded_policy
from trainers.dpo.pairs import tokenize_pairs
from trainers.dpo.train_loop import DpoTrainer
from trainers.phase_timer import PhaseTimer
from trainers.rl.batch_plan import plan_batch
from trainers.rl.train_loop import make_learner

OPTIONS: dict[str, dict[str, Any]] = {
    "selective recomputation": {"activation_checkpointing": "selective"},
    "full recomputation": {"activation_checkpointing": "full"},
    "optimizer in the host's memory": {"offload_optimizer": True},
    "no resharding after forward": {"reshard_after_forward": False},
    "all of them": {
        "activation_checkpointing": "selective", "offload_optimizer": True, "reshard_after_forward": False,
    },
    "bfloat16": {"dtype": "bfloat16"},
}  # fmt: skip

# Everything that the ranks must agree on: means over their tokens, bounds over their tokens, three models.
ALGORITHMS: dict[str, dict[str, Any]] = {
    "critic and KL": {
        "advantage": {"estimator": "gae", "mean": "batch", "std": "batch", "gamma": 0.99, "gae_lambda": 0.95},
        "critic": {"learning_rate": 1e-3}, "kl": {"coefficient": 0.1}, "entropy_bonus": 0.01,
        "importance_weight": {"mode": "second_moment", "threshold": 0.01}, "dual_clip": 3.0,
    },
    "sequences": {
        "objective": "gspo", "loss_aggregation": "seq_mean", "advantage": {"estimator": "gae"},
        "importance_weight": {"mode": "truncate", "level": "sequence"},
        "kl": {"coefficient": 0.1, "estimator": "k1", "apply_to": "reward"},
    },
}  # fmt: skip


LORA: dict[str, Any] = {"rank": 4, "targets": ["q_proj", "v_proj", "down_proj"]}


def main() -> None:
    model_directory, out = Path(sys.argv[1]), Path(sys.argv[2])
    context = init_distributed("cpu")
    mode, checkpoints = sys.argv[3], Path(sys.argv[4])
    own = Path(sys.argv[5]) if mode == "resume" else checkpoints / str(context.world_size)
    told: dict[str, Any] = {"plain": train(model_directory, context, {}, steps=10, checkpoints=own)}
    if mode != "resume":
        told |= {
            name: train(model_directory, context, {}, algorithm=algorithm, steps=4)
            for name, algorithm in ALGORITHMS.items()
        }
        told["LoRA"] = train(
            model_directory, context, {}, algorithm={"kl": {"coefficient": 0.1}}, lora=LORA, steps=4
        )
        told["one minibatch"] = train(model_directory, context, {}, steps=4, minibatches=1)
        told["every microbatch"] = train(model_directory, context, {}, steps=4, reduces_every_microbatch=True)
        told["DPO"] = train_on_pairs(model_directory, context, checkpoints / f"dpo {context.world_size}")
    if mode == "options":
        told |= {name: train(model_directory, context, option, steps=4) for name, option in OPTIONS.items()}
    if mode == "resume":
        written = context.broadcast(own)  # an agent would fetch it
        for name, directory in {"one rank": checkpoints, "two nodes": written}.items():
            resume = directory / "step-00000005"
            told[f"resumed from {name}"] = train(model_directory, context, {}, steps=10, resume=resume)
        found = context.gather(own.exists())
        told["directories"] = found[:: context.world_size // 2] if found is not None else []
    if context.is_rank0:
        out.write_text(json.dumps(told))
    shutdown_distributed()


def train(
    model_directory: Path,
    context: DistributedContext,
    option: dict[str, Any],
    *,
    steps: int,
    minibatches: int = 2,
    reduces_every_microbatch: bool = False,
    algorithm: dict[str, Any] | None = None,
    lora: dict[str, Any] | None = None,
    checkpoints: Path | None = None,
    resume: Path | None = None,
) -> dict[str, Any]:
    spec = tiny_run_spec(
        {
            "name": "ranks", "model": {"base_model": "tiny", "lora": lora}, "dataset": {"version": "d@1"},
            "trainer": {"learning_rate": 1e-3, "max_grad_norm": 0.5, **option}, "algorithm": algorithm or {},
        }
    )  # fmt: skip
    learner = make_learner(model_directory, spec, context)
    policy = learner.policy
    policy.reduces_every_microbatch = reduces_every_microbatch
    shards = {
        name: (isinstance(parameter, DTensor), parameter.to_local().numel(), parameter.numel())
        for name, parameter in policy.named_parameters()
    }
    batches = recorded_batches(groups=4, members=4, seed=9, longest=90)
    losses, norms, counts, metrics = [], [], [], {}
    critic_losses, critic_norms = [], []
    first = 0
    if resume is not None:
        first = checkpoint.verify(resume)[0].step
        checkpoint.load_state(resume, policy=policy, optimizer=learner.optimizer, context=context)
    writer = checkpoint.CheckpointWriter(
        checkpoints or Path(), context=context, model_directory=model_directory, keep_last=1
    )
    for version in range(first, steps):
        if version == 5 and checkpoints is not None:
            whole = gather_full_tensors(policy, dtype=torch.float32, keep=context.is_rank0)
            record = checkpoint.TrainerRecord(
                kind="rl", step=version, seed=1, random_state=checkpoint.random_state(), run_id="r", attempt_id="a",
                epoch=1,
            )  # fmt: skip
            writer.begin(
                record, policy=policy, optimizer=learner.optimizer, snapshot=None, weights=whole or None
            )
        plans = plan_batch(
            batches(version), version=version, num_ranks=context.world_size, minibatches=minibatches,
            token_budget=200,
        )  # fmt: skip
        counts.append([[len(minibatch.microbatches) for minibatch in plan.minibatches] for plan in plans])
        outcome = learner.train(context.scatter(plans if context.is_rank0 else None), PhaseTimer())
        losses += outcome.minibatch_losses
        norms += outcome.grad_norms
        critic_losses += outcome.critic_losses
        critic_norms += outcome.critic_grad_norms
        metrics = outcome.metrics
    writer.close()
    weights = gather_full_tensors(policy, dtype=torch.float32, keep=context.is_rank0)
    published = gather_full_tensors(policy, dtype=torch.bfloat16, keep=context.is_rank0)
    assert published.keys() == weights.keys()
    return {
        "critic_losses": critic_losses, "critic_norms": critic_norms,
        "shards": shards, "losses": losses, "norms": norms, "counts": counts, "metrics": metrics,
        "masters": sorted({str(parameter.dtype) for parameter in policy.parameters()}),
        "weights": {name: tensor.flatten()[:50].tolist() for name, tensor in weights.items()},
        "cast_before_gather_differs": [
            name for name, tensor in published.items() if not torch.equal(tensor, weights[name].bfloat16())
        ],
    }  # fmt: skip


def train_on_pairs(model_directory: Path, context: DistributedContext, directory: Path) -> dict[str, Any]:
    """The metrics of each DPO step, some of whose microbatches are padding on one of two ranks."""
    spec = tiny_run_spec(
        {
            "kind": "dpo", "name": "ranks", "model": {"base_model": "tiny"}, "dataset": {"version": "d@1"},
            "trainer": {"microbatch_tokens": 40},
            "dpo": {"steps": 3, "batch_size": 5, "learning_rate": 1e-3, "warmup_steps": 0, "beta": 0.5},
        }
    )  # fmt: skip
    pairs = tokenize_pairs(preference_rows(12), model_directory)
    attempt = AttemptFile(
        run_id="r", attempt_id="a", attempt_number=1, epoch=1, spec=spec.model_dump(mode="json"),
        directory=str(directory), model_directory=str(model_directory), dataset_file="", token="",
    )  # fmt: skip
    policy = load_sharded_policy(model_directory, spec, context, seed=spec.seed)
    trainer = DpoTrainer(
        policy, pairs[:10], pairs[10:], attempt=attempt, context=context, outbox=None, stop=threading.Event()
    )
    trainer.prepare(0)
    steps = [trainer.train_step(step) for step in range(spec.dpo.steps)]
    return {"steps": steps, "validation": trainer.validate()}


if __name__ == "__main__":
    main()
