"""SGLang and the trainer on one GPU: log-probabilities agree, also after each kind of weight update."""

from __future__ import annotations

import shutil
import urllib.error
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.gpu.conftest import Engine, Machine
from trainers.models.packed_row import pack_row
from trainers.models.policy import load_policy

PROMPTS = ([258, 97, 53, 32, 98, 55, 259], [258, *range(60, 200), 259])
NEW_TOKENS = 64


def differences(engine: Engine, machine: Machine, weights: Path) -> torch.Tensor:
    """|logprob of the engine - the trainer's| of freshly sampled tokens."""
    dtype = getattr(torch, machine.dtype)
    policy = load_policy(weights, dtype=dtype).to(machine.device)
    found = []
    for prompt in PROMPTS:
        reply = engine.post(
            "/generate",
            {
                "input_ids": list(prompt), "return_logprob": True,
                "sampling_params": {"max_new_tokens": NEW_TOKENS, "temperature": 0.7, "ignore_eos": True},
            },
        )  # fmt: skip
        told = reply["meta_info"]["output_token_logprobs"]
        tokens = [int(one[1]) for one in told]
        sequence = [*prompt, *tokens]
        row = pack_row([sequence], [range(len(prompt), len(sequence))]).to(torch.device(machine.device))
        with torch.no_grad():
            own, _ = policy(row, temperature=0.7)
        found.append((own.cpu() - torch.tensor([float(one[0]) for one in told])).abs())
    return torch.cat(found)


def assert_agrees(engine: Engine, machine: Machine, weights: Path, report: Callable[..., None]) -> None:
    found = differences(engine, machine, weights)
    report(tokens=found.numel(), mean_difference=float(found.mean()), largest_difference=float(found.max()))
    assert float(found.mean()) < machine.mean_tolerance


def changed(model: Path, directory: Path, *, seed: int) -> Path:
    """Other weights of the same model, in the type that engine and trainer compute in."""
    shutil.copytree(model, directory)
    rng = torch.Generator().manual_seed(seed)
    file = directory / "model.safetensors"
    tensors = load_file(file)
    for tensor in tensors.values():
        if tensor.ndim == 2:
            noise = torch.randn(tensor.shape, generator=rng)
            tensor += (0.3 * tensor.float().std() * noise).to(tensor.dtype)
    file.unlink()
    save_file(tensors, file, metadata={"format": "pt"})
    return directory


def test_the_engine_samples_what_the_trainer_computes(
    engine: Engine, machine: Machine, report: Callable[..., None]
) -> None:
    load(engine, machine.model, version=1)
    assert_agrees(engine, machine, machine.model, report)


def test_weights_reach_the_engine_by_disk(
    engine: Engine, machine: Machine, tmp_path: Path, report: Callable[..., None]
) -> None:
    other = changed(machine.model, tmp_path / "v2", seed=2)
    load(engine, machine.model, version=1)
    assert float(differences(engine, machine, other).mean()) > 5 * machine.mean_tolerance, (
        "the check is blind"
    )
    load(engine, other, version=2)
    assert_agrees(engine, machine, other, report)


def load(engine: Engine, weights: Path, *, version: int) -> None:
    engine.post("/pause_generation", {"mode": "retract"})
    reply = engine.post(
        "/update_weights_from_disk",
        {"model_path": str(weights), "weight_version": str(version), "flush_cache": True},
    )
    engine.post("/continue_generation", {})
    assert reply["success"], reply


def test_weights_reach_the_engine_from_the_trainers_memory(
    engine: Engine, machine: Machine, tmp_path: Path, report: Callable[..., None]
) -> None:
    """By CUDA IPC: the engine maps the trainer's memory, nothing is copied through the host. A rehearsal takes the same
    calls with shared memory of the host."""
    from sglang.srt.utils import MultiprocessingSerializer

    if (
        machine.device == "cpu"
    ):  # by name: a file descriptor would need the engine to be a child of this process
        torch.multiprocessing.set_sharing_strategy("file_system")
    other = changed(machine.model, tmp_path / "v3", seed=3)
    named = load_file(other / "model.safetensors")
    tensors = [(name, tensor.to(machine.device)) for name, tensor in named.items()]
    handles = MultiprocessingSerializer.serialize(tensors, output_str=True)
    engine.post("/pause_generation", {"mode": "retract"})
    bracketed = post_if_known(engine, "/begin_weight_update", {"selector": "all"})
    reply = engine.post(
        "/update_weights_from_tensor",
        {"serialized_named_tensors": [handles], "weight_version": "3", "flush_cache": True},
    )
    if bracketed:
        engine.post("/end_weight_update", {})
    engine.post("/continue_generation", {})
    assert reply["success"], reply
    assert_agrees(engine, machine, other, report)
    del tensors  # not before the engine has taken them


@pytest.mark.cuda
@pytest.mark.two_gpus
def test_weights_reach_the_engine_by_nccl(
    engine: Engine, machine: Machine, tmp_path: Path, report: Callable[..., None]
) -> None:
    """NCCL refuses two ranks on one GPU: the trainer's side is the second GPU."""
    from concurrent.futures import ThreadPoolExecutor

    from sglang.srt.utils import init_custom_process_group

    from tests.tools.local_attempt import free_ports

    other = changed(machine.model, tmp_path / "v4", seed=4)
    tensors = {name: tensor.to("cuda:1") for name, tensor in load_file(other / "model.safetensors").items()}
    [port] = free_ports(1)
    place = {
        "master_address": "127.0.0.1",
        "master_port": port,
        "rank_offset": 1,
        "world_size": 2,
        "group_name": "t",
    }
    with ThreadPoolExecutor() as beside:
        joined = beside.submit(engine.post, "/init_weights_update_group", {**place, "backend": "nccl"})
        group = init_custom_process_group(
            backend="nccl", init_method=f"tcp://127.0.0.1:{port}", world_size=2, rank=0, group_name="t"
        )
        assert joined.result()["success"]
        engine.post("/pause_generation", {"mode": "retract"})
        bracketed = post_if_known(engine, "/begin_weight_update", {"selector": "all"})
        described = {
            "names": list(tensors), "shapes": [list(one.shape) for one in tensors.values()],
            "dtypes": [str(one.dtype).removeprefix("torch.") for one in tensors.values()],
        }  # fmt: skip
        received = beside.submit(
            engine.post,
            "/update_weights_from_distributed",
            {**described, "group_name": "t", "weight_version": "4", "flush_cache": True},
        )
        for tensor in tensors.values():
            torch.distributed.broadcast(tensor, src=0, group=group)
        assert received.result()["success"]
        if bracketed:
            engine.post("/end_weight_update", {})
        engine.post("/continue_generation", {})
    assert_agrees(engine, machine, other, report)


def post_if_known(engine: Engine, path: str, body: dict[str, Any]) -> bool:
    """Whether this server has the call: SGLang brackets such updates from 0.5.21 on."""
    try:
        engine.post(path, body)
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
        return False
    return True
