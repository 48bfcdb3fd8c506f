"""The lane for one machine with an NVIDIA GPU: `make test-gpu`. Elsewhere every test of it is a skip with its reason.

It asks for no package by version: what is installed is used. For a machine whose SGLang needs other options than the
usual ones (no flashinfer, no compiler), they are given by environment:

    OOLONG_GPU_ENGINE_FLAGS="--attention-backend triton --sampling-backend pytorch --grammar-backend none"
    OOLONG_GPU_ENGINE_ENV="SGLANG_IS_FLASHINFER_AVAILABLE=false"

The lane keeps to the first of the GPUs that CUDA_VISIBLE_DEVICES names. OOLONG_GPU_REHEARSE=1 runs what does not need
CUDA on the processor, with a tiny shape: to try the tests themselves.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
HAS_TORCH = importlib.util.find_spec("torch") is not None
REHEARSAL = os.environ.get("OOLONG_GPU_REHEARSE") == "1"
API_KEY = "a-key-of-the-gpu-tests"
ENGINE_SHARE, BOOT_SECONDS = 0.35, 600

QWEN3_0_6B: dict[str, Any] = {
    "vocab_size": 151_936, "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16,
    "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 3072, "max_position_embeddings": 40_960,
    "initializer_range": 0.02, "dtype": "bfloat16",
}  # fmt: skip
# What jobs and engines need of the environment beside their own: the driver, the toolkit, the compilers' caches.
OF_THE_MACHINE = ("LD_LIBRARY_PATH", "CUDA_HOME", "CC", "CXX", "HOME")
collect_ignore_glob = [] if HAS_TORCH else ["test_*.py"]


def pytest_report_header() -> str | None:
    return (
        None
        if HAS_TORCH
        else "tests/gpu is left out: this Python has no torch (`make test-gpu` takes one with it)"
    )


def first_gpu() -> str:
    """As CUDA_VISIBLE_DEVICES wants it: this process calls it device 0, whichever of the machine's it is."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip() or "0"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    for item in items:
        if HERE not in item.path.parents:
            continue
        item.add_marker(pytest.mark.gpu)
        if config.pluginmanager.hasplugin("timeout"):
            item.add_marker(pytest.mark.timeout(2400))  # kernels are compiled at first use
        if "cuda" in item.keywords or not REHEARSAL:
            if gpus < 1:
                item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU"))
            elif "two_gpus" in item.keywords and gpus < 2:
                item.add_marker(pytest.mark.skip(reason="needs two NVIDIA GPUs"))


@dataclass(frozen=True)
class Machine:
    device: str  # cuda, or cpu in a rehearsal
    model: Path  # random weights: Qwen3-0.6B's shape, or tiny in a rehearsal
    dtype: str  # that engine and trainer compute in

    @property
    def mean_tolerance(self) -> float:
        """Of |logprob of the engine - the trainer's|, nats. With these weights bfloat16 is 0.012 away from exact
        arithmetic, so that two ways of rounding differ by 0.017."""
        return 4e-2 if self.dtype == "bfloat16" else 1e-5


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    from trainers.models.tiny import make_tiny_model

    # In both the vocabulary continues behind the tokenizer's 261 ids, as that of real models does.
    changes = {"vocab_size": 512} if REHEARSAL else QWEN3_0_6B
    model = make_tiny_model(tmp_path_factory.mktemp("gpu") / "v00000001", seed=1, **changes)
    return Machine("cpu", model, "float32") if REHEARSAL else Machine("cuda", model, "bfloat16")


@pytest.fixture(scope="session")
def context(machine: Machine) -> Iterator[Any]:
    from trainers.distributed.context import init_distributed, shutdown_distributed

    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1",
                            "MASTER_PORT": "0"}.items():  # fmt: skip
            patch.setenv(name, value)
        joined = init_distributed(machine.device)
    yield joined
    shutdown_distributed()


@pytest.fixture(scope="session")
def engine_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Called as the node Python is, to start engines: adds the options of this machine and its environment."""
    launcher = tmp_path_factory.mktemp("launcher") / "engine-python"
    write_launcher(launcher, sys.executable, os.environ)
    return str(launcher)


def write_launcher(file: Path, python: str, environ: Mapping[str, str]) -> None:
    kept = [f"{name}={environ[name]}" for name in OF_THE_MACHINE if name in environ]
    settings = [*kept, *shlex.split(environ.get("OOLONG_GPU_ENGINE_ENV", ""))]
    flags = shlex.split(environ.get("OOLONG_GPU_ENGINE_FLAGS", ""))
    words = ["exec", "env", *settings, python]
    file.write_text(f'#!/bin/sh\n{shlex.join(words)} "$@" {shlex.join(flags)}\n')
    file.chmod(0o755)


@dataclass(frozen=True)
class Engine:
    port: int
    log: Path

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            data=json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {API_KEY}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=300) as reply:
                return json.loads(reply.read() or b"{}")
        except urllib.error.HTTPError as error:
            error.add_note(f"{path} said: {error.read().decode(errors='replace')[:2000]}")
            raise


@pytest.fixture(scope="module")  # its memory is the trainer's again when the tests of engines are over
def engine(
    machine: Machine, engine_python: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    """One SGLang beside the trainer on the first GPU."""
    from gpu_agents.rollout.engines.launch import LaunchPlan, command, environment
    from tests.tools.local_attempt import free_ports

    directory = tmp_path_factory.mktemp("engine")
    plan = LaunchPlan(
        node_python=engine_python, model_directory=str(machine.model), port=free_ports(1)[0], api_key=API_KEY,
        device=machine.device, dtype=machine.dtype, max_running_requests=32, max_total_tokens=32_768, seed=1,
        directory=directory, visible_devices=first_gpu(), memory_fraction=ENGINE_SHARE,
    )  # fmt: skip
    (directory / "engine.yaml").write_text(json.dumps({"api-key": API_KEY}))
    log = directory / "engine.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command(plan),
            env=environment(plan),
            cwd=directory,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        _wait(lambda: _serves(plan.port), process, log)
        yield Engine(plan.port, log)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _serves(port: int) -> bool:
    headers = {"Authorization": f"Bearer {API_KEY}"}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(f"http://127.0.0.1:{port}/model_info", headers=headers), timeout=5
        ):
            return True
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return False


def _wait(ready: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + BOOT_SECONDS
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            pytest.fail(f"the engine did not boot:\n{log.read_text()[-4000:]}")
        time.sleep(0.5)


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Print figures with their names, keep them in the lane's report file, and append a line of JSON to the file that
    OOLONG_GPU_RESULTS names, at once: a run that is cut short keeps what it has seen."""

    def tell(**figures: object) -> None:
        for name, value in figures.items():
            request.node.user_properties.append((name, value))
        print(f"\n{request.node.name}: {json.dumps(figures, default=str)}")
        if results := os.environ.get("OOLONG_GPU_RESULTS"):
            with open(results, "a") as file:
                file.write(json.dumps({"test": request.node.name, **figures}, default=str) + "\n")

    return tell
