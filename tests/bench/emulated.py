"""The systems measures: asynchronous against synchronous training, interruption, idleness and weight sync, with the
real runtime on emulated devices. `python -m tests.bench.emulated [--processes N]` prints them as JSON.

The synchronous baseline is colocated: all devices generate, then all of them train, with no time charged for the
change, for moving weights, or for communication among trainers. Every arm runs the same programs, the same number
of devices and the same seeded lengths.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from statistics import mean
from typing import Any

from tests.bench.device_model import (
    SERIAL_PUBLISH_SECONDS_PER_GB,
    SOURCES,
    DeviceModel,
    with_serial_publishing,
)
from tests.bench.emulated_run import EmulatedSetting, Measured, run_emulated
from tests.bench.warm_policy import BENCH_DIRECTORY, start_model
from tests.tools.local_attempt import node_python

ASYNC = EmulatedSetting(max_staleness=4)
SYNC = EmulatedSetting(max_staleness=0, engines=4, trainer_devices=4, colocated=True, warm_steps=1, steps=4)
FINISHES_FIRST = replace(ASYNC, interruptible=False)
SEEDS = (1, 2)
BY_ETA = {eta: replace(ASYNC, max_staleness=eta) for eta in (1, 2, 8)} | {
    0: replace(ASYNC, max_staleness=0, warm_steps=1, steps=4)
}
SPLITS = (
    replace(ASYNC, engines=2, trainer_devices=2),
    replace(ASYNC, engines=1, trainer_devices=3),
)
# More engines per trainer device than 4 devices can have; batches grow with the devices. The baseline is that of 4,
# device by device: more colocated devices would wait for the longest of more completions.
LARGER = (
    replace(ASYNC, engines=5, groups_per_step=24),
    replace(ASYNC, engines=7, groups_per_step=32),
)
SPREADS = (0.5, 1.0)
STEP_TIMES = (5.5e-3, 10e-3)
GAP_ALLOWED = 0.02


def wanted() -> list[EmulatedSetting]:
    """Longest first, so that runs side by side end together."""
    settings = [
        *(replace(one, seed=seed) for one in (SYNC, ASYNC, FINISHES_FIRST) for seed in SEEDS),
        *BY_ETA.values(),
        *SPLITS,
        *(replace(one, sigma=sigma) for one in (SYNC, ASYNC) for sigma in SPREADS),
        *(replace(one, step_seconds=seconds) for one in (SYNC, ASYNC) for seconds in STEP_TIMES),
        *LARGER,
    ]
    return sorted(settings, key=lambda one: one.colocated or one.max_staleness < 2, reverse=True)


def run_all(settings: Iterable[EmulatedSetting], *, processes: int) -> dict[EmulatedSetting, Measured]:
    model = start_model()
    python = node_python()
    cancelled = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):  # every run ends its processes before this one does
        signal.signal(number, lambda *_: cancelled.set())

    def one(setting: EmulatedSetting) -> tuple[EmulatedSetting, Measured]:
        measured = run_emulated(
            setting,
            directory=BENCH_DIRECTORY / "emulated" / setting.name,
            model_directory=model,
            node_python=python,
            cancelled=cancelled,
        )
        print(
            f"{setting.name}: {measured.seconds_per_step:.0f} emulated s a step, {measured.tokens_per_second:.0f} "
            f"tokens/s, trainer idle {measured.trainer_idle:.1%}, machine {measured.machine_cpu_share:.0%} busy",
            file=sys.stderr, flush=True,
        )  # fmt: skip
        return setting, measured

    with ThreadPoolExecutor(processes) as pool:
        return dict(pool.map(one, settings))


def results(runs: dict[EmulatedSetting, Measured]) -> list[dict[str, Any]]:
    """The six measures, from all runs."""
    for setting, run in runs.items():
        check(setting, run)
    sync = [runs[replace(SYNC, seed=seed)] for seed in SEEDS]
    quick = [runs[replace(ASYNC, seed=seed)] for seed in SEEDS]
    patient = [runs[replace(FINISHES_FIRST, seed=seed)] for seed in SEEDS]
    over_sync = ratios(quick, sync)
    over_patient = ratios(quick, patient)
    common = {
        "devices": 4, "split": "3 devices generate, 1 trains", "device_model": asdict(DeviceModel()),
        "sources": dict(SOURCES), "lengths": asdict(ASYNC.emulation.lengths),
        "trajectories_per_step": ASYNC.groups_per_step * ASYNC.group_size, "group_size": ASYNC.group_size,
        "steps_measured": ASYNC.steps, "steps_of_warm_up": ASYNC.warm_steps,
        "machine_cpu_share_largest": max(run.machine_cpu_share for run in runs.values()),
        "largest_gap_between_phases_and_wall_time": max(
            max(run.trainer_gap, run.engine_gap) for run in runs.values()
        ),
        "floors_missed": sum(run.floors_missed for run in runs.values()),
        "floors": sum(run.floors for run in runs.values()),
    }  # fmt: skip

    def result(key: str, value: float, unit: str, baseline: str | None, **more: Any) -> dict[str, Any]:
        return {
            "key": key, "value": value, "unit": unit, "baseline": baseline, "emulated": True,
            "seeds": list(SEEDS), "settings": common | more,
        }  # fmt: skip

    colocated = "synchronous, colocated: the same 4 devices all generate, then all train"
    return [
        result(
            "async_over_sync_eta4", mean(over_sync), "speed ratio", colocated, by_seed=over_sync,
            seconds_per_step={"sync": mean(one.seconds_per_step for one in sync),
                              "async": mean(one.seconds_per_step for one in quick)},
            published_seconds_per_step={"sync": 590.4, "async": 213.1},
            sensitivity=sensitivity(runs),
        ),
        result(
            "async_over_sync_by_eta", mean(over_sync), "speed ratio at eta 4", colocated, by_eta=by_eta(runs),
        ),
        result(
            "interruptible_over_not", mean(over_patient), "speed ratio",
            "the same, but engines finish what runs before they load new weights", by_seed=over_patient,
            requests_interrupted=[one.requests_interrupted for one in quick],
            staleness={"interruptible": [one.staleness["mean"] for one in quick],
                       "not": [one.staleness["mean"] for one in patient]},
        ),
        result(
            "weight_sync_frac",
            mean(with_serial_publishing(one.weight_sync, seconds_per_step=one.seconds_per_step) for one in quick),
            "share of a train step", None,
            emulated_by_seed=[one.weight_sync for one in quick],
            serial_publish_seconds_per_gb=dict(SERIAL_PUBLISH_SECONDS_PER_GB),
            engines_paused_frac=[one.engines_paused for one in quick],
            re_prefill_frac=[one.share_of_engine("re_prefill") for one in quick],
            transport="disk; the real work of publishing takes real time, which the scale makes "
            f"{1 / ASYNC.real_seconds_per_second:.0f} times as long",
        ),
        result(
            "trainer_idle_fraction", mean(one.trainer_idle for one in quick), "share of wall time", None,
            by_seed=[one.trainer_idle for one in quick], by_split=by_split(runs),
        ),
        result(
            "rollout_idle_fraction", mean(one.rollout_idle for one in quick), "share of wall time", None,
            by_seed=[one.rollout_idle for one in quick], mean_batch=[one.mean_batch for one in quick],
        ),
    ]  # fmt: skip


def check(setting: EmulatedSetting, run: Measured) -> None:
    """What must hold for a run to count at all."""
    if not run.ledger_balances:
        raise AssertionError(f"{setting.name}: a ledger does not balance")
    if max(run.trainer_gap, run.engine_gap) > GAP_ALLOWED:
        raise AssertionError(
            f"{setting.name}: phases miss the wall time by {run.trainer_gap:.1%} (trainer), {run.engine_gap:.1%}"
        )


def ratios(these: list[Measured], those: list[Measured]) -> list[float]:
    return [speed_ratio(one, other) for one, other in zip(these, those, strict=True)]


def speed_ratio(one: Measured, other: Measured) -> float:
    """Of trained tokens a second and device."""
    return (one.tokens_per_second / one.devices) / (other.tokens_per_second / other.devices)


def by_eta(runs: dict[EmulatedSetting, Measured]) -> list[dict[str, Any]]:
    """Against the colocated baseline and against η = 0 on the same split; seed 1."""
    sync, none = runs[SYNC], runs[BY_ETA[0]]
    rows = []
    for eta, setting in sorted((BY_ETA | {ASYNC.max_staleness: ASYNC}).items()):
        run = runs[setting]
        rows.append(
            {
                "eta": eta, "seconds_per_step": run.seconds_per_step, "tokens_per_second": run.tokens_per_second,
                "over_colocated_sync": speed_ratio(run, sync),
                "over_eta_0_same_split": speed_ratio(run, none),
                "trainer_idle": run.trainer_idle, "rollout_idle": run.rollout_idle,
                "staleness_mean": run.staleness["mean"], "staleness_max": run.staleness["max"],
                "share_over_eta": run.staleness["exceeded_frac"],
            }
        )  # fmt: skip
    return rows


def by_split(runs: dict[EmulatedSetting, Measured]) -> list[dict[str, Any]]:
    rows = []
    for setting in (ASYNC, *SPLITS, *LARGER):
        run = runs[setting]
        rows.append(
            {
                "split": f"{setting.engines}:{setting.trainer_devices}",
                "over_colocated_sync": speed_ratio(run, runs[SYNC]),
                "seconds_per_step": run.seconds_per_step, "trainer_idle": run.trainer_idle,
                "rollout_idle": run.rollout_idle, "weight_sync": run.weight_sync,
            }
        )  # fmt: skip
    return rows


def sensitivity(runs: dict[EmulatedSetting, Measured]) -> list[dict[str, Any]]:
    """One row per change of one thing; the baseline changes with it."""
    changes = [
        ("headline, seed 1", ASYNC, SYNC),
        *((f"length spread sigma {sigma:g}", replace(ASYNC, sigma=sigma), replace(SYNC, sigma=sigma))
          for sigma in SPREADS),
        *((f"decode step of {seconds * 1e3:g} ms", replace(ASYNC, step_seconds=seconds),
           replace(SYNC, step_seconds=seconds)) for seconds in STEP_TIMES),
        *((f"split {one.engines}:{one.trainer_devices}", one, SYNC) for one in SPLITS),
        *((f"{one.engines + 1} devices, split {one.engines}:1", one, SYNC) for one in LARGER),
    ]  # fmt: skip
    return [
        {
            "change": change,
            "async_over_sync": speed_ratio(runs[one], runs[base]),
            "seconds_per_step_sync": runs[base].seconds_per_step,
            "seconds_per_step_async": runs[one].seconds_per_step,
            "trainer_idle": runs[one].trainer_idle,
            "rollout_idle": runs[one].rollout_idle,
        }
        for change, one, base in changes
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", type=int, default=4, help="runs side by side; each mostly sleeps")
    arguments = parser.parse_args()
    runs = run_all(wanted(), processes=arguments.processes)
    (BENCH_DIRECTORY / "emulated" / "runs.json").write_text(
        json.dumps([asdict(run) for run in runs.values()], indent=1)
    )
    print(json.dumps(results(runs)))


if __name__ == "__main__":
    main()
