"""The ablation's trainer: every batch is exactly as old as it is said to be."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.bench.ablation import LAGS, PAPER_LIKE, SEEDS, TOO_FAST, over_lag_0, table, wanted
from tests.bench.lagged_training import LagSetting, train_at_lag
from tests.bench.sampler import Sampler
from trainers.models.packed_row import pack_row
from trainers.models.policy import load_policy

TINY = LagSetting(
    objective="decoupled_ppo", lag=0, learning_rate=5e-3, seed=1, steps=4, prompts=2, group_size=4, minibatches=1,
    max_new_tokens=12,
)  # fmt: skip


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    rows = [
        {"row": row, "split": "train", "messages": [{"role": "user", "content": f"a{row}"}], "answer": str(row),
         "completion": None}
        for row in range(8)
    ]  # fmt: skip
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_sampler_logprobs_equal_the_trainers_forward_pass(tiny_model: Path) -> None:
    sampler = Sampler(tiny_model, seed=1)
    prompts = [[5, 6, 7], [8, 9], [5, 6, 7, 8, 9, 10]]
    policy = load_policy(tiny_model)
    for prompt, sampled in zip(prompts, sampler.sample(prompts, max_new_tokens=10), strict=True):
        row = pack_row(
            [[*prompt, *sampled.token_ids]], [range(len(prompt), len(prompt) + len(sampled.token_ids))]
        )
        logprobs, _ = policy(row)
        assert torch.allclose(logprobs, torch.tensor(sampled.logprobs), atol=2e-6)


def test_at_lag_0_behavior_and_proximal_policy_are_equal(tiny_model: Path, dataset: Path) -> None:
    curve = train_at_lag(TINY, model_directory=tiny_model, dataset=dataset)
    assert len(curve.reward) == TINY.steps + 1
    assert max(curve.mean_abs_log_weight) < 1e-5 and max(curve.largest_weight) < 1.0001


@pytest.mark.parametrize("objective", ["decoupled_ppo", "ppo"])
def test_at_lag_2_importance_weights_deviate_from_1(
    tiny_model: Path, dataset: Path, objective: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.bench import lagged_training

    versions: list[set[int]] = []
    real = lagged_training.plan_batch

    def plan_batch(groups, *, version, **more):
        # Without a right answer there is no gradient: give the batch a signal, so that the policy moves.
        signal = [replace_rewards(group) for group in groups]
        versions.append(
            {version - v for group in groups for one in group.trajectories for v in one.policy_versions}
        )
        return real(signal, version=version, **more)

    monkeypatch.setattr(lagged_training, "plan_batch", plan_batch)
    curve = train_at_lag(
        replace(TINY, lag=2, objective=objective), model_directory=tiny_model, dataset=dataset
    )
    assert versions == [{0}, {1}, {2}, {2}]
    assert curve.mean_abs_log_weight[0] < 1e-5 < 1e-3 < curve.mean_abs_log_weight[3]


def replace_rewards(group):
    import msgspec

    members = [
        msgspec.structs.replace(one, reward=float(number % 2))
        for number, one in enumerate(group.trajectories)
    ]
    return msgspec.structs.replace(group, trajectories=members)


def test_ablation_table_compares_each_seed_with_its_own_lag_0() -> None:
    def curve(objective: str, lag: int, seed: int, reward: float) -> dict:
        return {
            "setting": {"objective": objective, "lag": lag, "seed": seed, "learning_rate": 1.0, "prompts": 2,
                        "steps": 1},
            "reward": [0.0] * 20 + [2 * reward] * 20, "largest_weight": [1.0, 2.0 * seed, 1.5],
            "mean_abs_log_weight": [0.0, 0.2 * seed], "nonfinite_steps": 0,
        }  # fmt: skip

    curves = [
        curve("decoupled_ppo", 0, 1, 0.8), curve("decoupled_ppo", 0, 2, 0.5), curve("decoupled_ppo", 8, 1, 0.4),
        curve("decoupled_ppo", 8, 2, 0.5), curve("ppo", 8, 1, 0.2),
    ]  # fmt: skip
    rows = table(curves, replace(TINY, learning_rate=1.0, prompts=2, steps=1))
    assert [(row["lag"], row["objective"]) for row in rows] == [
        (0, "decoupled_ppo"),
        (8, "decoupled_ppo"),
        (8, "ppo"),
    ]
    [first, *_] = rows
    assert first["curve_means"] == [0.8, 0.5] and first["last_20_means"] == [1.6, 1.0]
    assert first["largest_weight"] == 4.0 and first["mean_abs_log_weight"] == pytest.approx(0.15)
    assert over_lag_0(rows, lag=8, objective="decoupled_ppo") == {1: 0.5, 2: 1.0}
    assert over_lag_0(rows, lag=8, objective="ppo") == {1: 0.25}


def test_ablation_covers_lags_objectives_seeds_and_learning_rates() -> None:
    assert set(LAGS) == {0, 1, 2, 4, 8, 16} and len(SEEDS) >= 2
    found = {(one.learning_rate, one.lag, one.objective, one.seed) for one in wanted()}
    for seed in SEEDS:
        for lag in LAGS:
            for objective in ("decoupled_ppo", "ppo") if lag else ("decoupled_ppo",):
                assert (PAPER_LIKE.learning_rate, lag, objective, seed) in found
    assert TOO_FAST.learning_rate > PAPER_LIKE.learning_rate
    assert {(lag, objective) for rate, lag, objective, _ in found if rate == TOO_FAST.learning_rate} >= {
        (8, "decoupled_ppo"), (8, "ppo"), (16, "decoupled_ppo"), (16, "ppo"),
    }  # fmt: skip
