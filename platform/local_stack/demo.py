"""The demo: a real asynchronous RL run, driven only through the public API and the `oolong` command.

Uploads the letter-sum dataset, registers a tiny base model, trains a warm start, runs asynchronous RL from it
and writes the measurements to `var/demo-summary.json`. A second demo reuses dataset, model and warm start.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from local_stack.configuration import read_configuration
from local_stack.demo_options import add_options
from local_stack.demo_progress import RunProgress, print_summary
from local_stack.demo_summary import failed_checks, summarize
from local_stack.paths import Paths, checkout_paths
from oolong.client import Client, OolongError
from oolong.client.models import Run
from oolong.samples import demo_dataset

ROOT = Path(__file__).resolve().parents[2]
DATASET = "letter-sum"
MODEL = "letter-sum-tiny"


class PhaseTimings:
    """Measures wall seconds by phase."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.seconds: dict[str, float] = {}
        if "OOLONG_DEMO_BEGAN" in os.environ:  # start time of `manage.py demo`
            self.seconds["setup_and_start"] = round(time.time() - float(os.environ["OOLONG_DEMO_BEGAN"]), 2)

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        yield
        self.seconds[name] = round(time.monotonic() - started, 2)

    def with_total(self) -> dict[str, float]:
        total = self.seconds.get("setup_and_start", 0.0) + time.monotonic() - self.began
        return {**self.seconds, "total": round(total, 2)}


class DemoFailed(Exception):
    """The demo cannot continue. The message says what to do."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="manage.py demo", description=__doc__)
    add_options(parser)
    arguments = parser.parse_args()
    console = Console(highlight=False, soft_wrap=True)
    try:
        return Demo(checkout_paths(ROOT), arguments.steps, arguments.seed, console).run()
    except (DemoFailed, OolongError) as failure:
        console.print("\nThe demo failed:", style="bold red")
        console.print(str(failure), markup=False)
        return 1


class Demo:
    def __init__(self, paths: Paths, steps: int, seed: int, console: Console) -> None:
        stack = read_configuration(paths)
        if stack is None:
            raise DemoFailed("no stack is running. Start one with `python3 manage.py demo`.")
        self.url, self.node_python = stack.url, stack.node_python
        self.paths, self.steps, self.seed, self.console = paths, steps, seed, console
        self.phases = PhaseTimings()
        self.work = paths.var / "demo"
        self.work.mkdir(parents=True, exist_ok=True)
        # The demo has what a user of the API has: a URL and a token.
        inherited = ("HOME", "PATH", "LANG", "TERM", "PYTHONPATH", "OMP_NUM_THREADS")
        self.environment = {name: os.environ[name] for name in inherited if name in os.environ}
        self.environment |= {"OOLONG_URL": self.url, "OOLONG_TOKEN": self.new_token()}
        self.client = Client(url=self.url, token=self.environment["OOLONG_TOKEN"])

    def run(self) -> int:
        with self.phases.measure("dataset"):
            dataset = self.upload_dataset()
        with self.phases.measure("model"):
            model = self.register_model()
        with self.phases.measure("warm_start"):
            checkpoint = self.warm_start(dataset, model)
        with self.phases.measure("rl"):
            run = self.train_rl(dataset, checkpoint)
        summary = summarize(self.client, run, self.phases.with_total())
        path = self.paths.var / "demo-summary.json"
        path.write_text(json.dumps(summary, indent=2) + "\n")
        print_summary(self.console, summary, path, page=f"{self.url}/runs/{run.id}")
        return 1 if failed_checks(summary) else 0

    def upload_dataset(self) -> str:
        file = self.work / f"letter-sum-{_source_digest('platform/oolong/samples/demo_dataset.py')}.jsonl"
        if not file.exists():
            demo_dataset.write_dataset(file)
        reply = self.oolong(
            "dataset", "upload", str(file), "--name", DATASET,
            "--prompt-column", "question", "--answer-column", "answer",
            "--completion-column", "solution", "--split-column", "split",
        )  # fmt: skip
        return str(reply["ref"])

    def register_model(self) -> str:
        directory = self.work / f"tiny-qwen3-{_source_digest('trainers/models/tiny.py')}-seed-{self.seed}"
        if not directory.exists():
            partial = directory.with_suffix(".partial")
            command = [self.node_python, "-m", "trainers.models.tiny", "--out", str(partial)]
            self.run_command([*command, "--seed", str(self.seed)])
            partial.rename(directory)
        return str(self.oolong("model", "upload", str(directory), "--name", MODEL)["id"])

    def warm_start(self, dataset: str, model: str) -> str:
        """Return the checkpoint of an earlier warm start with the same spec, else train one."""
        spec = self.preset("letter-sum-sft", dataset=dataset, model={"base_model": model})
        resolved = self.client.runs.validate(spec).resolved
        for run in self.client.runs.list(kind="sft", status="SUCCEEDED"):
            checkpoint = _stored_checkpoint(self.client, run.id) if run.spec == resolved else None
            if checkpoint:
                self.console.print(f"Reusing the warm start of run {run.id}: {checkpoint}")
                return checkpoint
        run = self.create("warm-start", spec)
        self.watch(run)
        self.require_success(run.id)
        checkpoint = _stored_checkpoint(self.client, run.id)
        if checkpoint is None:
            raise DemoFailed(f"run {run.id} has no stored checkpoint; see `oolong run logs {run.id}`")
        return checkpoint

    def train_rl(self, dataset: str, checkpoint: str) -> Run:
        spec = self.preset("letter-sum-rl", dataset=dataset, model={"checkpoint": checkpoint})
        spec["trainer"]["total_train_steps"] = self.steps
        run = self.create("rl", spec)
        self.watch(run)
        self.require_success(run.id)
        return self.client.runs.get(run.id)

    def preset(self, name: str, *, dataset: str, model: dict[str, str]) -> dict[str, Any]:
        """A preset of the server, completed with dataset, model and seed."""
        (spec,) = [preset.spec for preset in self.client.presets() if preset.name == name]
        spec["dataset"]["version"] = dataset
        return {**spec, "model": model, "seed": self.seed}

    def create(self, name: str, spec: dict[str, Any]) -> Run:
        file = self.work / f"{name}.yaml"
        file.write_text(yaml.safe_dump(spec, sort_keys=False))
        run = self.client.runs.get(self.oolong("run", "create", "-f", str(file))["id"])
        self.console.print(f"  {self.url}/runs/{run.id}")
        return run

    def watch(self, run: Run) -> None:
        with RunProgress(self.client, run.id, self.console) as view:
            view.follow()

    def require_success(self, run_id: str) -> None:
        """Raise DemoFailed with the reason and the last log lines unless `oolong run wait` reports success."""
        if self._output("run", "wait", run_id, "--timeout", "60").returncode == 0:
            return
        run = self.client.runs.get(run_id)
        logs = self._output("run", "logs", run_id, "--tail", "20").stdout
        raise DemoFailed(f"run {run_id} ended {run.status} ({run.reason}): {run.reason_message}\n{logs}")

    def _output(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*_OOLONG, *arguments], env=self.environment, capture_output=True, text=True, check=False
        )

    def oolong(self, *arguments: str) -> dict[str, Any]:
        """Print and run an `oolong` command as a user does; return its JSON output."""
        self.console.print(f"[dim]$ oolong {' '.join(arguments)}[/]")
        done = subprocess.run(
            [*_OOLONG, *arguments, "--json"],
            env=self.environment,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode:
            raise DemoFailed(
                f"`oolong {' '.join(arguments)}` exited with status {done.returncode}; see its message above"
            )
        reply: dict[str, Any] = json.loads(done.stdout)
        return reply

    def new_token(self) -> str:
        """Create an API token for the demo with the administrator's command."""
        command = [sys.executable, "-m", "django", "create_token", "--name", "demo"]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode:
            raise DemoFailed(f"cannot create an API token: {made.stderr[-1000:]}")
        return made.stdout.strip()

    def run_command(self, command: list[str]) -> None:
        environment = {
            **self.environment,
            "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}",
            "OMP_NUM_THREADS": "1",
        }
        environment.pop("OOLONG_TOKEN", None)
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise DemoFailed(
                f"{' '.join(command)} exited with status {done.returncode}:\n{done.stderr[-2000:]}"
            )


_OOLONG = (sys.executable, "-m", "oolong.cli.app")


def _source_digest(source: str) -> str:
    """Digest of a source file: artifacts named after it are created again when it changes."""
    return hashlib.sha256((ROOT / source).read_bytes()).hexdigest()[:8]


def _stored_checkpoint(client: Client, run_id: str) -> str | None:
    stored = [item for item in client.checkpoints.list(run_id=run_id) if item.state == "STORED"]
    return max(stored, key=lambda item: item.step).id if stored else None


if __name__ == "__main__":
    sys.exit(main())
