from __future__ import annotations

import pytest

from oolong.planner.service_times import (
    MeasuredTimes,
    ModelSize,
    from_data_sheet,
    from_measurements,
    gpu_named,
    scaled,
)

QWEN_1_5B = ModelSize(parameters=1_540_000_000, kv_bytes_per_token=28_672, weight_bytes=3_080_000_000)


@pytest.mark.parametrize(
    ("reported", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA A10", "A10"),
        ("NVIDIA GeForce RTX 4090", "4090"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA L4", "L4"),
        ("h200", "H200"),
    ],
)
def test_a_gpu_is_found_by_the_name_that_its_driver_reports(reported: str, name: str) -> None:
    found = gpu_named(reported)
    assert found is not None and found.name == name


@pytest.mark.parametrize("reported", ["", "AMD Instinct MI300X", "NVIDIA A100000", "cpu"])
def test_an_unknown_device_has_no_data_sheet(reported: str) -> None:
    assert gpu_named(reported) is None


def test_the_data_sheet_gives_what_one_stream_of_a_small_model_measures() -> None:
    """Qwen2.5-1.5B, one stream on an A100: 183.33 tokens/s (Qwen2.5 speed benchmark, vLLM 0.6.3)."""
    a100 = gpu_named("A100")
    assert a100 is not None
    times = from_data_sheet(a100, QWEN_1_5B)
    assert 1 / (times.decode_step + times.decode_sequence) == pytest.approx(183.33, rel=0.15)


def run(**changes: object) -> MeasuredTimes:
    fields = {
        "engine_rates": [], "train_device_seconds_per_token": 1e-4, "train_step_seconds": 0.5,
        "publish_seconds": 0.2, "load_seconds": 0.1, **changes,
    }  # fmt: skip
    return MeasuredTimes(**fields)  # type: ignore[arg-type]


def test_the_decode_step_is_fitted_as_a_line_over_the_batch() -> None:
    rates = [(batch, batch / (0.01 + 0.002 * batch)) for batch in (1, 4, 8, 16)]
    times = from_measurements([run(engine_rates=rates[:2]), run(engine_rates=rates[2:], publish_seconds=0.4)])
    assert times is not None
    assert (times.decode_step, times.decode_sequence) == pytest.approx((0.01, 0.002))
    assert (times.train_token, times.publish) == pytest.approx((1e-4, 0.3))


def test_a_fit_never_has_negative_times() -> None:
    flat = from_measurements([run(engine_rates=[(1, 100), (2, 250), (4, 600)])])
    assert flat is not None and flat.decode_step > 0 and flat.decode_sequence == 0
    steep = from_measurements([run(engine_rates=[(1, 1000), (2, 500), (4, 200)])])
    assert steep is not None and steep.decode_step == 0 and steep.decode_sequence > 0


def test_idle_engines_say_nothing_of_a_decode_step() -> None:
    assert from_measurements([run(engine_rates=[(0, 0.0), (8, 0.0), (0.5, 10.0)])]) is None


def test_a_scaled_group_of_times_leaves_the_others() -> None:
    a100 = gpu_named("A100")
    assert a100 is not None
    times = from_data_sheet(a100, QWEN_1_5B)
    slower = scaled(times, "train", 2.0)
    assert (slower.train_token, slower.train_step) == (2 * times.train_token, 2 * times.train_step)
    assert (slower.decode_step, slower.publish) == (times.decode_step, times.publish)
