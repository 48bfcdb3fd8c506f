"""What must hold for a model family, on a tiny model of it with random weights. Needs torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from oolong.contracts.rollout import Group, Trajectory
from tests.support.tiny_specs import tiny_run_spec
from trainers.distributed.context import DistributedContext
from trainers.distributed.fsdp import gather_full_tensors, shard_model
from trainers.models.packed_row import pack_row
from trainers.models.packing_check import check_packing
from trainers.models.policy import load_policy
from trainers.models.tiny import make_tiny_model
from trainers.phase_timer import PhaseTimer
from trainers.rl.batch_plan import plan_batch
from trainers.rl.learner import Learner
from trainers.rl.weight_publisher import WeightPublisher

PROMPT = [5, 6, 7]


def own_logprobs(directory: Path, sequences: list[list[int]]) -> list[torch.Tensor]:
    """By transformers' own model, each sequence alone: log-probabilities of all tokens but the first."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager")
    found = []
    for tokens in sequences:
        with torch.no_grad():
            logits = model(torch.tensor([tokens]), use_cache=False).logits[0]
        found.append(logits.log_softmax(-1)[:-1].gather(1, torch.tensor(tokens[1:])[:, None])[:, 0])
    return found


def packed_logprobs(directory: Path, sequences: list[list[int]]) -> torch.Tensor:
    policy = load_policy(directory)
    with torch.no_grad():
        return policy(pack_row(sequences, [range(1, len(one)) for one in sequences]))[0]


def check_family(family: str, work: Path, context: DistributedContext, **changes: Any) -> None:
    """Packed log-probabilities equal transformers' own; a train step moves every weight; what is published is whole."""
    directory = make_tiny_model(work / "model", seed=4, family=family, **changes)
    rng = torch.Generator().manual_seed(7)
    sequences = [torch.randint(256, (length,), generator=rng).tolist() for length in (3, 40, 17, 300)]
    torch.testing.assert_close(
        packed_logprobs(directory, sequences),
        torch.cat(own_logprobs(directory, sequences)),
        atol=2e-5,
        rtol=1e-5,
    )

    policy = shard_model(load_policy(directory), context.mesh)
    check = check_packing(policy, exact=True)
    assert check.packed_error < 1e-5 and check.unisolated_error > 0.05, check
    before = gather_full_tensors(policy, dtype=torch.float32, keep=True)
    learner = Learner(policy, SPEC, context)
    [plan] = plan_batch([recorded_group(rng, number) for number in range(4)], version=0, num_ranks=1, minibatches=2,
                        token_budget=256)  # fmt: skip
    assert learner.train(plan, PhaseTimer()).finite
    after = gather_full_tensors(policy, dtype=torch.float32, keep=True)
    still = [name for name in before if torch.equal(before[name], after[name])]
    assert not still, f"a train step left these as they were: {still}"

    tied = bool(policy.config["tie_word_embeddings"])
    assert ("lm_head.weight" in after) is not tied
    published = WeightPublisher(work / "weights", directory).write(1, after)
    trained = Path(published.directory)
    with torch.no_grad():
        ours, _ = learner.policy(pack_row([sequences[1]], [range(1, 40)]))
    torch.testing.assert_close(own_logprobs(trained, [sequences[1]])[0], ours, atol=2e-5, rtol=1e-5)


SPEC = tiny_run_spec(
    {
        "name": "family", "model": {"base_model": "tiny"}, "dataset": {"version": "d@1"},
        "rollout": {"group_size": 2},
        "trainer": {"groups_per_step": 4, "minibatches": 2, "learning_rate": 1e-2},
    }
)  # fmt: skip


def recorded_group(rng: torch.Generator, number: int) -> Group:
    trajectories = []
    for member in range(2):
        tokens = torch.randint(256, (20 + 9 * member,), generator=rng).tolist()
        trajectories.append(
            Trajectory(
                token_ids=tokens, loss_mask=[1] * len(tokens), behavior_logprobs=[-5.5] * len(tokens),
                policy_versions=[0] * len(tokens), finish_reason="stop", reward=float(member), score=float(member),
            )
        )  # fmt: skip
    return Group(
        group_id=f"0-{number}-0", row=number, prompt_token_ids=PROMPT, prompt="", answer="",
        trajectories=trajectories,
    )  # fmt: skip
