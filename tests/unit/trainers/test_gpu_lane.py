"""What of the GPU's lane can be held without one: whom it skips and why, what it hands on, what MFU comes from."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.gpu import conftest as lane
from tests.gpu.test_trainer import OPTIONS, compiler_or_skip, peak_flops
from trainers.models.flops import forward_flops

HERE = Path(lane.__file__).parent


class Item:
    """As much of a collected test as the lane looks at."""

    def __init__(self, *keywords: str, path: Path = HERE / "test_trainer.py") -> None:
        self.path, self.keywords, self.marks = path, set(keywords), []

    def add_marker(self, mark: Any) -> None:
        self.marks.append(mark)

    @property
    def skipped(self) -> str:
        return next((mark.kwargs["reason"] for mark in self.marks if mark.name == "skip"), "")


def collected(monkeypatch: pytest.MonkeyPatch, *, gpus: int, rehearsal: bool = False) -> list[Item]:
    """A plain test, one for CUDA, one for two GPUs, and one of another folder, as the lane leaves them."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(lane, "REHEARSAL", rehearsal)
    items = [
        Item(),
        Item("cuda"),
        Item("cuda", "two_gpus"),
        Item("cuda", path=HERE.parent / "unit" / "test_a.py"),
    ]
    config: Any = SimpleNamespace(pluginmanager=SimpleNamespace(hasplugin=lambda name: name == "timeout"))
    lane.pytest_collection_modifyitems(config, items)  # type: ignore[arg-type]
    return items


NONE, ONE, TWO = "", "needs an NVIDIA GPU", "needs two NVIDIA GPUs"


@pytest.mark.parametrize(
    ("gpus", "rehearsal", "reasons"),
    [
        (0, False, [ONE, ONE, ONE, NONE]),
        (0, True, [NONE, ONE, ONE, NONE]),
        (1, False, [NONE, NONE, TWO, NONE]),
        (2, False, [NONE, NONE, NONE, NONE]),
    ],
)
def test_who_is_skipped_and_why(
    monkeypatch: pytest.MonkeyPatch, gpus: int, rehearsal: bool, reasons: list[str]
) -> None:
    assert [item.skipped for item in collected(monkeypatch, gpus=gpus, rehearsal=rehearsal)] == reasons


def test_every_skip_of_the_lane_is_one_that_the_suite_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = (HERE.parent / "allowed_skips.txt").read_text().splitlines()
    for item in collected(monkeypatch, gpus=0)[:3]:
        assert any(line and line in item.skipped for line in allowed)


@pytest.mark.parametrize(
    ("named", "first"), [(None, "0"), ("", "0"), ("3,1", "3"), ("GPU-aa-bb, GPU-cc", "GPU-aa-bb")]
)
def test_engine_and_trainer_are_on_the_first_gpu_that_this_process_sees(
    monkeypatch: pytest.MonkeyPatch, named: str | None, first: str
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if named is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    assert lane.first_gpu() == first


def test_an_engine_is_started_with_the_options_and_settings_of_this_machine(tmp_path: Path) -> None:
    settings = {
        "OOLONG_GPU_ENGINE_FLAGS": "--attention-backend triton --sampling-backend pytorch",
        "OOLONG_GPU_ENGINE_ENV": "SGLANG_IS_FLASHINFER_AVAILABLE=false",
        "LD_LIBRARY_PATH": "/driver with space",
        "SECRET": "of this process",
    }
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$LD_LIBRARY_PATH|$SGLANG_IS_FLASHINFER_AVAILABLE|$SECRET|$*"\n')
    python.chmod(0o755)
    lane.write_launcher(tmp_path / "launcher", str(python), settings)
    said = subprocess.run(
        [str(tmp_path / "launcher"), "-m", "sglang.launch_server", "--port", "1"],
        env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    asked = "-m sglang.launch_server --port 1 --attention-backend triton --sampling-backend pytorch"
    assert said.stdout == f"/driver with space|false||{asked}\n"


@pytest.mark.parametrize(
    ("device", "peak"),
    [
        ("NVIDIA H200", 989e12),
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA L40S", 362e12),
        ("NVIDIA L40", 181e12),
        ("NVIDIA L4", 121e12),
        ("NVIDIA H20", None),
    ],
)
def test_the_peak_of_a_device_is_its_own_or_unknown(device: str, peak: float | None) -> None:
    assert peak_flops(device) == peak


def test_flops_are_those_of_the_matrices_and_of_causal_attention() -> None:
    """By hand, of Qwen3-0.6B: 28 layers of 15,728,640 weights, a head of 155,582,464, 0.6 billion in all."""
    cost = forward_flops(lane.QWEN3_0_6B)
    attention, mlp = 1024 * 128 * (16 + 8 + 8 + 16), 3 * 1024 * 3072
    assert cost.per_token == 2 * 28 * (attention + mlp) == 2 * 440_401_920
    assert cost.per_loss_token == 2 * 155_582_464
    assert cost.per_pair == 28 * 16 * (2 * 128 + 2 * 128)
    assert (
        cost.of_sequence(3, 2) == 3 * cost.per_token + (1 + 2 + 3) * cost.per_pair + 2 * cost.per_loss_token
    )


def test_compilation_without_a_compiler_is_a_skip_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr("shutil.which", lambda name: None)
    for option in ("plain", *(name for name in OPTIONS if name != "compiled blocks")):
        compiler_or_skip(option, "cuda")
    with pytest.raises(pytest.skip.Exception, match="needs an NVIDIA GPU and a C compiler"):
        compiler_or_skip("compiled blocks", "cuda")
