"""SGLang's own kernels compile for a Hopper GPU in exactly the environment that an engine gets.

nvcc needs no GPU, so this runs wherever a CUDA toolkit is (in a rehearsal too): it is what shows that PATH, CUDA_HOME
and the compilers reach an engine. Where kernels are loaded, they are not run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpu_agents.rollout.engines.launch import LaunchPlan, environment
from oolong.cuda_host import find_toolkit

COMPILE = """
import time
import torch
from sglang.kernels.jit.utils import override_jit_cuda_arch
from sglang.kernels.ops.activation.activation import activation_module
from sglang.kernels.ops.attention import rope

with override_jit_cuda_arch(9, 0):
    began = time.monotonic()
    assert activation_module(torch.bfloat16) is not None
    assert rope._jit_fused_rope_module(True, 128, torch.bfloat16, torch.bfloat16) is not None
    print(f"compiled in {time.monotonic() - began:.1f} s")
"""
TOOLS = ("sh", "cc", "c++", "gcc", "g++", "cpp", "as", "ld", "ar", "cat", "rm", "mkdir", "uname", "lscpu")


@pytest.fixture
def node_python(tmp_path: Path) -> str:
    """The node's Python with ninja beside it, as the CUDA node environment has it, and on no other PATH."""
    beside = tmp_path / "bin"
    beside.mkdir()
    ninja = shutil.which("ninja", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if ninja is None:
        pytest.skip("needs ninja")
    (beside / "ninja").symlink_to(ninja)
    (beside / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (beside / "python").chmod(0o755)
    return str(beside / "python")


@pytest.fixture
def path_without_ninja(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in TOOLS:
        if found := shutil.which(name):
            (tools / name).symlink_to(found)
    monkeypatch.setenv("PATH", str(tools))


@pytest.mark.skipif(find_toolkit(os.environ) is None, reason="needs a CUDA toolkit")
def test_sglang_kernels_compile_for_sm_90a_in_the_environment_of_an_engine(
    tmp_path: Path,
    node_python: str,
    monkeypatch: pytest.MonkeyPatch,
    path_without_ninja: None,
    report: Callable[..., None],
) -> None:
    monkeypatch.setenv("CUDA_HOME", str(find_toolkit(os.environ) or "/usr/local/cuda"))
    monkeypatch.setenv("HOME", str(tmp_path))  # an empty cache of compiled kernels
    plan = LaunchPlan(
        node_python=node_python, model_directory="m", port=1, api_key="k", device="cuda", dtype="bfloat16",
        max_running_requests=8, max_total_tokens=64, seed=1, directory=tmp_path, visible_devices="0",
    )  # fmt: skip
    done = subprocess.run(
        [plan.node_python, "-c", COMPILE], env=environment(plan), cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert list(tmp_path.rglob("*.so")), "the kernels came from a cache outside of HOME"
    report(kernels=done.stdout.strip().splitlines()[-1])
