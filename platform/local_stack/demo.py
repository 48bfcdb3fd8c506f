"""The demo: a real asynchronous RL run, driven through the public API and the `oolong` command only.

Uploads the letter-sum dataset, registers a tiny base model, makes a warm start, runs asynchronous RL from it,
and writes what was measured to `var/demo-summary.json`. A second demo reuses dataset, model and warm start.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from oolong.client import Client, Run
from rich.console import Console

from local_stack import letter_sum
from local_stack.demo_summary import shortcomings, summarise
from local_stack.demo_view import RunView, closing_words

ROOT = Path(__file__).resolve().parents[2]
DATASET = "letter-sum"
MODEL = "tiny-qwen3"
SEED = 1

WARM_START: dict[str, Any] = {
    "kind": "sft",
    "name": "letter-sum warm start",
    "dataset": {"version": "", "split": "sft"},
    "model": {"base_model": ""},
    "seed": SEED,
}

RL: dict[str, Any] = {
    "kind": "rl",
    "name": "letter-sum asynchronous RL",
    "dataset": {"version": "", "split": "train"},
    "model": {"checkpoint": ""},
    "reward": {"name": "exact_match", "options": {"extract": "boxed_at_end"}},
    "rollout": {"engines": 1, "group_size": 8, "max_new_tokens": 112, "interruptible": True},
    "staleness": {"max": 4},
    "trainer": {"total_train_steps": 60, "groups_per_step": 32, "minibatches": 4, "learning_rate": 2e-4},
    "algorithm": {"objective": "decoupled_ppo", "advantage": {"mean": "group", "std": "group"}},
    "evaluation": {"split": "eval", "prompts": 256, "at_start": True, "at_end": True, "samples": 1},
    "checkpoint": {"every_steps": 20},
    "seed": SEED,
}


@dataclass
class Phases:
    """Wall seconds by phase, as they were."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        yield
        self.seconds[name] = round(time.monotonic() - started, 2)


class DemoFailed(Exception):
    """The demo cannot go on; the message says what to do."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="local_stack.demo", description=__doc__)
    parser.add_argument("--url", required=True, help="the control plane, http://127.0.0.1:PORT")
    parser.add_argument("--var", type=Path, default=ROOT / "var", help="directory of runtime files")
    parser.add_argument("--node-python", required=True, help="python of the node environment")
    parser.add_argument("--steps", type=int, default=60, help="train steps of the RL run (at least 20)")
    arguments = parser.parse_args()
    if arguments.steps < 20:
        parser.error("--steps must be at least 20: the verdict compares the first and the last ten steps")
    console = Console(highlight=False, soft_wrap=True)
    try:
        return Demo(arguments.url, arguments.var, arguments.node_python, arguments.steps, console).play()
    except DemoFailed as failure:
        console.print(f"\n[bold red]The demo stopped:[/] {failure}", markup=True)
        return 1


class Demo:
    def __init__(self, url: str, var: Path, node_python: str, steps: int, console: Console) -> None:
        self.url, self.var, self.node_python, self.steps = url, var, node_python, steps
        self.console = console
        self.phases = Phases(_earlier_phases(var))
        self.work = var / "demo"
        self.work.mkdir(parents=True, exist_ok=True)
        self.environment = {**os.environ, "OOLONG_URL": url}
        self.client = Client(url=url, token=os.environ["OOLONG_TOKEN"])

    def play(self) -> int:
        with self.phases.measure("dataset"):
            dataset = self.upload_dataset()
        with self.phases.measure("model"):
            model = self.register_model()
        with self.phases.measure("warm_start"):
            checkpoint = self.warm_start(dataset, model)
        with self.phases.measure("rl"):
            run = self.reinforce(dataset, checkpoint)
        summary = summarise(self.client, run, self.phases.seconds)
        path = self.var / "demo-summary.json"
        path.write_text(json.dumps(summary, indent=2) + "\n")
        closing_words(self.console, summary, path, page=f"{self.url}/runs/{run.id}")
        return 1 if shortcomings(summary) else 0

    # --- steps ------------------------------------------------------------------------------------------

    def upload_dataset(self) -> str:
        file = self.work / "letter-sum.jsonl"
        if not file.exists():
            letter_sum.write_dataset(file, seed=SEED)
        reply = self.oolong(
            "dataset", "upload", str(file), "--name", DATASET,
            "--prompt-column", "question", "--answer-column", "answer",
            "--completion-column", "solution", "--split-column", "split",
        )  # fmt: skip
        return str(reply["ref"])

    def register_model(self) -> str:
        archive = self.work / "tiny-qwen3.tar"
        if not archive.exists():
            directory = self.work / "tiny-qwen3"
            command = [self.node_python, "-m", "trainers.models.tiny", "--out", str(directory)]
            self.run_quietly([*command, "--seed", str(SEED)])
            temporary = archive.with_suffix(".tmp")
            with tarfile.open(temporary, "w") as tar:
                tar.add(directory, arcname=".")
            temporary.rename(archive)
        return str(self.oolong("model", "upload", str(archive), "--name", MODEL)["id"])

    def warm_start(self, dataset: str, model: str) -> str:
        spec = {**WARM_START, "dataset": {**WARM_START["dataset"], "version": dataset}}
        spec = {**spec, "model": {"base_model": model}}
        for run in self.client.runs.list(kind="sft", status="SUCCEEDED"):
            if _same_spec(self.client.runs.get(run.id), self.client.runs.validate(spec).resolved):
                checkpoint = _stored_checkpoint(self.client, run.id)
                if checkpoint:
                    self.console.print(f"Warm start [bold]{run.id}[/] is reused: {checkpoint}")
                    return checkpoint
        run = self.create("warm-start", spec)
        self.watch(run)
        self.finished(run.id)
        checkpoint = _stored_checkpoint(self.client, run.id)
        if checkpoint is None:
            raise DemoFailed(
                f"run {run.id} succeeded without a stored checkpoint; see `oolong run logs {run.id}`"
            )
        return checkpoint

    def reinforce(self, dataset: str, checkpoint: str) -> Run:
        spec = {**RL, "dataset": {**RL["dataset"], "version": dataset}, "model": {"checkpoint": checkpoint}}
        spec["trainer"] = {**RL["trainer"], "total_train_steps": self.steps}
        run = self.create("rl", spec)
        self.watch(run)
        self.finished(run.id)
        return self.client.runs.get(run.id)

    # --- doors ------------------------------------------------------------------------------------------

    def create(self, name: str, spec: dict[str, Any]) -> Run:
        file = self.work / f"{name}.yaml"
        file.write_text(yaml.safe_dump(spec, sort_keys=False))
        run = self.client.runs.get(self.oolong("run", "create", "-f", str(file))["id"])
        self.console.print(f"  {self.url}/runs/{run.id}")
        return run

    def watch(self, run: Run) -> None:
        with RunView(self.client, run.id, self.console) as view:
            view.follow()

    def finished(self, run_id: str) -> None:
        """`oolong run wait` gives the verdict; a run that failed shows its cause and its last log lines."""
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
        """Run the `oolong` command as a user would, shown, with its answer as JSON."""
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
                f"`oolong {' '.join(arguments)}` ended with {done.returncode}; its message is above"
            )
        reply: dict[str, Any] = json.loads(done.stdout)
        return reply

    def run_quietly(self, command: list[str]) -> None:
        environment = {
            **self.environment,
            "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}",
            "OMP_NUM_THREADS": "1",
        }
        environment.pop("OOLONG_TOKEN", None)
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise DemoFailed(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")


_OOLONG = (sys.executable, "-m", "oolong.cli.app")


def _stored_checkpoint(client: Client, run_id: str) -> str | None:
    stored = [item for item in client.checkpoints.list(run=run_id) if item.state == "STORED"]
    return max(stored, key=lambda item: item.step).id if stored else None


def _same_spec(run: Run, resolved: dict[str, Any] | None) -> bool:
    return bool(resolved) and run.spec == resolved


def _earlier_phases(var: Path) -> dict[str, float]:
    """Seconds that set-up and start took, left by `manage.py` for the summary."""
    path = var / "phases.json"
    return json.loads(path.read_text()) if path.exists() else {}


if __name__ == "__main__":
    sys.exit(main())
