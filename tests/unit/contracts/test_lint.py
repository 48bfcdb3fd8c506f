"""Every rule of the lint speaks of a spec that breaks it, and is silent about the same spec with the advice taken."""

from __future__ import annotations

from typing import Any

import pytest

from oolong.contracts.run_spec import Facts, RunSpec, lint
from oolong.contracts.run_spec.lint import RULES
from oolong.contracts.run_spec.memory import kv_bytes_per_token
from tests.support.tiny_specs import tiny_run_spec

JUDGE = {"url": "https://a.test", "model": "m", "template": "{response}", "concurrency": 64}

# code -> (odd, its twin that is not, what is known)
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], Facts]] = {
    "kv_too_small": ({"rollout": {"engine_max_total_tokens": 600}}, {"rollout": {"engine_max_total_tokens": 624}}, Facts()),
    "policy_never_learns": (
        {"algorithm": {"critic": {"warmup_steps": 60}, "advantage": {"estimator": "gae", "mean": "batch", "std": "batch"}}},
        {"algorithm": {"critic": {"warmup_steps": 59}, "advantage": {"estimator": "gae", "mean": "batch", "std": "batch"}}},
        Facts(),
    ),
    "reward_scale_zero": ({"reward": {"scale": 0}}, {"reward": {"scale": 0.1}}, Facts()),
    "reward_slower_than_rollouts": (
        {"reward": {"name": "http", "options": {"url": "https://a.test", "concurrency": 1, "batch_size": 4}}},
        {"reward": {"name": "http", "options": {"url": "https://a.test", "concurrency": 2, "batch_size": 4}}},
        Facts(reward_latency_seconds=0.5, rollouts_per_second=16.0),
    ),
    "reward_queue_long": (
        {"reward": {"name": "judge", "timeout_seconds": 30, "options": {**JUDGE, "votes": 2, "temperature": 1, "concurrency": 8}}},
        {"reward": {"name": "judge", "timeout_seconds": 30, "options": {**JUDGE, "votes": 2, "temperature": 1, "concurrency": 64}}},
        Facts(),
    ),
    "equal_votes": (
        {"reward": {"name": "judge", "options": {**JUDGE, "votes": 2}}},
        {"reward": {"name": "judge", "options": {**JUDGE, "votes": 2, "temperature": 0.7}}},
        Facts(),
    ),
    "stops_below_required": (
        {"kind": "sft", "sft": {"stop_at_greedy_accuracy": 0.8}}, {"kind": "sft", "sft": {"stop_at_greedy_accuracy": 0.85}}, Facts(),
    ),
    "context_exceeded": ({}, {"rollout": {"max_new_tokens": 64, "max_prompt_tokens": 64}}, Facts(context_tokens=512)),
    "sequence_over_microbatch": ({"trainer": {"microbatch_tokens": 512}}, {"trainer": {"microbatch_tokens": 624}}, Facts()),
    "many_epochs": ({}, {"trainer": {"total_train_steps": 10}}, Facts(train_rows=64)),
    "concurrency_starves": ({"rollout": {"max_concurrent_groups": 16}}, {"rollout": {"max_concurrent_groups": 32}}, Facts()),
    "concurrency_over_gate": ({"staleness": {"max": 0}}, {"staleness": {"max": 1}}, Facts()),
    "requests_under_group": (
        {"rollout": {"engine_max_running_requests": 4}}, {"rollout": {"engine_max_running_requests": 8}}, Facts(),
    ),
    "kv_oversubscribed": (
        {"rollout": {"max_new_tokens": 4096}}, {"rollout": {"max_new_tokens": 1024}}, Facts(),
    ),
    "staleness_over_steps": ({"trainer": {"total_train_steps": 4}}, {"trainer": {"total_train_steps": 5}}, Facts()),
    "evaluation_never": (
        {"evaluation": {"every_steps": 60}, "rollout": {"engines": 2}},
        {"evaluation": {"every_steps": 30}, "rollout": {"engines": 2}}, Facts(),
    ),
    "evaluation_idle": (
        {"evaluation": {"at_start": False, "at_end": False}}, {"evaluation": {"at_start": False}}, Facts(),
    ),
    "evaluation_heavy": (
        {"evaluation": {"every_steps": 1, "prompts": 512}, "rollout": {"engines": 2}},
        {"evaluation": {"every_steps": 4, "prompts": 512}, "rollout": {"engines": 2}}, Facts(),
    ),
    "checkpoint_only_at_end": ({"checkpoint": {"every_steps": 60}}, {"checkpoint": {"every_steps": 59}}, Facts()),
    "warmup_whole": ({"trainer": {"warmup_steps": 60}}, {"trainer": {"warmup_steps": 6}}, Facts()),
    "wall_short": ({"budget": {"max_wall_seconds": 60}}, {"budget": {"max_wall_seconds": 3600}}, Facts()),
    "decoupled_without_weights": (
        {"algorithm": {"importance_weight": {"mode": "none"}}}, {"algorithm": {"importance_weight": {"mode": "truncate"}}}, Facts(),
    ),
    "stale_without_correction": (
        {"algorithm": {"objective": "ppo"}}, {"algorithm": {"objective": "ppo"}, "staleness": {"max": 1}}, Facts(),
    ),
    "token_weights_of_a_sequence_ratio": (
        {"algorithm": {"objective": "gspo"}},
        {"algorithm": {"objective": "gspo", "importance_weight": {"level": "sequence_mean"}}}, Facts(),
    ),
    "loss_constant_odd": (
        {"algorithm": {"loss_aggregation": "constant", "loss_constant_tokens": 3000}},
        {"algorithm": {"loss_aggregation": "constant"}}, Facts(),
    ),
    "loss_constant_unused": (
        {"algorithm": {"loss_constant_tokens": 112}},
        {"algorithm": {"loss_constant_tokens": 112, "loss_aggregation": "constant"}}, Facts(),
    ),
    "no_baseline": (
        {"algorithm": {"advantage": {"mean": "none"}}}, {"algorithm": {"advantage": {"mean": "batch"}}}, Facts(),
    ),
    "clip_open": ({"algorithm": {"clip_low": 1.0}}, {"algorithm": {"clip_low": 0.3}}, Facts()),
    "temperature_odd": ({"rollout": {"temperature": 0.3}}, {"rollout": {"temperature": 0.7}}, Facts()),
    "learning_rate_high": ({}, {"trainer": {"learning_rate": 1e-6}}, Facts(parameters=7_000_000_000)),
    "lora_learning_rate_low": (
        {"model": {"base_model": "bm_1", "lora": {}}, "trainer": {"learning_rate": 1e-6}},
        {"model": {"base_model": "bm_1", "lora": {}}, "trainer": {"learning_rate": 1e-5}}, Facts(),
    ),
    "lora_repeatable_sampling": (
        {"model": {"base_model": "bm_1", "lora": {}}, "rollout": {"repeatable_sampling": True}},
        {"model": {"base_model": "bm_1"}, "rollout": {"repeatable_sampling": True}}, Facts(),
    ),
    "trainer_memory": (
        {"trainer": {"num_ranks": 2}}, {"trainer": {"num_ranks": 4, "dtype": "bfloat16"}},
        Facts(parameters=7_000_000_000, slot_memory_bytes=80 * 2**30),
    ),
    "engine_memory": (
        {}, {"rollout": {"engine_max_total_tokens": 2048}},
        Facts(parameters=1_000_000, kv_bytes_per_token=2**20, slot_memory_bytes=16 * 2**30),
    ),
    "float32_large": ({}, {"trainer": {"dtype": "bfloat16"}}, Facts(parameters=1_500_000_000)),
    "fits_no_node": ({"rollout": {"engines": 2}}, {}, Facts(largest_node_slots=2)),
    "no_such_device": (
        {"trainer": {"dtype": "bfloat16"}}, {"placement": {"device": "cpu"}}, Facts(pool_devices=frozenset({"cpu"})),
    ),
    "no_such_gpu": (
        {"placement": {"min_gpu_memory_gib": 80}}, {"placement": {"min_gpu_memory_gib": 40}},
        Facts(pool_devices=frozenset({"cuda"}), pool_gpu_memory_bytes=40 * 2**30),
    ),
    "over_team_limit": ({"rollout": {"engines": 2}}, {}, Facts(team_limit_slots=2)),
    "dpo_many_epochs": ({"kind": "dpo"}, {"kind": "dpo", "dpo": {"steps": 20}}, Facts(train_rows=64)),
    "dpo_learning_rate_high": (
        {"kind": "dpo", "dpo": {"learning_rate": 1e-5}},
        {"kind": "dpo", "dpo": {"learning_rate": 1e-5}, "model": {"base_model": "bm_1", "lora": {}}},
        Facts(parameters=500_000_000),
    ),
    "dpo_checkpoint_only_at_end": (
        {"kind": "dpo", "checkpoint": {"every_steps": 60}}, {"kind": "dpo", "checkpoint": {"every_steps": 30}}, Facts(),
    ),
    "validation_never": (
        {"kind": "sft", "sft": {"steps": 900}}, {"kind": "sft", "sft": {"steps": 1000}}, Facts(),
    ),
}  # fmt: skip


def found(changes: dict[str, Any], facts: Facts) -> dict[str, Any]:
    base = {"name": "first", "model": {"base_model": "bm_1"}, "dataset": {"version": "letters@1"}}
    spec = tiny_run_spec({**base, **changes})
    return {finding.code: finding for finding in lint(spec, facts)}


def test_every_rule_has_a_case() -> None:
    assert sorted(CASES) == sorted(rule.code for rule in RULES)


@pytest.mark.parametrize("code", sorted(CASES))
def test_a_rule_speaks_of_what_breaks_it_and_of_nothing_else(code: str) -> None:
    odd, sound, facts = CASES[code]
    finding = found(odd, facts)[code]
    assert finding.pointer.startswith("/") and finding.message and finding.advice.endswith(".")
    assert code not in found(sound, facts)


def test_what_is_not_known_is_not_judged() -> None:
    assert found({}, Facts()) == {}


def test_the_defaults_are_sound_for_a_model_of_8_billion_parameters() -> None:
    spec = RunSpec.model_validate(
        {"name": "first", "model": {"base_model": "bm_1"}, "dataset": {"version": "letters@1"}}
    )
    known = Facts(train_rows=10_000, parameters=8_200_000_000, context_tokens=40960)
    assert lint(spec, known) == []


def test_what_is_said_of_ppo_on_stale_data_follows_from_its_centre() -> None:
    said = {
        proximal: found(
            {"algorithm": {"objective": "ppo", "proximal": proximal}, "staleness": {"max": 3}}, Facts()
        )
        for proximal in ("none", "recompute")
    }
    of = {proximal: findings["stale_without_correction"].message for proximal, findings in said.items()}
    assert of["none"] == "objective ppo clips around the behavior policy, which is up to 3 versions old"
    assert (
        of["recompute"]
        == "objective ppo has no importance weight: it takes data up to 3 versions old for fresh"
    )


def test_an_open_lower_bound_is_as_it_should_be_under_cispo() -> None:
    assert "clip_open" not in found({"algorithm": {"objective": "cispo", "clip_low": 1.0}}, Facts())


def test_errors_come_first() -> None:
    both = found({"reward": {"scale": 0}, "algorithm": {"clip_low": 2.0}}, Facts())
    assert [finding.severity for finding in both.values()] == ["error", "warning"]


def test_the_cache_of_a_token_is_read_from_the_models_config() -> None:
    config = {
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "hidden_size": 3584,
    }
    assert kv_bytes_per_token(config) == 2 * 28 * 4 * 128 * 2
    assert kv_bytes_per_token({"num_hidden_layers": 28}) is None
