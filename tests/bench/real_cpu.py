"""The same comparison without emulation: real SGLang and the real trainer on this machine's processors.

It is unflattering and should be: on few processors generation and training want the same cores, so that there is no
idle time for asynchrony to fill. `python -m tests.bench.real_cpu` prints the measure as JSON.
"""

from __future__ import annotations

import json
import time
from statistics import mean
from typing import Any

from oolong.contracts.telemetry import Points
from tests.bench.warm_policy import BENCH_DIRECTORY, warm_policy
from tests.support.tiny_specs import tiny_run_spec
from tests.tools.local_attempt import LocalAttempt, complete, node_python

STEPS, WARM_STEPS = 14, 4
LAGS = (0, 1, 4)


def measure(
    *, steps: int = STEPS, warm_steps: int = WARM_STEPS, lags: tuple[int, ...] = LAGS
) -> dict[str, Any]:
    rows = {eta: run(eta, steps=steps, warm_steps=warm_steps) for eta in lags}
    sync, other = rows[lags[0]], rows[lags[-1]]
    return {
        "key": "real_cpu_async_over_sync",
        "value": other["trained_tokens_per_second"] / sync["trained_tokens_per_second"],
        "unit": "speed ratio", "baseline": "the same processes with eta 0", "seeds": [1],
        "settings": {
            "engines": 1, "trainer_ranks": 1, "model": "tiny Qwen3, 116K parameters, float32", "batch": "32 x 8",
            "steps_measured": steps - warm_steps, "steps_of_warm_up": warm_steps, "by_eta": list(rows.values()),
        },
    }  # fmt: skip


def run(eta: int, *, steps: int, warm_steps: int) -> dict[str, Any]:
    """Figures of the steps after the warm-up of one run."""
    policy = warm_policy()
    spec = tiny_run_spec(
        {
            "name": f"real eta {eta}", "model": {"base_model": "warm"}, "dataset": {"version": "letter-sum"},
            "staleness": {"max": eta}, "trainer": {"total_train_steps": steps}, "checkpoint": {"every_steps": 1000},
        }
    )  # fmt: skip
    attempt = LocalAttempt(
        directory=BENCH_DIRECTORY / "real" / f"eta{eta}-{time.strftime('%H%M%S')}", spec=spec,
        model_directory=policy.model_directory, dataset_file=policy.dataset, node_python=node_python(),
    )  # fmt: skip
    complete(attempt, f"the run with eta {eta}", timeout=400)
    lines = {
        line.x: line
        for line in attempt.jobs["trainer"].lines()
        if isinstance(line, Points) and "time/step_seconds" in line.values
    }
    window = [lines[x].values for x in range(warm_steps + 1, steps + 1)]
    wall = lines[steps].at - lines[warm_steps].at
    summaries = attempt.summaries()
    return {
        "eta": eta,
        "seconds_per_step": wall / len(window),
        "trained_tokens_per_second": sum(one["perf/trained_tokens"] for one in window) / wall,
        "trainer_idle": sum(one["time/wait_batch_seconds"] for one in window) / wall,
        "rollout_idle": summaries["rollout-0"]["idle"]["rollout"],
        "weight_sync": sum(one["time/publish_seconds"] for one in window) / wall,
        "engines_paused": summaries["rollout-0"]["engine_paused_frac"],
        "staleness_mean": summaries["controller"]["staleness"]["mean"],
        "largest_gap_between_phases_and_wall_time": phase_gap(lines, warm_steps, steps),
        "reward_mean": mean(one["reward/mean"] for one in window),
    }


def phase_gap(lines: dict[int, Points], first: int, last: int) -> float:
    phases = ("wait_batch", "prepare", "proximal", "train", "publish", "checkpoint")
    spent = sum(
        lines[x].values[f"time/{phase}_seconds"] for x in range(first + 1, last + 1) for phase in phases
    )
    wall = lines[last].at - lines[first].at
    return abs(spent - wall) / wall


if __name__ == "__main__":
    print(json.dumps(measure()))
