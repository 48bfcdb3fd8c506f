"""The benchmark's emulated run, small and fast: the whole runtime, measured, and everything adds up."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from oolong.contracts.telemetry import Points
from tests.bench.emulated import check
from tests.bench.emulated_run import EmulatedSetting, run_emulated
from tests.support.outboxes import written_lines
from tests.tools.local_attempt import node_python, tiny_model

SMALL = EmulatedSetting(
    max_staleness=2, engines=2, warm_steps=2, steps=3, groups_per_step=4, group_size=4,
    real_seconds_per_second=1 / 250,
)  # fmt: skip


def test_a_small_emulated_run_is_interrupted_trains_and_accounts_for_its_time(tmp_path: Path) -> None:
    measured = run_emulated(
        SMALL,
        directory=tmp_path / "run",
        model_directory=tiny_model(tmp_path, node_python()),
        node_python=node_python(),
    )
    check(SMALL, measured)
    assert measured.trainer_gap < 0.02 and measured.engine_gap < 0.02
    assert measured.steps == 3 and measured.tokens_per_second > 0 and measured.requests_interrupted > 0
    assert {"decode", "paused"} <= set(measured.engine_seconds)
    # Of the whole run: in a window of three steps a load may find nothing that runs.
    readings = (tmp_path / "run").rglob("engine-readings.jsonl")
    assert any("re_prefill" in json.loads(file.read_text().splitlines()[-1])["seconds"] for file in readings)
    # The window begins where the warm-up ends.
    steps = {
        line.x: line
        for line in written_lines(tmp_path / "run" / "attempt" / "jobs" / "trainer-0")
        if isinstance(line, Points) and "time/step_seconds" in line.values
    }
    first, last = SMALL.warm_steps, SMALL.warm_steps + SMALL.steps
    real_seconds = steps[last].at - steps[first].at
    assert measured.wall_seconds * SMALL.real_seconds_per_second == pytest.approx(real_seconds)
    emitted = sum(steps[x].values["perf/trained_tokens"] for x in range(first + 1, last + 1))
    assert measured.tokens == emitted * SMALL.emulation.device.tokens_per_emitted
    # The trainer cannot be faster than the device that it stands for.
    trajectories = SMALL.groups_per_step * SMALL.group_size * measured.steps
    device = SMALL.emulation.device
    least = device.train_seconds(
        completion_tokens=int(measured.tokens / device.tokens_per_emitted),
        trajectories=trajectories,
        devices=1,
    )
    assert measured.trainer_seconds["train"] + measured.trainer_seconds["proximal"] > 0.95 * (
        least + (measured.steps - 1) * device.train_step_seconds
    )


def test_the_arms_differ_in_name_only_where_they_differ() -> None:
    names = {
        replace(SMALL, **change).name
        for change in ({}, {"seed": 2}, {"sigma": 1.0}, {"interruptible": False})
    }
    assert len(names) == 4
