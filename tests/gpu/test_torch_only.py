"""What torch alone shows of a GPU: correctness of the kernels that the trainer takes, and what each phase costs.

Needs no SGLang. Each part reports as soon as it has finished, so that a session that is cut short keeps what it saw
(`OOLONG_GPU_RESULTS`, see conftest). Parts are in the order of what is learned per second.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from oolong.contracts.run_spec import RunSpec
from oolong.contracts.run_spec.memory import shape_of, trainer_memory
from oolong.cuda_host import inspect_cuda, missing
from tests.gpu.conftest import QWEN3_0_6B, REHEARSAL, Machine
from tests.support.family_checks import recorded_group
from trainers.algorithms.gae import gae
from trainers.distributed.context import DistributedContext
from trainers.distributed.fsdp import apply_fsdp, gather_full_tensors
from trainers.models.attention import packed_attention
from trainers.models.policy import uninitialized_policy
from trainers.models.tiny import tiny_config
from trainers.phase_timer import PhaseTimer
from trainers.rl.batch_plan import plan_batch
from trainers.rl.learner import Learner
from trainers.rl.step_backup import StepBackup

DEVICE = "cpu" if REHEARSAL else "cuda"
# (query heads, key and value heads, head dimension): Qwen3-0.6B, Qwen2.5-7B, Qwen2.5-0.5B, the demo's model.
HEADS = [(16, 8, 128), (28, 4, 128), (14, 2, 64), (2, 1, 32)]
LENGTHS = [5, 31, 64] if REHEARSAL else [1, 37, 512, 1024, 2473]
QWEN2_5_1_5B: dict[str, Any] = {
    "vocab_size": 151_936, "hidden_size": 1536, "num_hidden_layers": 28, "num_attention_heads": 12,
    "num_key_value_heads": 2, "intermediate_size": 8960, "max_position_embeddings": 32_768,
    "initializer_range": 0.02, "tie_word_embeddings": True, "dtype": "bfloat16",
}  # fmt: skip
SHAPES = {"qwen3 0.6B": ("qwen3", QWEN3_0_6B), "qwen2.5 1.5B": ("qwen2", QWEN2_5_1_5B)}
GIGABYTE = 10**9


def synchronize() -> float:
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def gpu_bytes() -> int | None:
    return torch.cuda.get_device_properties(0).total_memory if DEVICE == "cuda" else None


def seconds_of(action: Callable[[], object]) -> float:
    began = synchronize()
    action()
    return synchronize() - began


def test_the_machine_has_what_cuda_needs(report: Callable[..., None]) -> None:
    host = inspect_cuda(os.environ)
    lacks = [lack.what for lack in missing(host)]
    report(
        driver=host.driver, toolkit=host.toolkit, compiler=host.compiler, python_headers=host.python_headers,
        ninja=shutil.which("ninja"), torch=torch.__version__, torch_cuda=torch.version.cuda, lacks=lacks,
        gpu=torch.cuda.get_device_name() if DEVICE == "cuda" else "none",
    )  # fmt: skip
    assert REHEARSAL or host.driver is not None


@pytest.mark.parametrize("heads", HEADS, ids=str)
def test_packed_attention_and_its_gradients_equal_float64(
    heads: tuple[int, int, int], report: Callable[..., None]
) -> None:
    query_heads, key_heads, dimension = heads
    dtype, limit = (torch.float32, 1e-5) if REHEARSAL else (torch.bfloat16, 1e-2)
    rng = torch.Generator(DEVICE).manual_seed(11)
    exact = [
        torch.randn(1, count, sum(LENGTHS), dimension, generator=rng, device=DEVICE, dtype=torch.float64)
        .to(dtype).double().requires_grad_()
        for count in (query_heads, key_heads, key_heads)
    ]  # fmt: skip
    rounded = [tensor.detach().to(dtype).requires_grad_() for tensor in exact]
    boundaries = torch.tensor([0, *LENGTHS], device=DEVICE).cumsum(0).to(torch.int32)
    ours, _ = packed_attention(torch.nn.Identity(), *rounded, None, cu_seqlens=boundaries, seqlens=LENGTHS)
    parts = [
        scaled_dot_product_attention(*part, is_causal=True, enable_gqa=True)
        for part in zip(*(tensor.split(LENGTHS, dim=2) for tensor in exact), strict=True)
    ]
    reference = torch.cat(parts, dim=2).transpose(1, 2)
    upstream = torch.randn(reference.shape, generator=rng, device=DEVICE, dtype=torch.float64)
    reference.backward(upstream)
    ours.backward(upstream.to(dtype))
    errors = {"forward": relative(ours, reference)}
    for name, low, high in zip("qkv", rounded, exact, strict=True):
        assert low.grad is not None and high.grad is not None
        errors[f"d{name}"] = relative(low.grad, high.grad)
    report(heads=heads, **errors)
    assert max(errors.values()) < limit  # a mask that leaks one sequence into the next errs by about 1


def relative(found: torch.Tensor, exact: torch.Tensor) -> float:
    return float((found.detach().double() - exact.detach()).norm() / exact.detach().norm())


def test_gae_of_a_long_batch(report: Callable[..., None]) -> None:
    """27,000 tokens in the longest sequence: the recursion must not cost seconds."""
    tokens = 270 if REHEARSAL else 27_000
    rng = torch.Generator(DEVICE).manual_seed(2)
    rewards = [torch.randn(tokens // part, generator=rng, device=DEVICE) for part in (1, 2, 3)]
    values = [torch.randn(len(one), generator=rng, device=DEVICE) for one in rewards]
    gae(rewards, values, gamma=1.0, gae_lambda=0.95)
    report(tokens=tokens, seconds=seconds_of(lambda: gae(rewards, values, gamma=1.0, gae_lambda=0.95)))


@pytest.fixture(params=["tiny"] if REHEARSAL else SHAPES)
def shaped(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    """Name of a shape and a directory with its config; weights are made where they are used."""
    family, changes = SHAPES.get(request.param, ("qwen3", {"vocab_size": 512}))
    tiny_config(family, **changes).save_pretrained(tmp_path)
    return request.param, tmp_path


def spec_of(machine: Machine, **trainer: Any) -> RunSpec:
    return RunSpec.model_validate(
        {
            "name": "gpu", "model": {"base_model": "m"}, "dataset": {"version": "d@1"},
            "algorithm": {"objective": "ppo"},
            "trainer": {
                "dtype": machine.dtype, "groups_per_step": 4, "minibatches": 2, "learning_rate": 1e-6,
                "activation_checkpointing": "full", **trainer,
            },
        }
    )  # fmt: skip


def test_phases_and_memory_of_a_train_step_and_of_a_publish(
    machine: Machine,
    context: DistributedContext,
    shaped: tuple[str, Path],
    tmp_path: Path,
    report: Callable[..., None],
) -> None:
    """Two minibatches, so the step keeps a backup; then what publishing the weights costs, piece by piece."""
    name, directory = shaped
    spec, config = spec_of(machine), directory / "config.json"
    with torch.device(DEVICE):  # random weights come from the GPU: seconds, not minutes
        policy = uninitialized_policy(directory).requires_grad_(True)
    parameters = sum(parameter.numel() for parameter in policy.parameters())
    if DEVICE == "cuda" and torch.cuda.mem_get_info()[0] < 20 * parameters:
        pytest.skip(f"needs an NVIDIA GPU with {20 * parameters / GIGABYTE:.0f} GB free")
    learner = Learner(apply_fsdp(policy, context.mesh, spec.trainer), spec, context)
    rng = torch.Generator().manual_seed(3)
    phases: dict[str, float] = {}
    for version in range(2):  # the first step allocates and compiles
        groups = [recorded_group(rng, number) for number in range(4)]
        [plan] = plan_batch(groups, version=version, num_ranks=1, minibatches=2, token_budget=256)
        timer = PhaseTimer()
        if DEVICE == "cuda":
            torch.cuda.reset_peak_memory_stats()
        began = synchronize()
        assert learner.train(plan, timer).finite
        whole = synchronize() - began
        phases = timer.flush("prepare")
    report(
        shape=name, parameters=parameters, step_seconds=whole, phases=phases,
        peak_bytes=torch.cuda.max_memory_allocated() if DEVICE == "cuda" else None,
        # Its activations are of microbatch_tokens; the rows of this step are shorter.
        lint_trainer_bytes=asdict(
            trainer_memory(
                spec, parameters, shape_of(json.loads(config.read_text())), device_bytes=gpu_bytes()
            )
        ),
    )  # fmt: skip

    backup = StepBackup(learner.parameters, learner.optimizer)
    costs = {"backup_first": seconds_of(backup.begin), "backup": seconds_of(backup.begin)}
    before = [parameter.detach().clone() for parameter in learner.parameters]
    with torch.no_grad():
        backup.wait()
        for parameter in learner.parameters:
            parameter.add_(1)
    backup.restore()
    assert all(torch.equal(one, parameter) for one, parameter in zip(before, learner.parameters, strict=True))
    tensors: dict[str, torch.Tensor] = {}
    costs["gather"] = seconds_of(
        lambda: tensors.update(gather_full_tensors(policy, dtype=torch.bfloat16, keep=True))
    )
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    costs |= _costs_of_a_file(tensors, tmp_path / "weights.safetensors")
    costs |= _costs_of_copies(size)
    report(
        shape=name,
        bytes=size,
        **{f"{part}_seconds_per_gb": cost * GIGABYTE / size for part, cost in costs.items()},
    )


def _costs_of_a_file(tensors: dict[str, torch.Tensor], path: Path) -> dict[str, float]:
    from safetensors.torch import save

    data: list[bytes] = []
    costs = {"serialize": seconds_of(lambda: data.append(save(tensors)))}
    costs["sha256"] = seconds_of(lambda: hashlib.sha256(data[0]).hexdigest())
    with path.open("wb") as file:
        costs["write"] = seconds_of(lambda: file.write(data[0]))
        costs["fsync"] = seconds_of(lambda: (file.flush(), os.fsync(file.fileno())))
    path.unlink()
    return costs


def _costs_of_copies(size: int) -> dict[str, float]:
    """From the device to host memory, fresh and pageable as the code does, and pinned."""
    if DEVICE == "cpu":
        return {}
    source = torch.zeros(size // 2, dtype=torch.bfloat16, device=DEVICE)
    pinned = torch.empty(size // 2, dtype=torch.bfloat16, pin_memory=True)
    pageable = seconds_of(lambda: source.to("cpu", copy=True))
    return {
        "copy_pageable": pageable,
        "copy_pinned": seconds_of(lambda: pinned.copy_(source, non_blocking=True)),
    }


@pytest.mark.cuda
def test_the_costliest_kernels_of_a_step(
    machine: Machine, context: DistributedContext, tmp_path: Path, report: Callable[..., None]
) -> None:
    from torch.profiler import ProfilerActivity, profile

    tiny_config("qwen3", **QWEN3_0_6B).save_pretrained(tmp_path)
    spec = spec_of(machine)
    with torch.device(DEVICE):
        policy = uninitialized_policy(tmp_path).requires_grad_(True)
    learner = Learner(apply_fsdp(policy, context.mesh, spec.trainer), spec, context)
    rng = torch.Generator().manual_seed(3)
    groups = [recorded_group(rng, number) for number in range(4)]
    [plan] = plan_batch(groups, version=0, num_ranks=1, minibatches=2, token_budget=256)
    learner.train(plan, PhaseTimer())
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        learner.train(plan, PhaseTimer())
        synchronize()
    rows = sorted(seen.key_averages(), key=lambda row: -row.self_device_time_total)[:20]
    report(top=[(row.key[:80], row.count, round(row.self_device_time_total)) for row in rows])
    assert rows[0].self_device_time_total > 0


def _sum_of_a_shared_tensor(tensors: Any, sums: Any) -> None:
    sums.put(float(tensors.get(timeout=120).float().sum()))


@pytest.mark.cuda
def test_another_process_reads_a_tensor_of_this_gpu(report: Callable[..., None]) -> None:
    """CUDA IPC, which weights by `ipc` need: two processes, one GPU."""
    context = torch.multiprocessing.get_context("spawn")
    tensors, sums = context.Queue(), context.Queue()
    reader = context.Process(target=_sum_of_a_shared_tensor, args=(tensors, sums))
    reader.start()
    shared = torch.full((1024, 1024), 0.5, dtype=torch.bfloat16, device="cuda")
    began = time.perf_counter()
    tensors.put(shared)
    found = sums.get(timeout=120)
    report(seconds=time.perf_counter() - began)
    reader.join(timeout=60)
    assert found == 1024 * 1024 / 2 and reader.exitcode == 0
