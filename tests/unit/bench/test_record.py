"""Results, the table of measures, and the page that is made of both."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from statistics import mean

import pytest

from tests.bench.__main__ import MeasureFailed, parse
from tests.bench.measures import MEASURES, PROGRAMS
from tests.bench.page import PAGE, page
from tests.bench.record import RESULTS, add_results, entry_of, read_results

MEASURED = {
    "key": "packed_over_padded", "value": 2.5, "unit": "speed ratio", "baseline": "padded",
    "settings": {"seeds": (1, 2), "emulated": True, "cores": 1},
}  # fmt: skip


def test_the_committed_page_is_what_the_committed_results_say() -> None:
    assert PAGE.read_text() == page(read_results()), "run: python3 manage.py bench --page"


def test_every_measure_has_a_program_that_exists_and_every_program_a_measure() -> None:
    for program in PROGRAMS.values():
        assert importlib.util.find_spec(f"tests.bench.{program.module}") is not None
    assert {measure.program for measure in MEASURES.values()} == set(PROGRAMS)


def test_committed_results_are_of_measures_that_exist_and_say_what_they_are() -> None:
    results = json.loads(RESULTS.read_text())
    assert set(results) <= set(MEASURES)
    for key, one in results.items():
        assert {
            "value",
            "unit",
            "baseline",
            "kind",
            "goal",
            "met",
            "seeds",
            "date",
            "machine",
            "settings",
        } == set(one)
        assert one["kind"] == MEASURES[key].kind and one["met"] == MEASURES[key].is_met(one["value"])


def test_the_phases_of_committed_runs_add_up_to_their_wall_time_within_2_percent() -> None:
    name = "largest_gap_between_phases_and_wall_time"
    for one in read_results().values():
        gaps = [row[name] for row in (one["settings"], *one["settings"].get("by_eta", [])) if name in row]
        assert all(gap <= 0.02 for gap in gaps)
        assert gaps or one["kind"] != "emulated"


def test_an_entry_knows_its_goal_its_kind_and_its_seeds() -> None:
    entry = entry_of(MEASURED)
    assert (entry["goal"], entry["met"], entry["kind"]) == ("≥ 2", True, "real")
    assert entry["seeds"] == [1, 2] and entry["settings"] == {"cores": 1}


def test_a_missed_goal_is_said_with_how_much(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    add_results([{**MEASURED, "value": 1.75}], file=file)
    text = page(read_results(file))
    [line] = [one for one in text.splitlines() if "`packed_over_padded`" in one]
    assert "**1.75**" in line and "**no**, by 0.25" in line
    assert "`async_over_sync_eta4` | not measured yet" in text


def test_a_second_measurement_replaces_its_own_entry_and_no_other(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    add_results([MEASURED, {**MEASURED, "key": "bin_use", "value": 0.9}], file=file)
    add_results([{**MEASURED, "value": 3.0}], file=file)
    results = read_results(file)
    assert results["packed_over_padded"]["value"] == 3.0 and results["bin_use"]["value"] == 0.9


def test_a_measure_that_the_table_lacks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="made_up"):
        add_results([{**MEASURED, "key": "made_up"}], file=tmp_path / "results.json")


def test_a_programs_words_before_its_measures_are_left_out() -> None:
    assert parse('[1] warming up\ntiny written\n[\n {"key": "a"}\n]\n') == [{"key": "a"}]
    assert parse('{"key": "b"}') == [{"key": "b"}]
    with pytest.raises(MeasureFailed, match="no measures"):
        parse("Traceback …")


def test_the_ablations_table_has_every_lag_and_objective_by_two_seeds() -> None:
    settings = read_results()["decoupled_eta8_over_eta0"]["settings"]
    rows = {(row["lag"], row["objective"]): row for row in settings["table"]}
    assert rows.keys() == {(0, "decoupled_ppo")} | {
        (lag, objective) for lag in (1, 2, 4, 8, 16) for objective in ("decoupled_ppo", "ppo")
    }
    for row in (*rows.values(), *settings["too_high_learning_rate"]["table"]):
        assert len(row["seeds"]) == len(row["curve_means"]) >= 2, row
        assert row["largest_weight"] > 0 and row["mean_abs_log_weight"] >= 0
    # At the other learning rate it goes the other way.
    fast = {(row["lag"], row["objective"]): row for row in settings["too_high_learning_rate"]["table"]}
    assert mean(fast[16, "decoupled_ppo"]["last_20_means"]) < mean(fast[16, "ppo"]["last_20_means"])
