"""When a run looks ill: each rule speaks up at its illness, and is silent in health and in ignorance."""

from __future__ import annotations

import re

import pytest
from pydantic import BaseModel

from control_plane.telemetry.alerts.alert_rules import (
    RULES,
    START_METRICS,
    STEP_METRICS,
    TIME_METRICS,
    evaluate,
)
from control_plane.telemetry.alerts.alert_window import Window
from oolong.contracts.metrics import METRICS
from oolong.contracts.run_spec import RunSpec

HEALTHY = {
    "policy/entropy": [1.0] * 60, "importance_ratio/mean": [1.01] * 60, "mismatch/logprob_abs_mean": [1e-3] * 60,
    "policy/clip_low_frac": [0.05] * 60, "policy/clip_high_frac": [0.05] * 60, "optim/grad_norm": [0.5] * 60,
    "optim/skipped_steps": [0.0] * 60, "group/zero_variance_frac": [0.3] * 60, "group/all_correct_frac": [0.1] * 60,
    "reward/mean": [n / 60 for n in range(60)],
    "response_length/truncated_frac": [0.02] * 60, "idle/trainer_frac": [0.05] * 60,
    "staleness/exceeded_frac": [0.0] * 60, "time/publish_seconds": [0.1] * 60, "time/step_seconds": [10.0] * 60,
    "importance_ratio/std": [0.2] * 60, "importance_ratio/effective_sample_frac": [0.9] * 60, "reward/std": [0.4] * 60,
    "memory/trainer_peak_bytes": [4e9] * 10 + [5e9] * 50,
}  # fmt: skip
START = {"policy/entropy": [1.0] * 20, "mismatch/logprob_abs_mean": [1e-3] * 20, "reward/std": [0.4] * 20}
TIMES = {
    "idle/rollout_frac": [[0.1] * 12], "engine/restarts": [[0.0, 1.0]], "reward/scored": [[1000.0]],
    "reward/verifier_errors": [[3.0]], "buffer/groups": [[8.0, 64.0] * 20],
    "ledger/failed_groups": [[0.0, 1.0]], "ledger/trained_groups": [[0.0, 400.0]],
    "gate/stalled_seconds": [[0.0, 5.0]], "buffer/batch_unclaimed_seconds": [[90.0, 20.0]],
    "weight_sync/unloaded_seconds": [[60.0]],
}  # fmt: skip


def window(steps: dict[str, list[float]] | None = None, **fields: object) -> Window:
    values = {
        "start": START,
        "times": TIMES,
        "seconds_since_step": 5.0,
        "median_step_seconds": 10.0,
        **fields,
    }
    return Window(steps={**HEALTHY, **(steps or {})}, **values)  # type: ignore[arg-type]


def test_a_healthy_run_has_no_alert_and_nor_has_one_of_which_nothing_is_known() -> None:
    assert evaluate(window()) == {}
    assert evaluate(Window()) == {}


@pytest.mark.parametrize(
    ("rule", "ill", "says"),
    [
        ("entropy_collapse", window({"policy/entropy": [1.0] * 50 + [0.2] * 10}), "20% of its start"),
        ("entropy_jump", window({"policy/entropy": [0.5] * 55 + [1.2] * 5}), "from 0.5 to 1.2"),
        ("importance_ratio_bias", window({"importance_ratio/mean": [1.0] * 55 + [2.5] * 5}), "mean w is 2.5"),
        ("mismatch_drift", window({"mismatch/logprob_abs_mean": [1e-3] * 59 + [2e-2]}), "20.0 times the start"),
        (
            "mismatch_drift",
            window({"mismatch/logprob_abs_mean": [2e-2]}, start={"mismatch/logprob_abs_mean": [0.0] * 20}),
            "by none at the start",
        ),
        ("mismatch_large", window({"mismatch/logprob_abs_mean": [0.2] * 60}, start={}), "0.2 nats a token over 3"),
        (
            "importance_ratio_variance",
            window({"importance_ratio/std": [0.2] * 55 + [1.5] * 5}),
            "1.5 around its mean over 5 steps (chi-sq",
        ),
        (
            "low_effective_sample_size",
            window({"importance_ratio/effective_sample_frac": [0.9] * 55 + [0.2] * 5}),
            "for 20% of its tokens",
        ),
        ("reward_constant", window({"reward/std": [0.4] * 50 + [0.01] * 10}), "spread by 0.01, 2% of their start"),
        (
            "buffer_full",
            window(
                times={
                    "buffer/groups": [[64.0] * 30 + [8.0] * 20], "ledger/trained_groups": [[0.0, 8.0]],
                },
                buffer_capacity=64,
            ),
            "64 finished groups, all that the gate allows, waited for the trainer 60%",
        ),
        (
            "memory_growth",
            window({"memory/trainer_peak_bytes": [4e9 + n * 1e8 for n in range(60)]}),
            "from 4 to 9.9 GB",
        ),
        (
            "rollout_errors",
            window(times={"ledger/failed_groups": [[7.0, 17.0]], "ledger/trained_groups": [[400.0, 490.0]]}),
            "10.0% of the groups",
        ),
        ("clipping", window({"policy/clip_high_frac": [0.3] * 60}), "35% of the loss tokens"),
        ("gradient_spike", window({"optim/grad_norm": [0.5] * 59 + [4.0]}), "is 4, usually 0.5"),
        ("nonfinite_steps", window({"optim/skipped_steps": [0.0] * 59 + [2.0]}), "2 train steps"),
        ("zero_advantage_groups", window({"group/zero_variance_frac": [0.9] * 60}), "90% of the groups"),
        ("reward_flat", window({"reward/mean": [0.4, 0.6] * 30}), "within its noise"),
        ("truncated", window({"response_length/truncated_frac": [0.1] * 50 + [0.3] * 10}), "30% of the completions"),
        ("trainer_idle", window({"idle/trainer_frac": [0.5] * 60}), "waited 50% of 10 steps"),
        ("rollout_idle", window(times={"idle/rollout_frac": [[0.5] * 12, [0.1] * 12]}), "idle 30%"),
        ("staleness_exceeded", window({"staleness/exceeded_frac": [0.2] * 60}), "20% of what was trained on"),
        (
            "staleness_exceeded",
            window({"staleness/exceeded_frac": [0.0] * 59 + [0.01]}, enforces_bound=True),
            "on_straggler promises",
        ),
        ("slow_weight_sync", window({"time/publish_seconds": [2.0] * 60}), "20% of 10 steps"),
        ("engine_restarts", window(times={"engine/restarts": [[1.0, 3.0], [0.0, 1.0]]}), "3 times in the last hour"),
        ("reward_errors", window(times={"reward/scored": [[90.0]], "reward/verifier_errors": [[10.0]]}), "10.0%"),
        ("stalled", window(seconds_since_step=700.0), "no train step for 12 minutes, usually one in 10 s"),
        (
            "stalled",
            Window(boot_stage="train the first step", boot_seconds=2400.0, generating_seconds=1900.0),
            "no train step of this attempt in 32 minutes of generation",
        ),
        (
            "boot_slow",
            Window(boot_stage="load the model into the engine", boot_seconds=660.0),
            "11 minutes after its slots were leased, still: load the model into the engine",
        ),
        ("engine_boot", window(failed_boots=["rollout-0: out of memory"]), "rollout-0: out of memory"),
        ("gate_closed", window(times={"gate/stalled_seconds": [[115.0, 180.0]]}), "for 3 minutes no group"),
        ("batch_unclaimed", window(times={"buffer/batch_unclaimed_seconds": [[600.0]]}), "finished for 10 minutes"),
        ("weights_unloaded", window(times={"weight_sync/unloaded_seconds": [[360.0]]}), "for 6 minutes no engine"),
    ],
)  # fmt: skip
def test_a_rule_speaks_up_at_its_illness_and_alone(rule: str, ill: Window, says: str) -> None:
    said = evaluate(ill)
    assert set(said) == {rule}, said
    assert says in said[rule]


def test_every_rule_has_a_case_above_and_an_advice() -> None:
    cases = {mark.args[1][n][0] for mark in _marks() for n in range(len(mark.args[1]))}
    assert cases == {rule.name for rule in RULES}
    assert all(rule.advice.endswith(".") for rule in RULES)
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_a_slow_run_is_not_stalled_within_five_of_its_usual_steps() -> None:
    assert "stalled" not in evaluate(window(seconds_since_step=2900.0, median_step_seconds=600.0))
    assert "stalled" in evaluate(window(seconds_since_step=3100.0, median_step_seconds=600.0))


def test_before_the_first_step_a_run_is_stalled_by_its_time_of_generation_and_not_by_that_of_its_boot() -> (
    None
):
    booting = Window(boot_stage="load the model into the engine", boot_seconds=590.0)
    assert evaluate(booting) == {}
    generating = Window(boot_stage="train the first step", boot_seconds=5000.0, generating_seconds=1700.0)
    assert evaluate(generating) == {}
    slow = Window(boot_stage="collect the first batch", generating_seconds=4000.0, median_step_seconds=1000.0)
    assert evaluate(slow) == {}, "five of the run's usual steps have not passed"


def test_a_buffer_that_nobody_takes_from_is_no_slow_trainer() -> None:
    full = {"buffer/groups": [[64.0] * 50], "ledger/trained_groups": [[400.0] * 50]}
    assert evaluate(window(times=full, buffer_capacity=64)) == {}
    untaken = full | {"buffer/batch_unclaimed_seconds": [[400.0]]}
    assert set(evaluate(window(times=untaken, buffer_capacity=64))) == {"batch_unclaimed"}


def test_a_reward_that_is_solved_is_not_flat() -> None:
    assert evaluate(window({"reward/mean": [1.0] * 60, "group/all_correct_frac": [0.95] * 60})) == {}


def test_the_fields_that_an_advice_names_exist() -> None:
    named = {name for rule in RULES for name in re.findall(r"\b([a-z]+\.[a-z_]+)\b", rule.advice)}
    sections = {
        name: field.default if isinstance(field.default, BaseModel) else None
        for name, field in RunSpec.model_fields.items()
    }
    missing = [
        name
        for name in sorted(named)
        if (section := sections.get(name.split(".")[0])) is None
        or name.split(".")[1] not in type(section).model_fields
    ]
    assert named and missing == []


def test_a_buffer_without_places_is_never_full_and_memory_that_rose_once_is_no_leak() -> None:
    times = {"buffer/groups": [[64.0] * 50]}
    assert (
        evaluate(window(times=times, buffer_capacity=0))
        == evaluate(window(times=times, buffer_capacity=65))
        == {}
    )
    once = {"memory/trainer_peak_bytes": [4e9] * 40 + [9e9] * 20}
    assert evaluate(window(once)) == {}


def test_a_total_that_begins_anew_counts_from_there() -> None:
    times = {"ledger/failed_groups": [[50.0, 1.0]], "ledger/trained_groups": [[900.0, 10.0, 110.0]]}
    assert evaluate(window(times=times)) == {}


def test_rules_look_only_at_metrics_that_are_in_the_catalog() -> None:
    assert set(STEP_METRICS) | set(TIME_METRICS) <= set(METRICS) and set(START_METRICS) <= set(STEP_METRICS)


def _marks() -> list[pytest.MarkDecorator]:
    return list(test_a_rule_speaks_up_at_its_illness_and_alone.pytestmark)  # type: ignore[attr-defined]
