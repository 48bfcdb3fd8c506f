"""SIGKILL at any moment of a commit leaves checkpoints that verify, and nothing else under a committed name."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

from trainers import checkpoint

ROOT = Path(__file__).resolve().parents[3]
KILLS = 10

COMMIT_FOR_EVER = """
import os, sys
from pathlib import Path
import torch
from trainers import checkpoint
from trainers.models.policy import load_policy
from trainers.models.shard import full_tensors, shard
from trainers.ranks import join_ranks

model, directory = Path(sys.argv[1]), Path(sys.argv[2])
torch.set_num_threads(1)
while True:  # one child per line of the parent, so that torch is imported once for all kills
    first = sys.stdin.readline()
    if not first:
        sys.exit(0)
    child = os.fork()
    if child == 0:
        ranks = join_ranks("cpu")
        policy = shard(load_policy(model), ranks.mesh)
        optimizer = torch.optim.AdamW(policy.parameters(), fused=True)
        print("child", os.getpid(), flush=True)
        for step in range(int(first), int(first) + 10_000):
            with torch.no_grad():
                for parameter in policy.parameters():
                    parameter.add_(1.0)
            committed = checkpoint.commit(
                directory,
                checkpoint.TrainerRecord(
                    kind="rl", step=step, seed=1, random_state=checkpoint.random_state(), run_id="run_1",
                    attempt_id="att_1", epoch=1,
                ),
                policy=policy, optimizer=optimizer, ranks=ranks, snapshot=b"image of the controller",
                model_directory=model, weights=full_tensors(policy, dtype=torch.float32, keep=True), keep_last=3,
            )
            print("committed", step, flush=True)
    os.waitpid(child, 0)
    print("gone", flush=True)
"""


def test_ten_kills_during_commits_leave_only_readable_checkpoints(tiny_model: Path, tmp_path: Path) -> None:
    program = tmp_path / "commit_for_ever.py"
    program.write_text(COMMIT_FOR_EVER)
    directory = tmp_path / "checkpoints"
    environment = {
        **os.environ, "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore",
        "RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0",
    }  # fmt: skip
    rng = random.Random(5)
    interrupted = 0
    with subprocess.Popen(
        [sys.executable, str(program), str(tiny_model), str(directory)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True, bufsize=1,
    ) as process:  # fmt: skip
        assert process.stdin is not None and process.stdout is not None
        for kill in range(KILLS):
            process.stdin.write(f"{kill * 10_000}\n")
            process.stdin.flush()
            child = int(read_word(process, "child"))
            acknowledged = int(read_word(process, "committed"))
            # The next line would come after a whole commit; the kill comes somewhere within it.
            signal.sigtimedwait([], rng.random() * 0.06)
            os.kill(child, signal.SIGKILL)
            while (line := process.stdout.readline().split())[0] != "gone":
                acknowledged = int(line[1])
            interrupted += bool(list(directory.glob(".tmp-*")))
            found = sorted(directory.glob("step-*"))
            steps = [checkpoint.verify(one)[0].step for one in found]
            assert steps == [int(one.name.removeprefix("step-")) for one in found]
            assert max(steps) >= acknowledged, "a commit that was reported is gone"
        process.stdin.close()
    assert interrupted >= 3, "the kills missed the commits, so this test has shown nothing"


def read_word(process: subprocess.Popen[str], key: str) -> str:
    """The value of the next line that starts with `key`."""
    assert process.stdout is not None
    for line in process.stdout:
        first, _, value = line.partition(" ")
        if first == key:
            return value
    raise AssertionError(f"the program ended before it said {key!r}")
