"""The trainer alone on one GPU: packing, options, memory, speed."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from oolong.contracts.run_spec import TrainerSection
from tests.bench import lm_head_memory
from tests.gpu.conftest import REHEARSAL, Machine
from tests.support.family_checks import recorded_group
from tests.support.tiny_specs import tiny_run_spec
from trainers.distributed.context import DistributedContext
from trainers.distributed.fsdp import apply_fsdp
from trainers.models.flops import load_forward_flops
from trainers.models.optimizer import make_adamw
from trainers.models.packed_row import PackedRow, pack_row
from trainers.models.packing_check import check_packing
from trainers.models.policy import load_policy
from trainers.phase_timer import PhaseTimer
from trainers.rl.batch_plan import plan_batch
from trainers.rl.learner import Learner

TOKENS = 512 if REHEARSAL else 16_384
LEARNING_RATE = 5e-3 if REHEARSAL else 3e-5  # at which a few steps move the losses, and no weight runs away
OPTIONS: dict[str, dict[str, Any]] = {
    "selective recomputation": {"activation_checkpointing": "selective"},
    "full recomputation": {"activation_checkpointing": "full"},
    "optimizer in the host's memory": {"offload_optimizer": True},
    "no resharding after forward": {"reshard_after_forward": False},
    "compiled blocks": {"compile": True},
}
# Dense bf16, without sparsity, from the makers' data sheets; of two that fit a name, the first.
PEAK_FLOPS = {
    "H100 PCIe": 756e12, "H100 NVL": 835e12, "H100": 989e12, "H200": 989e12, "GH200": 989e12, "H800": 989e12,
    "A100": 312e12, "A800": 312e12, "L40S": 362e12, "L40": 181e12, "L4": 121e12,
}  # fmt: skip
PLAIN_LOGITS_BYTES = 34 * 2**30  # 16,384 x 151,936 in float32, three times, and a half


def section(machine: Machine, **changes: Any) -> TrainerSection:
    return TrainerSection.model_validate({"dtype": machine.dtype, **changes})


def test_packed_rows_equal_lone_sequences_with_the_kernel_of_this_gpu(
    machine: Machine, context: DistributedContext, report: Callable[..., None]
) -> None:
    policy = apply_fsdp(load_policy(machine.model), context.mesh, section(machine))
    check = check_packing(policy, exact=machine.dtype == "float32")
    report(packed_difference=check.packed_error, joined_difference=check.unisolated_error)
    assert check.packed_error < check.limit < check.unisolated_error


@pytest.mark.cuda
def test_the_head_takes_an_eighth_of_the_memory_of_plain_logits(report: Callable[..., None]) -> None:
    free = torch.cuda.mem_get_info()[0]
    if free < PLAIN_LOGITS_BYTES:
        pytest.skip(f"needs an NVIDIA GPU with 34 GiB free for the plain logits: {free / 2**30:.0f} GiB are")
    found = lm_head_memory.measure("cuda")
    report(**found)
    assert found["value"] >= 8


def losses(machine: Machine, context: DistributedContext, **option: Any) -> list[float]:
    spec = tiny_run_spec(
        {
            "name": "gpu", "model": {"base_model": "m"}, "dataset": {"version": "d@1"},
            # The groups' behavior log-probabilities are of a small vocabulary: w would make every loss next to 0.
            "algorithm": {"objective": "ppo"},
            "trainer": {
                **section(machine, learning_rate=LEARNING_RATE).model_dump(), "groups_per_step": 4, "minibatches": 2,
                **option,
            },
        }
    )  # fmt: skip
    policy = apply_fsdp(load_policy(machine.model), context.mesh, spec.trainer)
    learner = Learner(policy, spec, context)
    rng = torch.Generator().manual_seed(3)
    told = []
    for version in range(3):
        groups = [recorded_group(rng, number) for number in range(4)]
        [plan] = plan_batch(groups, version=version, num_ranks=1, minibatches=2, token_budget=256)
        told += learner.train(plan, PhaseTimer()).minibatch_losses
    return told


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_changes_no_loss(machine: Machine, context: DistributedContext, option: str) -> None:
    compiler_or_skip(option, machine.device)
    plain = losses(machine, context)
    moved = max(plain) - min(plain)
    assert moved > 0.01, "the losses hardly move: the check is blind"
    assert losses(machine, context, **OPTIONS[option]) == pytest.approx(
        plain, abs=(1e-4 if machine.dtype == "float32" else 0.2) * moved
    )


@pytest.mark.parametrize("option", ["plain", *OPTIONS])
def test_speed_and_memory_of_a_step(
    machine: Machine, context: DistributedContext, report: Callable[..., None], option: str
) -> None:
    """Forward, backward and AdamW over 16,384 tokens in rows of 8 sequences; model FLOPs, recomputation not counted."""
    compiler_or_skip(option, machine.device)
    asked = section(machine, **OPTIONS.get(option, {}))
    policy = apply_fsdp(load_policy(machine.model).to(context.device), context.mesh, asked)
    optimizer = make_adamw(
        policy.parameters(), learning_rate=1e-5, betas=(0.9, 0.95), offload=asked.offload_optimizer
    )
    row = long_row(int(policy.config["vocab_size"])).to(context.device)
    cuda = machine.device == "cuda"

    def step() -> float:
        policy(row)[0].mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if cuda:
            torch.cuda.synchronize()
        return time.perf_counter()

    step()  # compiles, allocates
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    repeats = 2 if REHEARSAL else 5
    began = time.perf_counter()
    seconds = ([step() for _ in range(repeats)][-1] - began) / repeats
    cost = load_forward_flops(machine.model)
    flops = 3 * sum(cost.of_sequence(length, length - 1) for length in row.seqlens)
    name = torch.cuda.get_device_name() if cuda else "processor"
    peak = peak_flops(name)
    report(
        option=option, device=name, tokens_per_second=TOKENS / seconds, model_tflops_per_second=flops / seconds / 1e12,
        mfu=flops / seconds / peak if peak else "peak of this device unknown",
        peak_bytes=torch.cuda.max_memory_allocated() if cuda else None,
    )  # fmt: skip
    assert seconds > 0 and all(
        bool(parameter.isfinite().all()) for parameter in list(policy.parameters())[:2]
    )


def compiler_or_skip(option: str, device: str) -> None:
    if "compile" not in OPTIONS.get(option, {}):
        return
    if device == "cpu":
        pytest.skip("needs an NVIDIA GPU")
    if not any(shutil.which(name) for name in (os.environ.get("CC", "cc"), "gcc", "clang")):
        pytest.skip("needs an NVIDIA GPU and a C compiler: Triton builds its launchers with it")


def peak_flops(device: str) -> float | None:
    return next((peak for key, peak in PEAK_FLOPS.items() if re.search(rf"\b{key}\b", device)), None)


def long_row(vocabulary: int) -> PackedRow:
    rng = torch.Generator().manual_seed(5)
    sequences = [torch.randint(vocabulary, (TOKENS // 8,), generator=rng).tolist() for _ in range(8)]
    return pack_row(sequences, [range(1, len(one)) for one in sequences])
