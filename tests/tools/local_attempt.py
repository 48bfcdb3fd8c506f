"""One rl attempt from the command line, without control plane and agent: attempt.json by hand, four processes.

    local_attempt.py DIRECTORY [--model HF_DIRECTORY] [--warm-start] [--set section.field=value ...]

DIRECTORY keeps dataset, models, logs and outboxes. With --warm-start the sft trainer makes the model first and a
second call finds it. Ends with the summaries as JSON; exit status 0 only if trainer and controller completed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.support.tiny_specs import tiny_run_spec

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT / "platform") not in sys.path:
    sys.path[:0] = [str(ROOT / "platform"), str(ROOT)]

import msgspec  # noqa: E402

from oolong.contracts.attempt import AttemptFile, JobFile  # noqa: E402
from oolong.contracts.lifecycle import JobKind  # noqa: E402
from oolong.contracts.run_spec import RunSpec  # noqa: E402
from oolong.contracts.telemetry import AnyLine  # noqa: E402
from tests.support.outboxes import written_lines  # noqa: E402
from tests.support.ports import reserve_port  # noqa: E402


def node_python() -> str:
    """OOLONG_NODE_PYTHON, or that of this checkout's node environment."""
    if "OOLONG_NODE_PYTHON" in os.environ:
        return os.environ["OOLONG_NODE_PYTHON"]
    from local_stack.environments import node_environment
    from local_stack.paths import checkout_paths

    return str(node_environment(checkout_paths(ROOT)).python)


def free_ports(count: int) -> list[int]:
    return [reserve_port() for _ in range(count)]


def read_result(job_directory: Path) -> dict[str, Any] | None:
    """What the job left; None while it works, and where it was killed."""
    file = job_directory / "result.json"
    return json.loads(file.read_bytes()) if file.is_file() else None


@dataclass
class RunningJob:
    name: str
    directory: Path
    process: subprocess.Popen[bytes]

    def lines(self) -> list[AnyLine]:
        return written_lines(self.directory)

    @property
    def result(self) -> dict[str, Any] | None:
        return read_result(self.directory)


@dataclass
class LocalAttempt:
    """Starts the jobs of an attempt as the agent would, and ends what it started."""

    directory: Path
    spec: RunSpec
    model_directory: Path
    dataset_file: Path
    node_python: str
    environment: dict[str, str] = field(default_factory=dict)
    resume_directory: Path | None = None
    trainer_module: str = ""  # instead of trainers.<kind>
    reward_module: str = "gpu_agents.rewards"
    engine_launcher: str = ""  # called as the node Python is, instead of it, to start engines
    device: str = "cpu"
    slots: list[str] = field(default_factory=list)  # of every engine: GPUs
    jobs: dict[str, RunningJob] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        engines = self.spec.rollout.engines
        controller, reward, self.torchrun_port, *ports = free_ports(3 + 2 * engines)
        self.attempt = AttemptFile(
            run_id="run_local", attempt_id="att_local", attempt_number=1, epoch=1,
            spec=self.spec.model_dump(mode="json"),
            directory=str(self.directory), model_directory=str(self.model_directory),
            dataset_file=str(self.dataset_file),
            resume_directory=str(self.resume_directory) if self.resume_directory else None,
            controller_url=f"http://127.0.0.1:{controller}", reward_url=f"http://127.0.0.1:{reward}",
            engine_ports=ports[:engines], session_ports=ports[engines:],
            token="local-token",
            node_python=self.engine_launcher or self.node_python, device=self.device,
        )  # fmt: skip
        (self.directory / "attempt.json").write_bytes(msgspec.json.encode(self.attempt))

    def start(self, name: str, kind: JobKind, *, index: int = 0, incarnation: int = 0) -> RunningJob:
        directory = self.directory / "jobs" / f"{name}-{incarnation}"
        directory.mkdir(parents=True)
        job = JobFile(
            job_id=f"job_{name}", name=name, kind=kind, index=index, incarnation=incarnation, slots=self.slots
        )
        (directory / "job.json").write_bytes(msgspec.json.encode(job))
        files = ["--attempt", str(self.directory / "attempt.json"), "--job", str(directory)]
        command = {
            JobKind.CONTROLLER: [sys.executable, "-m", "gpu_agents.rollout.controller"],
            JobKind.REWARD: [sys.executable, "-m", self.reward_module],
            JobKind.ROLLOUT: [sys.executable, "-m", "gpu_agents.rollout.worker"],
            JobKind.TRAINER: [
                self.node_python, "-m", "torch.distributed.run",
                "--nproc-per-node", str(self.spec.trainer.num_ranks),
                "--master-addr", "127.0.0.1", "--master-port", str(self.torchrun_port),
                "-m", self.trainer_module or f"trainers.{self.spec.kind}",
            ],
        }[kind]  # fmt: skip
        environment = {
            "PATH": os.environ["PATH"], "HOME": str(directory), "LANG": "C.UTF-8",
            "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1",
            "HF_HUB_OFFLINE": "1",
        }  # fmt: skip
        with (directory / "output.log").open("ab") as log:
            process = subprocess.Popen(
                [*command, *files], cwd=directory, env=environment | self.environment,
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        running = self.jobs[name] = RunningJob(name, directory, process)
        return running

    def start_all(self) -> None:
        if self.spec.kind == "rl":
            self.start("controller", JobKind.CONTROLLER)
            self.start("reward", JobKind.REWARD)
            for index in range(self.spec.rollout.engines):
                self.start(f"rollout-{index}", JobKind.ROLLOUT, index=index)
        self.start("trainer", JobKind.TRAINER)

    def wait(self, *, timeout: float) -> dict[str, dict[str, Any] | None]:
        """Until trainer and controller (sft: the trainer) have ended and the workers know it, or a job died; the
        jobs' results."""
        deciding = [self.jobs[name] for name in ("trainer", "controller") if name in self.jobs]
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if all(job.process.poll() is not None for job in deciding):
                break
            if any(job.process.poll() not in (None, 0) for job in self.jobs.values()):
                break
            time.sleep(0.2)
        if all(job.process.poll() == 0 for job in deciding):
            self._wait_for_workers(seconds=60.0)
        self.stop()
        return {name: job.result for name, job in self.jobs.items()}

    def _wait_for_workers(self, *, seconds: float) -> None:
        """They hear of the end within the long poll that they are in; the reward service hears of nothing."""
        deadline = time.monotonic() + seconds
        workers = [job for name, job in self.jobs.items() if name.startswith("rollout")]
        while time.monotonic() < deadline and any(job.process.poll() is None for job in workers):
            time.sleep(0.1)

    def stop(self, *, grace: float = 60.0) -> None:
        """SIGTERM to each job, after the grace SIGKILL to its group."""
        for job in self.jobs.values():
            if job.process.poll() is None:
                job.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + grace
        for job in self.jobs.values():
            try:
                job.process.wait(max(deadline - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                os.killpg(job.process.pid, signal.SIGKILL)
                job.process.wait()

    def summaries(self) -> dict[str, Any]:
        return {
            line.name: line.value
            for job in self.jobs.values()
            for line in job.lines()
            if type(line).__name__ == "Summary"
        }


def letter_sum_file(directory: Path) -> Path:
    """The letter-sum dataset as canonical rows."""
    target = directory / "letter-sum.canonical.jsonl"
    if not target.exists():
        from oolong.samples import demo_dataset

        directory.mkdir(parents=True, exist_ok=True)
        raw = directory / "letter-sum.jsonl"
        demo_dataset.write_dataset(raw)
        with target.with_suffix(".tmp").open("w") as file:
            for number, line in enumerate(raw.read_text().splitlines()):
                row = json.loads(line)
                canonical = {
                    "row": number,
                    "split": row["split"],
                    "messages": [{"role": "user", "content": row["question"]}],
                    "answer": str(row["answer"]),
                    "completion": row.get("solution"),
                }
                file.write(json.dumps(canonical) + "\n")
        target.with_suffix(".tmp").rename(target)
    return target


def apply_settings(document: dict[str, Any], settings: list[str]) -> dict[str, Any]:
    """`section.field=value` settings, values in YAML."""
    for setting in settings:
        path, _, value = setting.partition("=")
        *sections, name = path.split(".")
        place = document
        for section in sections:
            place = place.setdefault(section, {})
        place[name] = yaml.safe_load(value)
    return document


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--model", type=Path, help="Hugging Face directory to start from")
    parser.add_argument("--warm-start", action="store_true", help="make the model by sft first")
    parser.add_argument(
        "--set", nargs="*", default=[], dest="settings", help="section.field=value of the spec"
    )
    parser.add_argument("--timeout", type=float, default=600)
    arguments = parser.parse_args()
    directory: Path = arguments.directory.resolve()
    python = node_python()
    dataset = letter_sum_file(directory)
    model = arguments.model or tiny_model(directory, python)
    if arguments.warm_start:
        model = warm_start(directory, model, dataset, python)
    spec = tiny_run_spec(
        apply_settings(
            {"name": "local", "model": {"base_model": "local"}, "dataset": {"version": "local"}},
            arguments.settings,
        )
    )
    attempt = LocalAttempt(
        directory=directory / f"attempt-{time.strftime('%H%M%S')}",
        spec=spec, model_directory=model, dataset_file=dataset, node_python=python,
    )  # fmt: skip
    print("attempt in", attempt.directory, flush=True)
    began = time.monotonic()
    try:
        attempt.start_all()
        results = attempt.wait(timeout=arguments.timeout)
    finally:
        attempt.stop()
    print(json.dumps({"results": results, "summaries": attempt.summaries()}, indent=1))
    print(f"{time.monotonic() - began:.1f} s", flush=True)
    decided = [results.get(name) for name in ("trainer", "controller")]
    return 0 if all(is_completed(result) for result in decided) else 1


def tiny_model(directory: Path, python: str) -> Path:
    target = directory / "tiny"
    if not target.exists():
        subprocess.run(
            [python, "-m", "trainers.models.tiny", "--out", str(target)],
            check=True, timeout=120, cwd=ROOT,
            env=os.environ | {"PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}", "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
    return target


def warm_start(directory: Path, model: Path, dataset: Path, python: str) -> Path:
    """The model after its supervised training on the task, made once under `directory`."""
    spec = tiny_run_spec(
        {"kind": "sft", "name": "warm start", "model": {"base_model": "local"},
         "dataset": {"version": "local", "split": "sft"}}
    )  # fmt: skip
    return trained_once(directory / "warm-start", spec, model, dataset, python)


def trained_once(directory: Path, spec: RunSpec, model: Path, dataset: Path, python: str) -> Path:
    """The model that this sft attempt makes in `directory`; it is kept, and found by the next call. Raises RuntimeError
    where the training does not come to its end: a model that has learned half of it is another start."""
    if not is_completed(read_result(directory / "jobs" / "trainer-0")):
        shutil.rmtree(directory, ignore_errors=True)
        attempt = LocalAttempt(
            directory=directory, spec=spec, model_directory=model, dataset_file=dataset, node_python=python
        )
        print(f"{spec.name}:", complete(attempt, f"the {spec.name}", timeout=1800), flush=True)
    return sorted(directory.glob("checkpoints/step-*/hf"))[-1]


def complete(attempt: LocalAttempt, what: str, *, timeout: float) -> dict[str, dict[str, Any] | None]:
    """Run it to its end; the jobs' results. Raises RuntimeError unless its trainer completed."""
    try:
        attempt.start_all()
        results = attempt.wait(timeout=timeout)
    finally:
        attempt.stop()
    if not is_completed(results["trainer"]):
        raise RuntimeError(f"{what} did not complete: {results}; see {attempt.directory}")
    return results


def is_completed(result: dict[str, Any] | None) -> bool:
    return result is not None and result["reason"] == "completed"


if __name__ == "__main__":
    sys.exit(main())
