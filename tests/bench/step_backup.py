"""What a train step with several minibatches pays for its backup: `python -m tests.bench.step_backup` with torch.

Parameters and both moments of 100 million parameters, float32, one thread. The baseline copies them into fresh memory
each step, as before. On a GPU the copies also overlap forward passes, which this machine cannot show.
"""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path
from typing import Any

KEY = "step_backup_seconds_per_gb"
PARAMETERS, TENSORS, REPEATS = 100_000_000, 100, 5


def measure() -> dict[str, Any]:
    import torch
    from torch import nn

    from trainers.rl.step_backup import StepBackup

    torch.set_num_threads(1)
    parameters = [nn.Parameter(torch.randn(PARAMETERS // TENSORS)) for _ in range(TENSORS)]
    optimizer = torch.optim.AdamW(parameters)
    for parameter in parameters:
        optimizer.state[parameter] = {
            "step": torch.zeros(()), "exp_avg": torch.randn_like(parameter), "exp_avg_sq": torch.rand_like(parameter),
        }  # fmt: skip
    gigabytes = 12 * PARAMETERS / 1e9

    def fresh() -> None:
        kept = [parameter.detach().to("cpu", copy=True) for parameter in parameters]
        kept += [value.to("cpu", copy=True) for one in parameters for value in optimizer.state[one].values()]

    backup = StepBackup(parameters, optimizer)
    before = [_seconds(fresh) for _ in range(REPEATS + 1)][1:]
    resident = _resident_bytes()
    now = [_seconds(backup.begin) for _ in range(REPEATS + 1)][1:]
    return {
        "key": KEY,
        "value": statistics.median(now) / gigabytes,
        "unit": "s/GB",
        "baseline": f"copies into fresh memory: {statistics.median(before) / gigabytes:.2f} s/GB",
        "settings": {
            "parameters": PARAMETERS, "gigabytes": gigabytes, "threads": 1, "repeats": REPEATS,
            "seconds": {"fresh": before, "reused": now},
            "resident_bytes_added": _resident_bytes() - resident,
            "statistic": "median, after one backup that allocates",
        },
    }  # fmt: skip


def _seconds(work: Any) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _resident_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise ValueError("/proc/self/status has no VmRSS")


if __name__ == "__main__":
    print(json.dumps(measure(), indent=1))
