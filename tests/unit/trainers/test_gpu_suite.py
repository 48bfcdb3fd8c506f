"""The GPU test suite, checked without a GPU: skips and their reasons, engine options, peak FLOPs."""

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
def test_gpu_tests_are_skipped_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, gpus: int, rehearsal: bool, reasons: list[str]
) -> None:
    assert [item.skipped for item in collected(monkeypatch, gpus=gpus, rehearsal=rehearsal)] == reasons


def test_skip_reasons_of_gpu_tests_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = (HERE.parent / "allowed_skips.txt").read_text().splitlines()
    for item in collected(monkeypatch, gpus=0)[:3]:
        assert any(line and line in item.skipped for line in allowed)


@pytest.mark.parametrize(
    ("named", "first"), [(None, "0"), ("", "0"), ("3,1", "3"), ("GPU-aa-bb, GPU-cc", "GPU-aa-bb")]
)
def test_engine_and_trainer_use_the_first_visible_gpu(
    monkeypatch: pytest.MonkeyPatch, named: str | None, first: str
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if named is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    assert lane.first_gpu() == first


def test_engine_starts_with_the_options_and_environment_of_this_machine(tmp_path: Path) -> None:
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
def test_peak_flops_are_known_per_device_or_none(device: str, peak: float | None) -> None:
    assert peak_flops(device) == peak


def test_compile_test_is_skipped_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr("shutil.which", lambda name: None)
    for option in ("plain", *(name for name in OPTIONS if name != "compiled blocks")):
        compiler_or_skip(option, "cuda")
    with pytest.raises(pytest.skip.Exception, match="needs an NVIDIA GPU and a C compiler"):
        compiler_or_skip("compiled blocks", "cuda")
