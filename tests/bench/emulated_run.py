"""One run of the whole runtime on emulated devices, measured over a window of train steps.

Controller, reward service, rollout workers and trainer are the processes of every run, started as the agent starts
them; only what stands in the place of a GPU is emulated (`emulated_engine`, `emulated_trainer`). The window begins
after the warm-up steps, for the groups that finish first are short, and ends before the run does, for the gate
starts no groups that no step can use.
"""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import psutil

from oolong.contracts.run_spec import RunSpec
from oolong.contracts.telemetry import Points, Summary
from tests.bench.device_model import DeviceModel, Emulation, Lengths
from tests.support.tiny_specs import tiny_run_spec
from tests.tools.local_attempt import ROOT, LocalAttempt

GROUP_SIZE = 16  # the paper's, table 3
GROUPS_PER_STEP = 16  # 64 trajectories a device and step on 4 devices: the paper's 8,192 on 128
MOST_RUNNING = 256  # requests that an engine decodes at once: what 80 GB hold at the mean length
PHASES = ("wait_batch", "prepare", "proximal", "train", "publish", "checkpoint")
PATIENCE_SECONDS = 900.0


@dataclass(frozen=True, kw_only=True)
class EmulatedSetting:
    """`engines` devices generate and `trainer_devices` train; colocated, all of them do both in turn (η = 0)."""

    max_staleness: int
    engines: int = 3
    trainer_devices: int = 1
    colocated: bool = False
    interruptible: bool = True
    sigma: float = 0.75
    step_seconds: float = 16.5e-3
    seed: int = 1
    warm_steps: int = 5
    steps: int = 8
    groups_per_step: int = GROUPS_PER_STEP
    group_size: int = GROUP_SIZE
    real_seconds_per_second: float = 1 / 32

    @property
    def name(self) -> str:
        split = f"colocated{self.engines}" if self.colocated else f"{self.engines}to{self.trainer_devices}"
        mode = "" if self.interruptible else "-finishes-first"
        return (
            f"eta{self.max_staleness}-{split}{mode}-sigma{self.sigma:g}-t{self.step_seconds * 1e3:g}ms-"
            f"seed{self.seed}"
        )

    @property
    def devices(self) -> int:
        return self.engines if self.colocated else self.engines + self.trainer_devices

    @property
    def emulation(self) -> Emulation:
        return Emulation(
            device=DeviceModel(
                step_seconds=self.step_seconds, real_seconds_per_second=self.real_seconds_per_second
            ),
            lengths=Lengths(sigma=self.sigma, seed=self.seed),
            trainer_devices=self.trainer_devices,
            colocated=self.colocated,
        )

    def spec(self) -> RunSpec:
        places = (self.max_staleness + 1) * self.groups_per_step
        # Spread evenly: the first engine that asks must not take what the others need.
        evenly = math.ceil(places / self.engines) * self.group_size
        device = self.emulation.device
        return tiny_run_spec(
            {
                "name": self.name, "model": {"base_model": "tiny"}, "dataset": {"version": "emulated"},
                "seed": self.seed,
                "rollout": {
                    "engines": self.engines, "group_size": self.group_size, "max_concurrent_groups": places,
                    "max_new_tokens": self.emulation.lengths.limit // device.tokens_per_emitted,
                    "engine_max_running_requests": min(MOST_RUNNING, evenly), "interruptible": self.interruptible,
                    # The device model has no bound on its KV cache: the worker fills it to its places at once.
                    "engine_max_total_tokens": 100_000_000,
                },
                "staleness": {"max": self.max_staleness},
                "trainer": {
                    "groups_per_step": self.groups_per_step, "minibatches": 4, "learning_rate": 1e-6,
                    "total_train_steps": self.warm_steps + self.steps + self.max_staleness + 3,
                },
                # The emulated engine knows no weights: its probes cannot agree with the trainer's.
                "weight_sync": {"probe_tolerance": 1e9},
                "checkpoint": {"every_steps": 1_000_000},
            }
        )  # fmt: skip


@dataclass(kw_only=True)
class Measured:
    """All times are emulated seconds, over the window; shares are of its wall time."""

    setting: dict[str, Any]
    devices: int
    wall_seconds: float
    steps: int
    tokens: float  # of the model, trained on in the window
    trainer_seconds: dict[str, float]  # by phase
    engine_wall_seconds: float  # between the readings nearest to the window's edges
    engine_seconds: dict[str, float]  # by phase between them, mean over the engines
    generated_tokens: float  # of the model, between them
    mean_batch: float  # requests that an engine decodes at once
    mean_context: float  # tokens in its KV cache then
    engines_late_frac: float  # real time by which the engines' processes could not keep the model's clock
    staleness: dict[str, Any]
    cpu_share: float  # of the machine's processors, by this run's processes
    machine_cpu_share: float  # by everything
    floors_missed: int  # times that the real work took longer than the model's time for it
    floors: int
    ledger_balances: bool
    requests_interrupted: int

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.wall_seconds

    @property
    def seconds_per_step(self) -> float:
        return self.wall_seconds / self.steps

    def share_of_engine(self, phase: str) -> float:
        return self.engine_seconds.get(phase, 0.0) / self.engine_wall_seconds

    @property
    def trainer_idle(self) -> float:
        return self.trainer_seconds["wait_batch"] / self.wall_seconds

    @property
    def rollout_idle(self) -> float:
        return self.share_of_engine("idle")

    @property
    def weight_sync(self) -> float:
        """Share of the wall time in which the trainer was blocked by gathering, writing and announcing weights."""
        return self.trainer_seconds["publish"] / self.wall_seconds

    @property
    def engines_paused(self) -> float:
        return self.share_of_engine("paused")

    @property
    def trainer_gap(self) -> float:
        """How far the trainer's phases are from adding up to the wall time, as a share."""
        return abs(sum(self.trainer_seconds.values()) - self.wall_seconds) / self.wall_seconds

    @property
    def engine_gap(self) -> float:
        return abs(sum(self.engine_seconds.values()) / self.engine_wall_seconds - 1)


def run_emulated(
    setting: EmulatedSetting,
    *,
    directory: Path,
    model_directory: Path,
    node_python: str,
    cancelled: threading.Event | None = None,
) -> Measured:
    """Run it, measure the window, and end every process that was started; RuntimeError when that is cancelled."""
    if directory.exists():
        shutil.rmtree(directory)
    directory.mkdir(parents=True)
    steps = setting.spec().trainer.total_train_steps
    attempt = LocalAttempt(
        directory=directory / "attempt",
        spec=setting.spec(),
        model_directory=model_directory,
        dataset_file=_write_rows(directory / "rows.jsonl", rows=(steps + 2) * setting.groups_per_step),
        node_python=node_python,
        trainer_module="tests.bench.emulated_trainer",
        engine_launcher=str(_write_launcher(directory / "engine-launcher")),
    )
    setting.emulation.write(attempt.directory)
    try:
        attempt.start_all()
        begin, end = _watch(attempt, setting, cancelled or threading.Event())
    finally:
        attempt.stop()
    return _measure(attempt, setting, begin, end)


def _write_rows(file: Path, *, rows: int) -> Path:
    with file.open("w") as lines:
        for row in range(rows):
            content = {"role": "user", "content": f"q{row}"}
            line = {"row": row, "split": "train", "messages": [content], "answer": "1", "completion": None}
            lines.write(json.dumps(line) + "\n")
    return file


def _write_launcher(file: Path) -> Path:
    """A worker starts its engine by the node Python's path, with a small environment of its own."""
    python = ROOT / ".venv" / "bin" / "python"
    file.write_text(
        f'#!/bin/sh\nexport PYTHONPATH="{ROOT / "platform"}:{ROOT}"\n'
        f'exec "{python}" -c "from tests.bench.emulated_engine import main; main()" "$@"\n'
    )
    file.chmod(0o755)
    return file


@dataclass(frozen=True, kw_only=True)
class Moment:
    """A boundary of the window, as it was seen."""

    cpu_seconds: float  # of the run's processes so far
    machine: Any  # psutil's times of all processors


def _watch(
    attempt: LocalAttempt, setting: EmulatedSetting, cancelled: threading.Event
) -> tuple[Moment, Moment]:
    """Wait until the window is over. Raises RuntimeError when a job ends before."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    begin: Moment | None = None
    trainer = attempt.jobs["trainer"]
    while time.monotonic() < deadline:
        if cancelled.wait(0.2):
            raise RuntimeError(f"{setting.name}: cancelled")
        ended = {name: job.process.poll() for name, job in attempt.jobs.items()}
        done = max((line.x for line in _step_lines(trainer.lines())), default=0)
        if begin is None and done >= setting.warm_steps:
            begin = _moment(attempt)
        if begin is not None and done >= setting.warm_steps + setting.steps:
            return begin, _moment(attempt)
        if any(code is not None for code in ended.values()):
            tails = {
                name: (attempt.jobs[name].directory / "output.log").read_text()[-1500:]
                for name, code in ended.items()
                if code is not None
            }
            raise RuntimeError(f"{setting.name}: jobs ended before the window was over: {tails}")
    raise RuntimeError(f"{setting.name}: not over after {PATIENCE_SECONDS:g} s")


def _moment(attempt: LocalAttempt) -> Moment:
    seconds = 0.0
    for job in attempt.jobs.values():
        try:
            root = psutil.Process(job.process.pid)
            processes = [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:  # a small run may be over
            continue
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):  # one that has ended
                times = process.cpu_times()
                seconds += times.user + times.system
    return Moment(cpu_seconds=seconds, machine=psutil.cpu_times())


def _step_lines(lines: list[Any]) -> list[Points]:
    return [
        line
        for line in lines
        if isinstance(line, Points) and line.axis == "step" and "time/step_seconds" in line.values
    ]


def _measure(attempt: LocalAttempt, setting: EmulatedSetting, begin: Moment, end: Moment) -> Measured:
    steps = {line.x: line for line in _step_lines(attempt.jobs["trainer"].lines())}
    first, last = setting.warm_steps, setting.warm_steps + setting.steps
    opened, closed = steps[first].at, steps[last].at
    scale = 1 / setting.real_seconds_per_second
    window = [steps[x].values for x in range(first + 1, last + 1)]
    engines = [
        EngineWindow.of(job.directory / "engine-readings.jsonl", opened, closed)
        for name, job in attempt.jobs.items()
        if name.startswith("rollout-")
    ]
    overruns = [
        json.loads(line)
        for line in (attempt.jobs["trainer"].directory / "overruns.jsonl").read_text().splitlines()
    ]
    floors = [one for one in overruns if opened < one["at"] <= closed and one["floor"] > 0]
    summaries = {
        line.name: line.value
        for job in attempt.jobs.values()
        for line in job.lines()
        if isinstance(line, Summary)
    }
    controller = summaries["controller"]
    emitted = sum(values["perf/trained_tokens"] for values in window)
    device = setting.emulation.device
    machine = [getattr(end.machine, name) - getattr(begin.machine, name) for name in end.machine._fields]
    everything = sum(machine) or 1.0
    quiet = (end.machine.idle - begin.machine.idle) + (end.machine.iowait - begin.machine.iowait)
    return Measured(
        setting={name: getattr(setting, name) for name in setting.__dataclass_fields__},
        devices=setting.devices,
        wall_seconds=(closed - opened) * scale,
        steps=setting.steps,
        tokens=emitted * device.tokens_per_emitted,
        trainer_seconds={
            phase: scale * sum(values[f"time/{phase}_seconds"] for values in window) for phase in PHASES
        },
        engine_wall_seconds=mean(one.wall_seconds for one in engines) * scale,
        engine_seconds={
            phase: mean(one.seconds[phase] for one in engines) * scale
            for phase in sorted({phase for one in engines for phase in one.seconds})
        },
        generated_tokens=sum(one.emitted for one in engines) * device.tokens_per_emitted,
        mean_batch=mean(one.mean_batch for one in engines),
        mean_context=mean(one.mean_context for one in engines),
        engines_late_frac=sum(one.late_seconds for one in engines) / sum(one.wall_seconds for one in engines),
        staleness=controller["staleness"],
        cpu_share=(end.cpu_seconds - begin.cpu_seconds) / everything,
        machine_cpu_share=1 - quiet / everything,
        floors_missed=sum(one["spent"] > one["floor"] for one in floors if one["what"] == "train"),
        floors=sum(one["what"] == "train" for one in floors),
        ledger_balances=bool(controller["ledger"]["balances"] and controller["tokens"]["balances"]),
        requests_interrupted=sum(
            value["interrupted_requests"] for name, value in summaries.items() if name.startswith("rollout-")
        ),
    )


@dataclass(frozen=True, kw_only=True)
class EngineWindow:
    """One engine between the two readings nearest to the window's edges."""

    wall_seconds: float  # real
    seconds: Counter[str]  # real, by phase
    emitted: int
    late_seconds: float
    mean_batch: float
    mean_context: float  # tokens in the KV cache of a decode burst

    @classmethod
    def of(cls, file: Path, opened: float, closed: float) -> EngineWindow:
        readings = [json.loads(line) for line in file.read_text().splitlines()]
        first = min(readings, key=lambda one: abs(one["at"] - opened))
        last = min(readings, key=lambda one: abs(one["at"] - closed))
        bursts = max(1, last["bursts"] - first["bursts"])
        return cls(
            wall_seconds=last["at"] - first["at"],
            seconds=Counter(last["seconds"]) - Counter(first["seconds"]),
            emitted=last["emitted"] - first["emitted"],
            late_seconds=last["late_seconds"] - first["late_seconds"],
            mean_batch=(last["batch"] - first["batch"]) / bursts,
            mean_context=(last["context"] - first["context"]) / bursts,
        )
