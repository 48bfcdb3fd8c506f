"""Real trainer processes with a fake controller. Run with the Python of the node environment."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from oolong.contracts.attempt import AttemptFile, JobFile, JobResult
from oolong.contracts.lifecycle import JobKind
from oolong.contracts.telemetry import AnyLine
from tests.support.outboxes import written_lines
from tests.support.tiny_specs import tiny_spec

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
collect_ignore_glob = [] if importlib.util.find_spec("torch") else ["test_*.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.torch)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from trainers.models.tiny import make_tiny_model

    return make_tiny_model(tmp_path_factory.mktemp("tiny"), seed=3)


@dataclass
class TrainerRun:
    """One trainer process (or torchrun with several) over one attempt directory."""

    directory: Path
    job_directory: Path
    process: subprocess.Popen[bytes]

    def finish(self) -> int:
        """Its exit status; how long it may take is the test's own bound, in pyproject.toml."""
        return self.process.wait()

    @property
    def result(self) -> JobResult | None:
        file = self.job_directory / "result.json"
        return msgspec.json.decode(file.read_bytes(), type=JobResult) if file.exists() else None

    @property
    def log(self) -> str:
        return (self.job_directory / "output.log").read_text()

    def lines(self) -> list[AnyLine]:
        return written_lines(self.job_directory)

    def points(self) -> dict[int, dict[str, float]]:
        """x -> metrics of the step."""
        found: dict[int, dict[str, float]] = {}
        for line in self.lines():
            if type(line).__name__ == "Points":
                found.setdefault(line.x, {}).update(line.values)
        return found


@pytest.fixture(scope="module")
def start_trainer(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., TrainerRun]:
    """Start `trainers.<kind>` as the agent would; one rank without torchrun, which saves an import of torch."""
    started: list[TrainerRun] = []

    def start(spec: dict[str, Any], *, num_ranks: int = 1, **attempt: Any) -> TrainerRun:
        document = tiny_spec({
            "name": "test", "model": {"base_model": "tiny"}, "dataset": {"version": "d@1"}, "kind": "rl",
            **spec, "trainer": {"num_ranks": num_ranks, **spec.get("trainer", {})},
        })  # fmt: skip
        directory = tmp_path_factory.mktemp("attempt")
        job_directory = directory / "jobs" / "trainer-0"
        job_directory.mkdir(parents=True)
        attempt_file = AttemptFile(**{
            "run_id": "run_1", "attempt_id": "att_1", "attempt_number": 1, "epoch": 1, "spec": document,
            "directory": str(directory), "model_directory": str(tiny_model), "dataset_file": "",
            "token": "secret", **attempt,
        })  # fmt: skip
        (directory / "attempt.json").write_bytes(msgspec.json.encode(attempt_file))
        job = JobFile(job_id="job_1", name="trainer", kind=JobKind.TRAINER)
        (job_directory / "job.json").write_bytes(msgspec.json.encode(job))
        module = f"trainers.{document['kind']}"
        launched = ["trainers.distributed.launch", str(num_ranks), module] if num_ranks > 1 else [module]
        environment = {
            **os.environ, "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1",
            "GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo",
            "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0",
        }  # fmt: skip
        with (job_directory / "output.log").open("wb") as log:
            process = subprocess.Popen(
                [
                    sys.executable, "-m", *launched,
                    "--attempt", str(directory / "attempt.json"), "--job", str(job_directory),
                ],
                cwd=job_directory, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        run = TrainerRun(directory, job_directory, process)
        started.append(run)
        return run

    yield start
    for run in started:
        kill_with_ranks(run.process)


def kill_with_ranks(launcher: subprocess.Popen[bytes]) -> None:
    """Each rank has a process group of its own: while the launcher lives, its ranks are found below it."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for rank in psutil.Process(launcher.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                rank.kill()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(launcher.pid, signal.SIGKILL)
    launcher.wait()
