"""The staleness ablation: what a lag of η versions costs, with the naive and with the decoupled objective.

`python -m tests.bench.ablation` (Python of the node environment) trains every setting of the two tables, each in a
process of its own, and prints the measures as JSON. `--resume` takes the curves that are there already; that is
right only while the trainer's code is the same. No result depends on how busy the machine is.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from statistics import mean
from typing import Any

from tests.bench.lagged_training import LagSetting, train_at_lag
from tests.bench.warm_policy import BENCH_DIRECTORY, WarmPolicy, warm_policy

LAGS = (0, 1, 2, 4, 8, 16)
SEEDS = (1, 2)
PAPER_LIKE = LagSetting(objective="decoupled_ppo", lag=0, learning_rate=1e-4, seed=1)
TOO_FAST = replace(PAPER_LIKE, learning_rate=3e-4, prompts=16, steps=60)


def settings(base: LagSetting, *, lags: tuple[int, ...], seeds: tuple[int, ...]) -> Iterator[LagSetting]:
    """At lag 0 the two objectives are the same loss: the data are the proximal policy's own."""
    for seed in seeds:
        for lag in lags:
            for objective in ("decoupled_ppo", "ppo") if lag else ("decoupled_ppo",):
                yield replace(base, lag=lag, seed=seed, objective=objective)


def table(curves: list[dict[str, Any]], base: LagSetting) -> list[dict[str, Any]]:
    """One row per (objective, lag) of the curves with `base`'s learning rate and batch, lag 0 first."""
    wanted = {"learning_rate": base.learning_rate, "prompts": base.prompts, "steps": base.steps}
    mine = [one for one in curves if all(one["setting"][name] == value for name, value in wanted.items())]
    places: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for one in mine:
        places.setdefault((one["setting"]["lag"], one["setting"]["objective"]), []).append(one)
    return [
        {
            "lag": lag,
            "objective": objective,
            "seeds": [one["setting"]["seed"] for one in group],
            "curve_means": [mean(one["reward"]) for one in group],
            "last_20_means": [mean(one["reward"][-20:]) for one in group],
            "largest_weight": max(max(one["largest_weight"]) for one in group),
            "mean_abs_log_weight": mean(mean(one["mean_abs_log_weight"]) for one in group),
            "nonfinite_steps": sum(one["nonfinite_steps"] for one in group),
        }
        for (lag, objective), group in sorted(places.items())
    ]


def over_lag_0(rows: list[dict[str, Any]], *, lag: int, objective: str) -> dict[int, float]:
    """By seed: curve mean at `lag` over that at lag 0 with the same seed."""
    [none] = [row for row in rows if row["lag"] == 0]
    [some] = [row for row in rows if row["lag"] == lag and row["objective"] == objective]
    baseline = dict(zip(none["seeds"], none["curve_means"], strict=True))
    return {
        seed: value / baseline[seed]
        for seed, value in zip(some["seeds"], some["curve_means"], strict=True)
        if seed in baseline
    }


def run_all(
    wanted: list[LagSetting], policy: WarmPolicy, directory: Path, *, processes: int
) -> list[dict[str, Any]]:
    """The curves of all settings; those that are there already are not run again."""
    directory.mkdir(parents=True, exist_ok=True)

    def one(setting: LagSetting) -> dict[str, Any]:
        file = directory / f"{setting.name}.json"
        if not file.exists():
            files = [str(policy.model_directory), str(policy.dataset), str(directory)]
            subprocess.run(
                [sys.executable, "-W", "ignore", "-m", "tests.bench.ablation", "--one",
                 json.dumps(asdict(setting)), *files],
                check=True, stdout=sys.stderr, env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
            )  # fmt: skip
        curve: dict[str, Any] = json.loads(file.read_text())
        return curve

    with ThreadPoolExecutor(processes) as pool:
        return list(pool.map(one, wanted))


def train_one(setting: str, model: str, dataset: str, directory: str) -> None:
    """One curve, in this process, into its file."""
    wanted = LagSetting(**json.loads(setting))
    curve = train_at_lag(wanted, model_directory=Path(model), dataset=Path(dataset))
    file = Path(directory) / f"{wanted.name}.json"
    file.with_suffix(".tmp").write_text(json.dumps(asdict(curve)))
    file.with_suffix(".tmp").rename(file)
    print(f"{wanted.name}: mean reward {curve.mean:.3f}, last 20 {curve.last_20:.3f}", flush=True)


def results(curves: list[dict[str, Any]]) -> list[dict[str, Any]]:
    slow, fast = table(curves, PAPER_LIKE), table(curves, TOO_FAST)
    measures = []
    for key, objective in (("decoupled_eta8_over_eta0", "decoupled_ppo"), ("naive_eta8_over_eta0", "ppo")):
        by_seed = over_lag_0(slow, lag=8, objective=objective)
        measures.append(
            {
                "key": key, "value": mean(by_seed.values()), "unit": "ratio of curve means",
                "baseline": "lag 0, where the two objectives are one", "seeds": sorted(by_seed),
                "settings": {
                    "by_seed": {str(seed): value for seed, value in by_seed.items()},
                    "task": "letter-sum, reward 0 or 1, from one warm start of the tiny model",
                    "setting": asdict(PAPER_LIKE), "table": slow,
                    "too_high_learning_rate": {"setting": asdict(TOO_FAST), "table": fast},
                },
            }
        )  # fmt: skip
    return measures


def wanted() -> list[LagSetting]:
    return [
        *settings(PAPER_LIKE, lags=LAGS, seeds=SEEDS),
        *settings(TOO_FAST, lags=(0, 4, 8, 16), seeds=SEEDS),
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--resume", action="store_true", help="keep the curves of an earlier call")
    parser.add_argument("--one", nargs=4, metavar=("SETTING", "MODEL", "DATASET", "CURVES"))
    arguments = parser.parse_args()
    if arguments.one:
        train_one(*arguments.one)
        return
    curves = BENCH_DIRECTORY / "curves"
    if curves.exists() and not arguments.resume:
        shutil.rmtree(curves)
    policy = warm_policy()
    print(json.dumps(results(run_all(wanted(), policy, curves, processes=arguments.processes))))


if __name__ == "__main__":
    main()
