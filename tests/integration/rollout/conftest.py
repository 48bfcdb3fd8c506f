"""Real SGLang engines on the CPU, booted once for all tests of this folder, and versions of a tiny model to load."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from gpu_agents.rollout.engines.launch import BOOT_SECONDS, LaunchPlan, command, environment
from oolong.contracts.rollout import PublishedWeights
from oolong.contracts.run_spec import LoraSection
from tests.tools.local_attempt import free_ports

ROOT = Path(__file__).resolve().parents[3]
VERSIONS = 24
API_KEY = "a-key-of-the-tests"
LORA = LoraSection(
    rank=4, targets=["q_proj", "v_proj", "o_proj", "up_proj", "down_proj"]
)  # two fused layers without


@dataclass(frozen=True)
class TinyModel:
    """A base model and versions of it, each visibly different from the one before."""

    base: Path
    weights: Path
    node_python: Path

    def version(self, number: int) -> Path:
        return self.weights / f"v{number:08d}"

    def adapter(self, number: int) -> Path:
        return self.weights / "adapters" / f"v{number:08d}"

    def publish(self, number: int, target: Path, *, adapter: bool = False) -> PublishedWeights:
        """A copy of a version that a controller may delete."""
        directory = target / f"v{number:08d}"
        shutil.copytree(self.adapter(number) if adapter else self.version(number), directory)
        digest = hashlib.sha256((directory / "manifest.json").read_bytes()).hexdigest()
        return PublishedWeights(version=number, directory=str(directory), manifest_sha256=digest)


@dataclass(frozen=True)
class RealEngine:
    port: int
    api_key: str
    directory: Path
    pid: int


def run_with_node_python(node_python: Path, script: str, *arguments: str) -> str:
    """A script of this folder, with torch and our own packages. Returns what it prints on its last line."""
    done = subprocess.run(
        [str(node_python), str(Path(__file__).with_name(script)), *arguments],
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": f"{ROOT / 'platform'}{os.pathsep}{ROOT}",
        },
        capture_output=True,
        text=True,
        timeout=BOOT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip().splitlines()[-1] if done.stdout.strip() else ""


@pytest.fixture(scope="session")
def tiny(node_python: Path, tmp_path_factory: pytest.TempPathFactory) -> TinyModel:
    directory = tmp_path_factory.mktemp("tiny")
    model = TinyModel(directory / "base", directory / "weights", node_python)
    numbers = [str(number) for number in range(VERSIONS)]
    run_with_node_python(
        node_python,
        "make_models.py",
        str(model.base),
        "--weights",
        str(model.weights),
        "--versions",
        *numbers,
        "--lora",
        LORA.model_dump_json(),
    )
    return model


@pytest.fixture(scope="session")
def new_engine(
    tiny: TinyModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., RealEngine]]:
    started: list[subprocess.Popen[bytes]] = []

    def start(model: Path = tiny.base) -> RealEngine:
        directory = tmp_path_factory.mktemp("engine")
        plan = LaunchPlan(
            node_python=str(tiny.node_python),
            model_directory=str(model),
            port=free_ports(1)[0],
            api_key=API_KEY,
            device="cpu",
            dtype="float32",
            max_running_requests=32,
            max_total_tokens=16384,
            seed=1,
            directory=directory,
            lora=LORA,
        )
        (directory / "engine.yaml").write_text(f'{{"api-key": "{API_KEY}"}}')
        with (directory / "engine.log").open("wb") as log:
            process = subprocess.Popen(
                command(plan),
                env=environment(plan),
                cwd=directory,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        started.append(process)
        _wait_until_serving(plan.port, process, directory / "engine.log")
        return RealEngine(plan.port, API_KEY, directory, process.pid)

    yield start
    for process in started:
        tree = [*psutil.Process(process.pid).children(recursive=True)] if process.poll() is None else []
        process.send_signal(signal.SIGKILL)
        for child in tree:
            if child.is_running():
                child.kill()
        process.wait()


@pytest.fixture(scope="session")
def real_engine(new_engine: Callable[..., RealEngine]) -> RealEngine:
    return new_engine()


@pytest.fixture(scope="session")
def second_engine(new_engine: Callable[..., RealEngine]) -> RealEngine:
    return new_engine()


def _wait_until_serving(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/model_info", headers={"Authorization": f"Bearer {API_KEY}"}
    )
    deadline = time.monotonic() + BOOT_SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()[-3000:]
        try:
            with urllib.request.urlopen(request, timeout=5):
                return
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            time.sleep(0.25)
    raise AssertionError(f"the engine did not boot: {log.read_text()[-3000:]}")
