"""Lengths and costs of the emulated devices."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import mean

import pytest

from tests.bench.device_model import SOURCES, DeviceModel, Emulation, Lengths
from tests.bench.emulated import ASYNC, LARGER, SYNC


@pytest.mark.parametrize("sigma", [0.5, 0.75, 1.0])
def test_lengths_have_the_mean_that_was_asked_for_and_keep_the_limit(sigma: float) -> None:
    lengths = Lengths(sigma=sigma, seed=3)
    drawn = [lengths.of((prompt,), member) for prompt in range(400) for member in range(16)]
    assert mean(drawn) == pytest.approx(lengths.mean, rel=0.03)
    assert max(drawn) == lengths.limit and min(drawn) < lengths.mean / 2


def test_both_arms_draw_the_same_lengths() -> None:
    one, other = ASYNC.emulation.lengths, SYNC.emulation.lengths
    assert [one.of((5, 6), k) for k in range(9)] == [other.of((5, 6), k) for k in range(9)]
    assert [one.of((5, 6), 0)] != [replace(one, seed=2).of((5, 6), 0)]


def test_a_train_step_costs_its_tokens_over_its_devices() -> None:
    device = DeviceModel(
        train_step_seconds=1.0, train_token_seconds=0.5, prompt_tokens=2, tokens_per_emitted=4
    )
    assert device.train_seconds(completion_tokens=10, trajectories=5, devices=1) == 1.0 + 0.5 * 50
    assert device.train_seconds(completion_tokens=10, trajectories=5, devices=5) == 1.0 + 0.5 * 10


def test_a_decode_step_costs_its_batch_and_its_context() -> None:
    device = DeviceModel(step_seconds=1.0, sequence_seconds=0.1, context_token_seconds=0.01)
    assert device.decode_seconds(steps=1, batch=0, context=0) == 1.0
    assert device.decode_seconds(steps=3, batch=4, context=50) == pytest.approx(3 * (1.0 + 0.4 + 0.5))


def test_the_baseline_is_charged_no_weight_transfer() -> None:
    assert SYNC.emulation.publish_seconds == SYNC.emulation.load_seconds == 0.0
    assert ASYNC.emulation.publish_seconds > 0 and ASYNC.emulation.load_seconds > 0


def test_both_arms_have_as_many_devices_and_as_large_batches() -> None:
    assert SYNC.engines == SYNC.trainer_devices == 4 == ASYNC.engines + ASYNC.trainer_devices
    assert SYNC.devices == ASYNC.devices == 4 and [one.devices for one in LARGER] == [6, 8]
    for one in LARGER:  # as many trajectories a device as the others
        assert one.groups_per_step / one.devices == ASYNC.groups_per_step / ASYNC.devices
    assert SYNC.spec().trainer.groups_per_step == ASYNC.spec().trainer.groups_per_step
    assert SYNC.spec().staleness.max == 0 and ASYNC.spec().staleness.max == 4


def test_an_emulation_survives_its_file(tmp_path: Path) -> None:
    ASYNC.emulation.write(tmp_path)
    assert Emulation.read(tmp_path) == ASYNC.emulation


def test_every_constant_has_a_source() -> None:
    told = " ".join(SOURCES)
    for name in (
        "step_seconds",
        "context_token_seconds",
        "sequence_seconds",
        "prefill_token_seconds",
        "train_token",
    ):
        assert name in told
