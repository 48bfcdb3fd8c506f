"""What an algorithm section may combine, and where the pointer goes when it may not."""

from __future__ import annotations

from typing import Any

import pytest

from oolong.contracts.run_spec import AlgorithmSection, spec_errors
from oolong.contracts.run_spec.algorithm import OBJECTIVE_OPTIONS

GAE = {"estimator": "gae", "mean": "batch", "std": "batch"}


def faults(**algorithm: Any) -> dict[str, str]:
    document = {
        "name": "a", "model": {"base_model": "bm_1"}, "dataset": {"version": "d@1"}, "algorithm": algorithm,
    }  # fmt: skip
    return {error.pointer: error.code for error in spec_errors(document)}


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        ({"objective": "a3po"}, {"/algorithm/proximal": "proximal_superfluous"}),
        ({"objective": "a3po", "proximal": "none"}, {}),
        ({"objective": "ppo", "proximal": "none"}, {}),
        ({"critic": {}}, {"/algorithm/critic": "critic_without_gae"}),
        ({"critic": {}, "advantage": GAE}, {}),
        ({"kl": {}}, {}),
        ({"kl": {"apply_to": "reward"}}, {"/algorithm/kl/apply_to": "kl_reward_without_gae"}),
        ({"kl": {"apply_to": "reward"}, "advantage": GAE}, {}),
        ({"kl": {"apply_to": "reward"}, "advantage": GAE, "objective": "ppo", "proximal": "none"},
         {"/algorithm/kl/apply_to": "kl_reward_without_proximal"}),
        ({"advantage": {"leave_one_out": True}}, {}),
        ({"advantage": {"leave_one_out": True, "mean": "batch"}},
         {"/algorithm/advantage/leave_one_out": "leave_one_out"}),
        ({"advantage": {"gamma": 0.9}}, {"/algorithm/advantage/gamma": "discount_needs_gae"}),
        ({"advantage": {"gae_lambda": 0.9}}, {"/algorithm/advantage/gamma": "discount_needs_gae"}),
        ({"dual_clip": 3.0}, {}),
        ({"dual_clip": 1.0}, {"/algorithm/dual_clip": "greater_than"}),
        ({"dual_clip": 3.0, "objective": "cispo"}, {"/algorithm/dual_clip": "dual_clip_without_say"}),
        ({"options": {"temperature_positive": 1.0}}, {"/algorithm/options/temperature_positive": "unknown_option"}),
        ({"options": {"temperature_positive": 1.0}, "objective": "sapo"}, {}),
        ({"options": {"anything": 1.0}, "loss_function": "mine@1"}, {}),
        ({"importance_weight": {"mode": "second_moment", "level": "sequence"}},
         {"/algorithm/importance_weight/level": "second_moment_of_tokens"}),
        ({"importance_weight": {"lower_threshold": 0.5}}, {}),
        ({"importance_weight": {"lower_threshold": 0.5, "mode": "truncate"}},
         {"/algorithm/importance_weight/lower_threshold": "lower_threshold_of_mask"}),
        ({"importance_weight": {"lower_threshold": 0.5, "threshold": 0.9}},
         {"/algorithm/importance_weight/threshold": "band_without_one"}),
        ({"importance_weight": {"lower_threshold": 1.5}},
         {"/algorithm/importance_weight/lower_threshold": "less_than_equal"}),
        ({"advantage": {"std_of": "sample"}}, {}),
        ({"advantage": {"std": "none", "std_of": "sample"}}, {"/algorithm/advantage/std_of": "std_of_nothing"}),
        ({"kl": {"importance_correction": True}}, {}),
        ({"kl": {"apply_to": "reward", "importance_correction": True}, "advantage": GAE},
         {"/algorithm/kl/importance_correction": "kl_corrected_twice"}),
        ({"overlong": {"margin_tokens": 4096}}, {"/algorithm/overlong/margin_tokens": "margin_too_wide"}),
        ({"overlong": {"margin_tokens": 4095}}, {}),
    ],
)  # fmt: skip
def test_terms_combine_or_say_why_not(algorithm: dict[str, Any], expected: dict[str, str]) -> None:
    assert faults(**algorithm) == expected


def test_every_objective_has_its_line_of_options() -> None:
    field = AlgorithmSection.model_fields["objective"].annotation
    assert set(OBJECTIVE_OPTIONS) == set(field.__args__)  # type: ignore[union-attr]
    given = AlgorithmSection(objective="sapo", options={"temperature_negative": 1.2})
    assert (given.option("temperature_positive"), given.option("temperature_negative")) == (1.0, 1.2)
