"""The terms beside the objective: behavior weights, KL, value loss, normalisation, what is made of a batch."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from msgspec.structs import replace

from oolong.contracts.rollout import Group, Trajectory, Turn
from oolong.contracts.run_spec import AlgorithmSection, BehaviourWeightSection, OverlongSection
from trainers.algorithms.advantages import rollout_advantages
from trainers.algorithms.importance_weights import compute_importance_weights
from trainers.algorithms.kl import KL_ESTIMATORS, reference_kl
from trainers.algorithms.loss_aggregation import token_weights
from trainers.algorithms.reward_shaping import apply_reward_shaping, overlong_penalty, shaping_metrics
from trainers.algorithms.value_loss import value_loss

SEQUENCE = torch.tensor([0, 0, 1, 1, 1])
LOG_WEIGHT = torch.log(torch.tensor([3.0, 0.5, 2.0, 4.0, 1.0], dtype=torch.float64))


def weights(**section: object) -> list[float]:
    chosen = BehaviourWeightSection.model_validate(section)
    return compute_importance_weights(LOG_WEIGHT, SEQUENCE, 2, chosen, list).bounded.tolist()


def test_a_weight_over_its_limit_is_masked_capped_or_kept() -> None:
    assert weights(mode="mask", limit=2.5) == pytest.approx([0, 0.5, 2, 0, 1])
    assert weights(mode="cap", limit=2.5) == pytest.approx([2.5, 0.5, 2, 2.5, 1])
    assert weights(mode="none", limit=2.5) == pytest.approx([3, 0.5, 2, 4, 1])


def test_only_a_weight_over_the_limit_is_limited_and_none_where_nothing_is() -> None:
    at_the_limit = torch.zeros(5, dtype=torch.float64)  # w = 1
    for mode, limited in (("mask", False), ("cap", False), ("none", False)):
        section = BehaviourWeightSection.model_validate({"mode": mode, "limit": 1.0})
        found = compute_importance_weights(at_the_limit, SEQUENCE, 2, section, list)
        assert found.bounded.tolist() == [1.0] * 5 and bool(found.out_of_bounds.any()) is limited
    for mode, limited in (("mask", True), ("cap", True), ("none", False)):
        section = BehaviourWeightSection.model_validate({"mode": mode, "limit": 1.5})
        found = compute_importance_weights(LOG_WEIGHT, SEQUENCE, 2, section, list)
        assert found.out_of_bounds.tolist() == [limited, False, limited, limited, False]
        assert found.raw.tolist() == pytest.approx([3, 0.5, 2, 4, 1])


def test_a_two_sided_mask_leaves_out_what_is_under_its_lower_limit_too() -> None:
    """w = 3, 1/2, 2, 4, 1."""
    assert weights(mode="mask", limit=3.5, lower_limit=0.75) == pytest.approx([3, 0, 2, 0, 1])
    assert weights(mode="mask", limit=3.5, lower_limit=0.25) == pytest.approx([3, 0.5, 2, 0, 1])
    section = BehaviourWeightSection(limit=3.5, lower_limit=0.75)
    found = compute_importance_weights(LOG_WEIGHT, SEQUENCE, 2, section, list)
    assert found.out_of_bounds.tolist() == [False, True, False, True, False]
    of_sequences = {"mode": "mask", "level": "sequence_mean", "limit": 3.5, "lower_limit": 0.99}
    assert weights(**of_sequences) == pytest.approx([1.5**0.5] * 2 + [2.0] * 3)


def test_the_weight_of_a_sequence_is_the_product_of_its_tokens_or_its_root() -> None:
    assert weights(mode="none", level="sequence") == pytest.approx([1.5, 1.5, 8, 8, 8])
    assert weights(mode="none", level="sequence_mean") == pytest.approx([1.5**0.5] * 2 + [2.0] * 3)
    assert weights(mode="mask", level="sequence", limit=5.0) == pytest.approx([1.5, 1.5, 0, 0, 0])
    assert weights(mode="cap", level="sequence_mean", limit=1.5) == pytest.approx([1.5**0.5] * 2 + [1.5] * 3)


def test_the_second_moment_is_brought_under_its_bound_by_as_few_tokens_as_will_do() -> None:
    rng = torch.Generator().manual_seed(3)
    log_weight = 0.6 * torch.randn(500, generator=rng, dtype=torch.float64)
    section = BehaviourWeightSection(mode="second_moment", limit=0.04)
    found = compute_importance_weights(log_weight, torch.zeros(500, dtype=torch.long), 1, section, list)
    kept = log_weight[~found.out_of_bounds].square()
    assert 0.2 < found.out_of_bounds.double().mean() < 0.9 and float(kept.mean()) <= 0.04
    smallest_masked = log_weight[found.out_of_bounds].square().min()
    assert float(smallest_masked) >= float(kept.max())
    assert float(torch.cat([kept, smallest_masked[None]]).mean()) > 0.04
    assert bool((found.bounded[found.out_of_bounds] == 0).all())

    def with_many_fresh_ones_elsewhere(values: Sequence[float]) -> list[float]:
        return [values[0] + 1e6, values[1]]

    everywhere = compute_importance_weights(
        log_weight, torch.zeros(500, dtype=torch.long), 1, section, with_many_fresh_ones_elsewhere
    )
    assert not everywhere.out_of_bounds.any()


def test_a_batch_within_the_second_moment_bound_keeps_every_token() -> None:
    assert weights(mode="second_moment", limit=100.0) == pytest.approx([3, 0.5, 2, 4, 1])


def categorical(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(logits with gradient, log current, log reference) of a 6-way choice."""
    rng = torch.Generator().manual_seed(seed)
    logits = torch.randn(6, generator=rng, dtype=torch.float64).requires_grad_()
    return logits, logits.log_softmax(0), torch.randn(6, generator=rng, dtype=torch.float64).log_softmax(0)


def test_k1_and_k3_are_unbiased_and_k3_is_never_negative() -> None:
    _, current, reference = categorical(1)
    kl = float((current.exp() * (current - reference)).sum())
    expected = {
        name: float((current.exp() * reference_kl(current, reference, estimator=name)).sum())
        for name in KL_ESTIMATORS
    }
    assert expected["k1"] == pytest.approx(kl) and expected["k3"] == pytest.approx(kl)
    assert expected["k2"] != pytest.approx(kl, rel=1e-3)
    assert bool((reference_kl(current, reference, estimator="k3") > 0).all())
    assert bool((reference_kl(current, reference, estimator="k1") < 0).any())


def test_all_estimators_agree_to_second_order_where_the_policies_nearly_agree() -> None:
    difference = torch.tensor([1e-4], dtype=torch.float64)
    k2, k3 = (KL_ESTIMATORS[name](difference) for name in ("k2", "k3"))
    assert float(k3) == pytest.approx(float(k2), rel=1e-3)


def test_as_losses_k1_does_nothing_k2_pulls_along_kl_and_k3_along_the_reverse_kl() -> None:
    logits, current, reference = categorical(2)

    def of(loss: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(loss, logits, retain_graph=True)[0]

    def expected(name: str) -> torch.Tensor:
        return of((current.exp().detach() * reference_kl(current, reference, estimator=name)).sum())

    assert float(expected("k1").abs().max()) < 1e-15
    torch.testing.assert_close(expected("k2"), of((current.exp() * (current - reference)).sum()))
    torch.testing.assert_close(expected("k3"), of((reference.exp() * (reference - current)).sum()))


def test_weighted_by_current_over_behaviour_stale_tokens_pull_as_fresh_ones_do() -> None:
    """Over tokens that another policy sampled, with w u = current / behavior and without gradient: the gradients of k1
    and k2 are those of fresh tokens. Without it k1 has a gradient, and k2 another one."""
    logits, current, reference = categorical(2)
    _, behavior, _ = categorical(5)

    def of(loss: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(loss, logits, retain_graph=True)[0]

    def expected(name: str, *, corrected: bool) -> torch.Tensor:
        term = reference_kl(current, reference, estimator=name)
        factor = (current.detach() - behavior.detach()).exp() if corrected else 1.0
        return of((behavior.exp().detach() * factor * term).sum())

    assert float(expected("k1", corrected=True).abs().max()) < 1e-15
    assert float(expected("k1", corrected=False).abs().max()) > 1e-3
    wanted = of((current.exp() * (current - reference)).sum())
    torch.testing.assert_close(expected("k2", corrected=True), wanted)
    assert not torch.allclose(expected("k2", corrected=False), wanted, rtol=1e-2)


def test_a_value_that_has_moved_far_towards_its_return_gets_no_more_gradient() -> None:
    old, returns = torch.zeros(4, dtype=torch.float64), torch.tensor([1.0, 1.0, 1.0, -1.0]).double()
    values = torch.tensor([0.1, 0.5, -0.5, 0.5], dtype=torch.float64, requires_grad=True)
    result = value_loss(values, old, returns, clip=0.2)
    assert result.loss.tolist() == pytest.approx([0.405, 0.32, 1.125, 1.125])
    assert result.clipped.tolist() == [False, True, False, False]
    [slope] = torch.autograd.grad(result.loss.sum(), values)
    assert slope.tolist() == pytest.approx([-0.9, 0.0, -1.5, 1.5])
    free = value_loss(values, old, returns, clip=None)
    assert free.loss.tolist() == pytest.approx([0.405, 0.125, 1.125, 1.125])


def test_the_three_normalisations_of_two_sequences_of_one_and_three_tokens() -> None:
    lengths = torch.tensor([1.0, 3.0, 3.0, 3.0])
    given = {"loss_tokens": 4, "loss_sequences": 2, "constant_tokens": 10}
    assert token_weights(lengths, mode="tokens", **given).tolist() == [0.25] * 4
    assert token_weights(lengths, mode="sequences", **given).tolist() == pytest.approx(
        [1 / 2, 1 / 6, 1 / 6, 1 / 6]
    )
    assert token_weights(lengths, mode="constant", **given).tolist() == pytest.approx([0.05] * 4)


def test_leave_one_out_compares_a_reward_with_the_mean_of_the_others() -> None:
    [found] = rollout_advantages(
        [[1.0, 0.0, 0.0, 3.0]], mean="group", std="none", epsilon=1e-4, leave_one_out=True
    )
    assert found == pytest.approx([1 - 3 / 3, 0 - 4 / 3, 0 - 4 / 3, 3 - 1 / 3])
    assert rollout_advantages([[0.1] * 7], mean="group", std="none", epsilon=1e-4, leave_one_out=True) == [
        [0.0] * 7
    ]


def test_the_overlong_penalty_falls_linearly_over_the_margin() -> None:
    section = OverlongSection(margin_tokens=4, penalty=2.0)
    found = [overlong_penalty(length, section, max_new_tokens=10) for length in (1, 6, 7, 8, 10, 12)]
    assert found == [0.0, 0.0, -0.5, -1.0, -2.0, -2.0]


def trajectory(length: int, finish: str) -> Trajectory:
    return Trajectory(
        token_ids=[7] * length, loss_mask=[1] * length, behaviour_logprobs=[-1.0] * length,
        policy_versions=[0] * length, finish_reason=finish, reward=1.0,  # type: ignore[arg-type]
    )  # fmt: skip


GROUP = Group(
    group_id="0-0-0", row=0, prompt_token_ids=[1], prompt="", answer="",
    trajectories=[trajectory(5, "stop"), trajectory(9, "stop"), trajectory(10, "length")],
)  # fmt: skip


def test_a_truncated_completion_leaves_the_loss_and_keeps_its_reward() -> None:
    algorithm = AlgorithmSection(mask_truncated=True)
    [found] = apply_reward_shaping([GROUP], algorithm, max_new_tokens=10)
    assert [sum(one.loss_mask) for one in found.trajectories] == [5, 9, 0]
    assert [one.reward for one in found.trajectories] == [1.0, 1.0, 1.0]
    assert shaping_metrics([GROUP], algorithm, max_new_tokens=10) == {
        "length/masked_share": pytest.approx(1 / 3)
    }


def test_nearly_overlong_completions_lose_reward_and_the_batch_itself_is_left_alone() -> None:
    algorithm = AlgorithmSection(overlong=OverlongSection(margin_tokens=2))
    [found] = apply_reward_shaping([GROUP], algorithm, max_new_tokens=10)
    assert [one.reward for one in found.trajectories] == [1.0, 0.5, 0.0]
    assert [one.reward for one in GROUP.trajectories] == [1.0, 1.0, 1.0]
    metrics = shaping_metrics([GROUP], algorithm, max_new_tokens=10)
    assert metrics["length/overlong_share"] == pytest.approx(2 / 3)
    assert metrics["reward/overlong_penalty_mean"] == pytest.approx(-0.5)


def test_what_an_environment_wrote_makes_no_completion_overlong() -> None:
    turns = replace(GROUP.trajectories[2], loss_mask=[1] * 4 + [0] * 3 + [1] * 3)
    algorithm = AlgorithmSection(overlong=OverlongSection(margin_tokens=2))
    [found] = apply_reward_shaping([replace(GROUP, trajectories=[turns])], algorithm, max_new_tokens=10)
    assert found.trajectories[0].reward == 1.0


def with_turns(*tokens: int, rollout: int | None = None) -> Trajectory:
    """Turns of the policy with one token of the environment between them."""
    turns = [
        turn
        for length in tokens
        for turn in (Turn(tokens=length, sampled=True), Turn(tokens=1, sampled=False))
    ]
    mask = [int(turn.sampled) for turn in turns[:-1] for _ in range(turn.tokens)]
    return Trajectory(
        token_ids=[7] * len(mask), loss_mask=mask, behaviour_logprobs=[0.0] * len(mask),
        policy_versions=[0] * len(mask), finish_reason="stop", turns=turns[:-1], reward=1.0, rollout=rollout,
    )  # fmt: skip


def test_each_turn_is_held_against_the_limit_of_a_turn_and_not_their_sum() -> None:
    """Limit 10 and margin 2: three turns of 4 tokens are 12 together and free; one turn of 9 costs half."""
    algorithm = AlgorithmSection(overlong=OverlongSection(margin_tokens=2))
    group = replace(GROUP, trajectories=[with_turns(4, 4, 4), with_turns(4, 9, 3), with_turns(10)])
    [found] = apply_reward_shaping([group], algorithm, max_new_tokens=10)
    assert [one.reward for one in found.trajectories] == [1.0, 0.5, 0.0]
    metrics = shaping_metrics([group], algorithm, max_new_tokens=10)
    assert metrics["length/overlong_share"] == pytest.approx(2 / 3)


def test_all_trajectories_of_a_rollout_share_the_penalty_of_its_longest_turn() -> None:
    algorithm = AlgorithmSection(overlong=OverlongSection(margin_tokens=2))
    group = replace(
        GROUP, trajectories=[with_turns(3, rollout=0), with_turns(9, rollout=0), with_turns(3, rollout=1)]
    )
    [found] = apply_reward_shaping([group], algorithm, max_new_tokens=10)
    assert [one.reward for one in found.trajectories] == [0.5, 0.5, 1.0]
    metrics = shaping_metrics([group], algorithm, max_new_tokens=10)
    assert metrics["length/overlong_share"] == 0.5 and metrics["reward/overlong_penalty_mean"] == -0.25


def test_without_shaping_the_groups_are_the_groups() -> None:
    assert apply_reward_shaping([GROUP], AlgorithmSection(), max_new_tokens=10)[0] is GROUP
    assert math.isclose(overlong_penalty(10, OverlongSection(margin_tokens=1), max_new_tokens=10), -1.0)
