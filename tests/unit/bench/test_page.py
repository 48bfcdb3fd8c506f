"""The page from made-up runs: every table is there, and the measures are what the runs say."""

from __future__ import annotations

from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from tests.bench.emulated import ASYNC, FINISHES_FIRST, SYNC, check, results, wanted
from tests.bench.emulated_run import EmulatedSetting, Measured
from tests.bench.page import page
from tests.bench.record import add_results, read_results


def made_up(setting: EmulatedSetting, *, seconds_per_step: float) -> Measured:
    """A run of 4 steps in which the trainer waits a tenth of the time and engines idle a fifth."""
    wall = 4 * seconds_per_step
    phases = {
        "wait_batch": 0.1,
        "prepare": 0.0,
        "proximal": 0.2,
        "train": 0.69,
        "publish": 0.01,
        "checkpoint": 0.0,
    }
    return Measured(
        setting={"eta": setting.max_staleness}, devices=setting.devices, wall_seconds=wall, steps=4, tokens=1e6,
        trainer_seconds={phase: share * wall for phase, share in phases.items()},
        engine_wall_seconds=wall, engine_seconds={"decode": 0.7 * wall, "re_prefill": 0.1 * wall, "idle": 0.2 * wall},
        generated_tokens=1.1e6, mean_batch=100.0, mean_context=5e5, engines_late_frac=0.0,
        staleness={"mean": 2.5, "max": 5, "exceeded_frac": 0.1}, cpu_share=0.1, machine_cpu_share=0.3,
        floors_missed=0, floors=4, ledger_balances=True, requests_interrupted=10,
    )  # fmt: skip


def runs() -> dict[EmulatedSetting, Measured]:
    def seconds(setting: EmulatedSetting) -> float:
        return 600.0 if setting.colocated else 200.0 if setting.interruptible else 250.0

    return {setting: made_up(setting, seconds_per_step=seconds(setting)) for setting in wanted()}


def test_every_run_that_a_measure_needs_is_wanted_once() -> None:
    settings = wanted()
    assert len({one.name for one in settings}) == len(settings) == len(set(settings))
    assert {ASYNC, SYNC, FINISHES_FIRST} <= set(settings)


def test_the_measures_are_ratios_and_shares_of_the_runs() -> None:
    found = {one["key"]: one for one in results(runs())}
    assert found["async_over_sync_eta4"]["value"] == pytest.approx(3.0)
    assert found["interruptible_over_not"]["value"] == pytest.approx(1.25)
    # 0.01 of 200 s, and 3.08 GB by 1.63 s a GB that the emulation leaves out of publication and step.
    assert found["weight_sync_frac"]["value"] == pytest.approx((2 + 3.57) / (200 + 3.57), rel=1e-3)
    assert found["trainer_idle_fraction"]["value"] == pytest.approx(0.1)
    assert found["rollout_idle_fraction"]["value"] == pytest.approx(0.2)
    assert [row["eta"] for row in found["async_over_sync_by_eta"]["settings"]["by_eta"]] == [0, 1, 2, 4, 8]


def test_beside_the_headline_stand_split_length_spread_and_eta() -> None:
    found = {one["key"]: one["settings"] for one in results(runs())}
    rows = {row["change"]: row for row in found["async_over_sync_eta4"]["sensitivity"]}
    assert list(rows)[1:] == [
        "length spread sigma 0.5", "length spread sigma 1", "decode step of 5.5 ms",
        "decode step of 10 ms", "split 2:2", "split 1:3", "6 devices, split 5:1", "8 devices, split 7:1",
    ]  # fmt: skip
    # As many tokens and seconds on twice the devices are half the speed.
    on_4, on_8 = (rows[name]["async_over_sync"] for name in ("split 2:2", "8 devices, split 7:1"))
    assert on_4 > 1 and on_8 == pytest.approx(on_4 / 2)
    assert {row["eta"] for row in found["async_over_sync_by_eta"]["by_eta"]} == {0, 1, 2, 4, 8}
    assert len(found["trainer_idle_fraction"]["by_split"]) == 5


def test_a_run_whose_phases_or_ledger_do_not_add_up_does_not_count() -> None:
    run = made_up(ASYNC, seconds_per_step=100.0)
    check(ASYNC, run)
    run.trainer_seconds["train"] *= 1.1
    with pytest.raises(AssertionError, match="miss the wall time by"):
        check(ASYNC, run)
    lost = made_up(ASYNC, seconds_per_step=100.0)
    lost.ledger_balances = False
    with pytest.raises(AssertionError, match="ledger"):
        check(ASYNC, lost)


def lag_rows() -> list[dict[str, Any]]:
    return [
        {"lag": lag, "objective": objective, "seeds": [1, 2], "curve_means": [0.8, 0.9], "last_20_means": [0.9, 0.95],
         "largest_weight": 2.5, "mean_abs_log_weight": 0.01, "nonfinite_steps": 0}
        for lag, objective in ((0, "decoupled_ppo"), (8, "decoupled_ppo"), (8, "ppo"))
    ]  # fmt: skip


def test_the_page_has_every_table(tmp_path: Path) -> None:
    setting = {"learning_rate": 1e-4, "prompts": 32, "group_size": 8, "steps": 100}
    ablation = {
        "key": "decoupled_eta8_over_eta0", "value": 0.99, "unit": "ratio", "baseline": "lag 0", "seeds": [1, 2],
        "settings": {"setting": setting, "table": lag_rows(),
                     "too_high_learning_rate": {"setting": setting, "table": lag_rows()}},
    }  # fmt: skip
    real = {
        "key": "real_cpu_async_over_sync", "value": 1.0, "unit": "ratio", "baseline": "eta 0",
        "settings": {"model": "tiny", "by_eta": [
            {"eta": 0, "seconds_per_step": 2.0, "trained_tokens_per_second": 4000.0, "trainer_idle": 0.5,
             "rollout_idle": 0.4, "weight_sync": 0.01, "engines_paused": 0.02, "staleness_mean": 0.0}]},
    }  # fmt: skip
    add_results([*results(runs()), ablation, real], file=tmp_path / "results.json")
    text = page(read_results(tmp_path / "results.json"))
    assert "## Goals that are missed, and why" in text and "- `trainer_idle_fraction`: Of 4 devices" in text
    for title in ("## Asynchronous over synchronous", "## By η", "## By split", "## The emulated device",
                  "## Real SGLang", "## What staleness costs"):  # fmt: skip
        assert title in text
    assert "| headline, seed 1 | 3 | 600 | 200 | 10.0% | 20.0% |" in text
    assert f"| 8 | naive | {mean([0.8, 0.9]):.3f} (0.800, 0.900) |" in text
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert all(line.endswith("|") for line in tables) and len(tables) > 60
