"""`manage.py bench`: each measure alone, all of them, and what is written when a program fails."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.bench import __main__ as bench
from tests.bench.measures import MEASURES, Program
from tests.bench.record import add_results, read_results

# What the benchmarks promise, with its goals: a measure that goes away, or a goal that is let down, is seen here.
PROMISED = {
    "async_over_sync_eta4": "≥ 2.77", "async_over_sync_by_eta": "", "interruptible_over_not": "≥ 1.17",
    "weight_sync_frac": "≤ 0.02", "trainer_idle_fraction": "≤ 0.05", "rollout_idle_fraction": "",
    "dynamic_over_fixed_microbatches": "", "packed_over_padded": "≥ 2", "bin_use": "≥ 0.95",
    "flops_imbalance": "≤ 1.05", "lm_head_memory_ratio": "≥ 8", "sandboxed_tests_per_second": "≥ 200",
    "math_pairs_per_second": "", "decoupled_eta8_over_eta0": "≥ 0.97", "naive_eta8_over_eta0": "",
    "checkpoint_kills_bad": "≤ 0",
}  # fmt: skip
EMULATED = {
    "async_over_sync_eta4", "async_over_sync_by_eta", "interruptible_over_not", "weight_sync_frac",
    "trainer_idle_fraction", "rollout_idle_fraction",
}  # fmt: skip


def test_every_promised_measure_is_there_with_its_goal_and_has_been_taken() -> None:
    assert {key: MEASURES[key].goal for key in PROMISED} == PROMISED
    assert {key for key, one in MEASURES.items() if one.kind == "emulated"} == EMULATED
    results = read_results()
    assert PROMISED.keys() <= results.keys()
    assert {key: results[key]["goal"] or "" for key in PROMISED} == PROMISED


def test_what_decides_by_chance_says_its_seeds() -> None:
    results = read_results()
    for key in (*EMULATED, "decoupled_eta8_over_eta0", "naive_eta8_over_eta0"):
        assert len(results[key]["seeds"]) >= 2, key


def test_every_goal_that_is_missed_has_its_reason() -> None:
    for key, one in read_results().items():
        assert one["met"] is not False or MEASURES[key].if_missed, f"say in IF_MISSED why {key} is missed"


@pytest.fixture
def ran(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., tuple[int, list[str], dict[str, Any]]]:
    """Call the command with stand-ins for its programs: (status, programs that ran, what was written)."""
    programs: list[str] = []
    file = tmp_path / "results.json"

    def run_program(program: Program) -> list[dict[str, Any]]:
        programs.append(program.name)
        if program.module == "rewards_speed":
            raise bench.MeasureFailed("no sandbox")
        keys = [key for key, one in MEASURES.items() if one.program == program.name]
        return [{"key": key, "value": 1.0, "unit": "u", "settings": {}} for key in keys]

    monkeypatch.setattr(bench, "run_program", run_program)
    monkeypatch.setattr(bench, "add_results", partial(add_results, file=file))
    monkeypatch.setattr(bench, "write_page", lambda: None)

    def call(*words: str) -> tuple[int, list[str], dict[str, Any]]:
        monkeypatch.setattr(sys, "argv", ["bench", *words])
        programs.clear()
        return bench.main(), list(programs), read_results(file)

    return call


@pytest.mark.parametrize("key", [key for key in MEASURES if MEASURES[key].program != "rewards_speed"])
def test_each_measure_can_be_taken_alone(ran: Callable[..., Any], key: str) -> None:
    assert ran("--only", key)[:2] == (0, [MEASURES[key].program])
    assert set(ran("--only", key)[2]) == {key}


def test_without_a_name_all_are_taken_and_a_program_that_fails_leaves_the_others_results(
    ran: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    status, programs, written = ran()
    assert status == 1 and set(programs) == {one.program for one in MEASURES.values()}
    assert set(written) == {key for key, one in MEASURES.items() if one.program != "rewards_speed"}
    assert "not measured: rewards_speed; their old results stay" in capsys.readouterr().err


def test_a_measure_that_does_not_exist_is_refused_with_the_way_to_the_names(
    ran: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        ran("--only", "bin_use,speed")
    assert ended.value.code == 2 and "no measure named speed; --list names them" in capsys.readouterr().err
