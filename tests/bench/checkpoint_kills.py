"""SIGKILL at any moment of writing a checkpoint: `python -m tests.bench.checkpoint_kills` with torch, 120 times.

A child takes "train steps" that add 1 to every parameter and writes a checkpoint behind each; it is killed at a random
moment. Afterwards every checkpoint under a committed name must verify, be of one step in all its parts, and the newest
must be at least the last one that was acknowledged.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
KEY = "checkpoint_kills_bad"
KILLS = 120
STEPS_A_LIFE = 10_000
LONGEST_WAIT_SECONDS = 0.09  # after the second acknowledgement: longer than a step, so any moment can be hit;
# every other kill then waits for a moment at which something is half written
FROM_TIME_TO_TIME = 5  # every so many kills the next life repeats steps that are there already


@dataclass
class Kills:
    kills: int = 0
    interrupted: int = 0  # that left something half written, or a step that had been begun
    unreadable: int = 0
    mixed: int = 0
    lost: int = 0  # acknowledged and gone
    checked: int = 0  # checkpoints looked at

    @property
    def bad(self) -> int:
        return self.unreadable + self.mixed + self.lost


def measure(kills: int = KILLS, *, seed: int = 5) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory:
        found = kill_often(Path(directory), kills=kills, seed=seed)
    return {
        "key": KEY, "value": found.bad, "unit": "kills with a bad end", "baseline": None,
        "settings": {**asdict(found), "seed": seed},
    }  # fmt: skip


def kill_often(directory: Path, *, kills: int, seed: int) -> Kills:
    from trainers.models.tiny import make_tiny_model

    model, checkpoints = make_tiny_model(directory / "model"), directory / "checkpoints"
    environment = {
        **os.environ, "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore",
        "RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0",
    }  # fmt: skip
    rng = random.Random(seed)
    found = Kills()
    first = 0
    words = [sys.executable, "-m", "tests.bench.checkpoint_kills", "lives", str(model), str(checkpoints)]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True, bufsize=1
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        for number in range(kills):
            process.stdin.write(f"{first}\n")
            child = int(_word(process, "child"))
            _word(process, "committed")
            acknowledged = int(_word(process, "committed"))
            signal.sigtimedwait([], rng.random() * LONGEST_WAIT_SECONDS)
            if number % 2:
                _stop_in_the_middle(child, checkpoints)
            os.kill(child, signal.SIGKILL)
            while (line := process.stdout.readline().split())[0] != "gone":
                if line[0] == "committed":
                    acknowledged = int(line[1])
            found.kills += 1
            found.interrupted += bool(list(checkpoints.glob(".tmp-*")))
            newest = _look(checkpoints, model, found)
            found.lost += newest < acknowledged
            repeat = number % FROM_TIME_TO_TIME == FROM_TIME_TO_TIME - 1
            first = max(0, newest - 1) if repeat else first + STEPS_A_LIFE
        process.stdin.close()
    return found


def _stop_in_the_middle(child: int, checkpoints: Path) -> None:
    """Leave it stopped with something half written, whatever the machine's speed."""
    while True:
        os.kill(child, signal.SIGSTOP)
        while not _stands(child):
            signal.sigtimedwait([], 0.001)
        if list(checkpoints.glob(".tmp-*")):
            return
        os.kill(child, signal.SIGCONT)
        signal.sigtimedwait([], 0.002)


def _stands(child: int) -> bool:
    """Every thread of it, also the one that writes."""
    states = [
        file.read_text().rpartition(")")[2].split()[0] for file in Path(f"/proc/{child}/task").glob("*/stat")
    ]
    return set(states) == {"T"}


def _look(checkpoints: Path, model: Path, found: Kills) -> int:
    """Check all that has a committed name; returns the newest step that is whole."""
    from trainers import checkpoint

    newest = -1
    for directory in checkpoints.glob("step-*"):
        found.checked += 1
        step = int(directory.name.removeprefix("step-"))
        try:
            record, _ = checkpoint.verify(directory)
        except checkpoint.InvalidCheckpoint as error:
            print(error, file=sys.stderr)
            found.unreadable += 1
            continue
        if record.step != step or steps_inside(directory, model) != {step}:
            found.mixed += 1
        newest = max(newest, step)
    return newest


def steps_inside(directory: Path, model: Path) -> set[int]:
    """The steps that parameters, moments, export and snapshot of a checkpoint are of; one, if all is well."""
    import torch
    import torch.distributed.checkpoint as dcp
    from safetensors.torch import load_file

    from trainers.checkpoint import CONTROLLER_FILE, STATE

    start = load_file(model / "model.safetensors")
    stored = dcp.FileSystemReader(directory / STATE).read_metadata().state_dict_metadata
    state = {name: torch.empty(info.size) for name, info in stored.items()}  # type: ignore[union-attr]
    dcp.load(state, checkpoint_id=directory / STATE, no_dist=True)
    exported = load_file(directory / "hf" / "model.safetensors")
    steps = {int((directory / CONTROLLER_FILE).read_bytes())}
    for name, tensor in state.items():
        if name.startswith("optimizer."):
            steps |= {round(value) for value in tensor.unique().tolist()}
        else:
            short = name.removeprefix("parameters.causal_lm.")
            for found in (tensor, exported[short]):
                steps |= {round(value) for value in (found - start[short]).unique().tolist()}
    return steps


def lives(model: Path, checkpoints: Path) -> None:
    """One child per line of standard input, so that everything is imported once for all kills."""
    import torch

    from trainers.models.policy import load_policy

    torch.set_num_threads(1)
    load_policy(model)
    while line := sys.stdin.readline():
        child = os.fork()
        if child == 0:
            _write_for_ever(model, checkpoints, int(line))
        os.waitpid(child, 0)
        print("gone", flush=True)


def _write_for_ever(model: Path, checkpoints: Path, first: int) -> None:
    import torch

    from trainers.checkpoint import CheckpointWriter, TrainerRecord, random_state
    from trainers.distributed.context import init_distributed
    from trainers.distributed.fsdp import gather_full_tensors, shard_model
    from trainers.models.policy import load_policy

    context = init_distributed("cpu")
    policy = shard_model(load_policy(model), context.mesh)
    optimizer = torch.optim.AdamW(policy.parameters(), fused=True)
    writer = CheckpointWriter(checkpoints, context=context, model_directory=model, keep_last=3)
    print("child", os.getpid(), flush=True)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(float(first))
            optimizer.state[parameter] = {"exp_avg": torch.full_like(parameter, float(first))}
    for step in range(first, first + STEPS_A_LIFE):
        writer.begin(
            TrainerRecord(
                kind="rl", step=step, seed=1, random_state=random_state(), run_id="r", attempt_id="a", epoch=1
            ),
            policy=policy,
            optimizer=optimizer,
            snapshot=str(step).encode(),
            weights=gather_full_tensors(policy, dtype=torch.float32, keep=True),
        )
        with torch.no_grad():  # the next train step, while the checkpoint is being written
            for parameter in policy.parameters():
                parameter.add_(1.0)
                optimizer.state[parameter]["exp_avg"].add_(1.0)
        committed = writer.wait()
        assert committed is not None
        print("committed", committed.step, flush=True)


def _word(process: subprocess.Popen[str], key: str) -> str:
    """The value of the next line that starts with `key`."""
    assert process.stdout is not None
    for line in process.stdout:
        first, _, value = line.partition(" ")
        if first == key:
            return value
    raise AssertionError(f"the program ended before it said {key!r}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["lives"]:
        lives(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        print(json.dumps(measure(int(sys.argv[1]) if sys.argv[1:] else KILLS), indent=1))
