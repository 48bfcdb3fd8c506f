"""Identities of the policy losses, in float64."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from oolong.contracts.run_spec import AlgorithmSection
from oolong.contracts.run_spec.algorithm import OBJECTIVE_OPTIONS
from trainers.algorithms.importance_weights import compute_importance_weights
from trainers.algorithms.losses import OBJECTIVES, LossInputs, LossOutputs

Tokens = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def tokens(seed: int, count: int = 400) -> Tokens:
    """(current with gradient, proximal, behavior, advantages): ratios far enough apart to be clipped at times."""
    rng = torch.Generator().manual_seed(seed)
    behavior = -3 * torch.rand(count, generator=rng, dtype=torch.float64)
    proximal = behavior + 0.8 * torch.randn(count, generator=rng, dtype=torch.float64)
    current = (proximal + 0.3 * torch.randn(count, generator=rng, dtype=torch.float64)).requires_grad_()
    advantage = torch.randn(count, generator=rng, dtype=torch.float64)
    return current, proximal, behavior, advantage


def run(
    objective: str,
    current: torch.Tensor,
    proximal: torch.Tensor,
    behavior: torch.Tensor,
    advantage: torch.Tensor,
    *,
    sequence: torch.Tensor | None = None,
    lag: int = 0,
    **settings: Any,
) -> LossOutputs:
    """The objective as the learner calls it; weights are kept whatever they are, unless settings say otherwise."""
    section = AlgorithmSection.model_validate(
        {
            "objective": objective, "proximal": "none" if objective == "a3po" else "recompute",
            "importance_weight": {"mode": "none"}, **settings,
        }
    )  # fmt: skip
    sequence = torch.zeros(len(proximal), dtype=torch.long) if sequence is None else sequence
    sequences = int(sequence.max()) + 1
    weights = compute_importance_weights(
        proximal - behavior, sequence, sequences, section.importance_weight, list
    )
    given = LossInputs(
        logprobs=current, proximal_logprobs=proximal, behavior_logprobs=behavior, advantages=advantage,
        importance_weights=weights.bounded,
        version_lag=torch.full_like(sequence, lag), sequence_ids=sequence, num_sequences=sequences,
    )  # fmt: skip
    return OBJECTIVES[objective](given, section)


def gradient(loss: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad(loss.sum(), of)[0]


def test_decoupled_ppo_equals_ppo_if_behavior_is_proximal() -> None:
    current, proximal, _, advantage = tokens(1)
    one = run("decoupled_ppo", current, proximal, proximal, advantage).loss
    other = run("ppo", current, proximal, proximal, advantage).loss
    assert torch.equal(one, other)
    assert torch.equal(gradient(one, current), gradient(other, current))


def test_gradient_is_minus_w_r_a_where_unclipped_and_zero_elsewhere() -> None:
    current, proximal, behavior, advantage = tokens(2)
    result = run("decoupled_ppo", current, proximal, behavior, advantage)
    clipped = result.clipped_low | result.clipped_high
    assert 0.05 < clipped.double().mean() < 0.6
    weight, ratio = (proximal - behavior).exp(), (current - proximal).exp().detach()
    expected = torch.where(clipped, torch.zeros_like(ratio), -weight * ratio * advantage)
    torch.testing.assert_close(gradient(result.loss, current), expected, atol=1e-13, rtol=1e-13)
    torch.testing.assert_close(weight * ratio, (current.detach() - behavior).exp(), atol=0, rtol=1e-13)


def test_gradient_at_the_proximal_policy_is_minus_w_a() -> None:
    _, proximal, behavior, advantage = tokens(3)
    current = proximal.clone().requires_grad_()
    result = run("decoupled_ppo", current, proximal, behavior, advantage)
    assert torch.equal(gradient(result.loss, current), -(proximal - behavior).exp() * advantage)


@pytest.mark.parametrize("threshold", [1.0, 2.0, 5.0])
def test_masked_tokens_have_zero_loss_and_others_are_unchanged(threshold: float) -> None:
    current, proximal, behavior, advantage = tokens(4)
    free = run("decoupled_ppo", current, proximal, behavior, advantage)
    weight = {"mode": "mask", "threshold": threshold}
    masked = run("decoupled_ppo", current, proximal, behavior, advantage, importance_weight=weight)
    over = (proximal - behavior).exp() > threshold
    assert bool(over.any())
    assert bool((masked.loss[over] == 0).all()) and torch.equal(masked.loss[~over], free.loss[~over])
    assert bool((gradient(masked.loss, current)[over] == 0).all())
    assert len(masked.loss) == len(free.loss)  # the caller's denominator does not change


def test_masked_token_is_not_counted_as_clipped() -> None:
    current, proximal, behavior, advantage = tokens(4)
    mask = {"mode": "mask", "threshold": 2.0}
    over = (proximal - behavior).exp() > 2.0
    given = (current, proximal, behavior, advantage)
    free = run("decoupled_ppo", *given, dual_clip=1.3)
    masked = run("decoupled_ppo", *given, dual_clip=1.3, importance_weight=mask)
    for name in ("clipped_low", "clipped_high", "dual_clipped"):
        of_free, of_masked = getattr(free, name), getattr(masked, name)
        assert bool(of_free[over].any()) and torch.equal(of_masked, of_free & ~over), name


def test_truncated_weights_equal_the_bound() -> None:
    current, proximal, behavior, advantage = tokens(5)
    free = run("decoupled_ppo", current, proximal, behavior, advantage)
    truncate = {"mode": "truncate", "threshold": 2.0}
    capped = run("decoupled_ppo", current, proximal, behavior, advantage, importance_weight=truncate)
    weight = (proximal - behavior).exp()
    torch.testing.assert_close(capped.loss[weight > 2], (free.loss * 2.0 / weight)[weight > 2])
    assert torch.equal(capped.loss[weight <= 2], free.loss[weight <= 2])


def test_loss_is_minus_the_advantage_when_all_policies_agree() -> None:
    _, proximal, _, advantage = tokens(6)
    for objective in ("decoupled_ppo", "ppo", "gspo", "a3po"):
        result = run(objective, proximal, proximal, proximal, advantage)
        assert torch.equal(result.loss, -advantage)


def test_clipping_around_the_behavior_policy_zeroes_gradients_of_stale_tokens() -> None:
    _, proximal, behavior, advantage = tokens(7)
    current = proximal.clone().requires_grad_()
    naive = run("ppo", current, behavior, behavior, advantage)
    decoupled_one = run("decoupled_ppo", current, proximal, behavior, advantage)
    of_naive, of_decoupled = gradient(naive.loss, current), gradient(decoupled_one.loss, current)
    silent = of_naive == 0
    assert silent.double().mean() > 0.2
    assert bool((of_decoupled != 0).all())
    torch.testing.assert_close(of_naive[~silent], of_decoupled[~silent], atol=0, rtol=1e-12)


def test_expected_decoupled_gradient_is_the_policy_gradient_and_the_naive_one_is_not() -> None:
    rng = torch.Generator().manual_seed(8)
    logits = torch.randn(5, generator=rng, dtype=torch.float64).requires_grad_()
    behavior = torch.randn(5, generator=rng, dtype=torch.float64).log_softmax(0)
    advantage = torch.randn(5, generator=rng, dtype=torch.float64)
    current = logits.log_softmax(0)
    true = torch.autograd.grad((current.exp() * advantage).sum(), logits, retain_graph=True)[0]

    def expected(objective: str) -> torch.Tensor:
        center = behavior if objective == "ppo" else current.detach()
        result = run(objective, current, center, behavior, advantage)
        return torch.autograd.grad(-(behavior.exp() * result.loss).sum(), logits, retain_graph=True)[0]

    assert float((expected("decoupled_ppo") - true).abs().max()) < 1e-15
    assert float((expected("ppo") - true).abs().max()) > 1e-2


def test_infinite_weight_is_masked_without_nan() -> None:
    current = torch.tensor([-1.0, -1.0], dtype=torch.float32, requires_grad=True)
    proximal, behavior = torch.tensor([-1.0, -1.0]), torch.tensor([-1000.0, -1.0])
    mask = {"mode": "mask", "threshold": 5.0}
    result = run(
        "decoupled_ppo", current, proximal, behavior, torch.tensor([1.0, 1.0]), importance_weight=mask
    )
    assert result.loss.tolist() == [0.0, -1.0] and gradient(result.loss, current).tolist() == [0.0, -1.0]


def test_dual_clip_bounds_the_loss_of_negative_advantages_and_marks_tokens() -> None:
    current, proximal, behavior, _ = tokens(10)
    advantage = -torch.ones_like(proximal)
    free = run("ppo", current, proximal, behavior, advantage)
    bound = run("ppo", current, proximal, behavior, advantage, dual_clip=1.4)
    over = (current - proximal).exp() > 1.4
    assert torch.equal(bound.dual_clipped, over) and 0.05 < over.double().mean() < 0.3
    assert bool((bound.loss[over] == 1.4).all()) and torch.equal(bound.loss[~over], free.loss[~over])
    assert bool((gradient(bound.loss, current)[over] == 0).all())
    good = run("ppo", current, proximal, behavior, -advantage, dual_clip=1.4)
    assert torch.equal(good.loss, run("ppo", current, proximal, behavior, -advantage).loss)
    assert good.dual_clipped is not None and not good.dual_clipped.any()


def test_clip_higher_allows_larger_increases_than_decreases() -> None:
    current = torch.log(torch.tensor([1.25, 1.25, 0.75, 0.75], dtype=torch.float64)).requires_grad_()
    zero, advantage = torch.zeros(4, dtype=torch.float64), torch.tensor([1.0, -1.0, 1.0, -1.0]).double()
    result = run("ppo", current, zero, zero, advantage, clip_low=0.2, clip_high=0.28)
    assert result.clipped_high is not None and result.clipped_low is not None
    assert result.clipped_high.tolist() == [False] * 4 and result.clipped_low.tolist() == [False] * 3 + [True]
    assert result.loss.tolist() == pytest.approx([-1.25, 1.25, -0.75, 0.8])


def test_gspo_clips_sequences_by_the_geometric_mean_ratio() -> None:
    sequence = torch.tensor([0, 0, 1, 1, 1])
    log_ratio = torch.tensor([0.3, -0.1, 0.5, 0.4, 0.6], dtype=torch.float64)
    proximal = torch.full((5,), -1.0, dtype=torch.float64)
    current = (proximal + log_ratio).requires_grad_()
    advantage = torch.tensor([2.0, 2.0, 1.0, 1.0, 1.0], dtype=torch.float64)
    result = run("gspo", current, proximal, proximal, advantage, sequence=sequence)
    first, second = math.exp(0.1), math.exp(0.5)
    assert result.ratio is not None and result.clipped_high is not None
    assert result.ratio.tolist() == pytest.approx([first] * 2 + [second] * 3)
    assert result.loss.tolist() == pytest.approx([-2 * first] * 2 + [-1.2] * 3)
    assert result.clipped_high.tolist() == [False] * 2 + [True] * 3
    stale = run("gspo", current, proximal, proximal - 0.1, advantage, sequence=sequence)
    assert stale.loss.tolist() == pytest.approx([math.exp(0.1) * one for one in result.loss.tolist()])


def test_gspo_with_seq_mean_equals_the_papers_sequence_objective() -> None:
    current, proximal, _, _ = tokens(11, 60)
    sequence = torch.arange(6).repeat_interleave(torch.tensor([1, 5, 9, 12, 13, 20]))
    of_sequence = torch.randn(6, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    result = run("gspo", current, proximal, proximal, of_sequence[sequence], sequence=sequence)
    lengths = torch.bincount(sequence)
    ours = (result.loss / lengths[sequence]).sum() / 6
    means = torch.stack([(current - proximal)[sequence == one].mean() for one in range(6)])
    ratio = means.exp()
    theirs = -torch.minimum(ratio * of_sequence, ratio.clamp(0.8, 1.2) * of_sequence).mean()
    torch.testing.assert_close(ours, theirs, atol=1e-14, rtol=1e-13)
    torch.testing.assert_close(
        torch.autograd.grad(ours, current, retain_graph=True)[0],
        torch.autograd.grad(theirs, current)[0],
        atol=1e-15, rtol=1e-12,
    )  # fmt: skip


def test_cispo_keeps_every_gradient_and_bounds_the_weight() -> None:
    current, proximal, behavior, advantage = tokens(12)
    result = run("cispo", current, proximal, behavior, advantage, clip_low=1.0, clip_high=0.2)
    weight = (proximal - behavior).exp()
    ratio = (current - proximal).exp().detach()
    torch.testing.assert_close(
        gradient(result.loss, current), -weight * ratio.clamp(max=1.2) * advantage, atol=0, rtol=1e-14
    )
    assert result.clipped_high is not None and torch.equal(result.clipped_high, ratio > 1.2)
    bounded = run("cispo", current, proximal, behavior, advantage, clip_low=0.3, clip_high=0.2)
    assert bounded.clipped_low is not None and torch.equal(bounded.clipped_low, ratio < 0.7)
    assert torch.equal(bounded.clipped_high, ratio > 1.2)


def test_sapo_gate_has_ppos_gradient_at_ratio_1_and_decays_faster_for_negative_advantages() -> None:
    _, proximal, _, advantage = tokens(13)
    current = proximal.clone().requires_grad_()
    result = run("sapo", current, proximal, proximal, advantage)
    torch.testing.assert_close(gradient(result.loss, current), -advantage, atol=0, rtol=1e-14)
    away = (proximal + math.log(3.0)).requires_grad_()

    def slope(of: float, temperature: float) -> float:
        one = torch.full_like(proximal, of)
        given = {"temperature_positive": temperature, "temperature_negative": temperature}
        found = gradient(run("sapo", away, proximal, proximal, one, options=given).loss, away)
        return float(found[0].abs())

    gate = 1 / (1 + math.exp(-2.0))
    assert slope(1.0, 1.0) == pytest.approx(4 * gate * (1 - gate) * 3.0)
    assert slope(-1.0, 1.05) < slope(-1.0, 1.0) < 3.0


@pytest.mark.parametrize("objective", ["decoupled_ppo", "gspo", "cispo", "sapo"])
def test_every_objective_except_ppo_applies_the_importance_weight(objective: str) -> None:
    current, proximal, behavior, advantage = tokens(16)
    weight = (proximal - behavior).exp()
    fresh = run(objective, current, proximal, proximal, advantage).loss
    stale = run(objective, current, proximal, behavior, advantage).loss
    torch.testing.assert_close(stale, weight * fresh, atol=0, rtol=1e-13)
    naive = [run("ppo", current, proximal, of, advantage).loss for of in (proximal, behavior)]
    assert torch.equal(*naive)


@pytest.mark.parametrize("lag", [0, 1, 3])
def test_a3po_interpolates_the_proximal_policy_between_behavior_and_current(lag: int) -> None:
    current, _, behavior, advantage = tokens(14)
    result = run("a3po", current, behavior, behavior, advantage, lag=lag)
    away = (current - behavior).detach()
    ratio, weight = (away / (lag + 1)).exp(), (away * lag / (lag + 1)).exp()
    torch.testing.assert_close(result.ratio, ratio, atol=0, rtol=1e-12)
    expected = -weight * torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
    torch.testing.assert_close(result.loss, expected, atol=0, rtol=1e-12)
    if lag == 0:
        naive = run("ppo", current, behavior, behavior, advantage)
        torch.testing.assert_close(result.loss, naive.loss, atol=0, rtol=1e-12)


@pytest.mark.parametrize("objective", sorted(set(OBJECTIVES) - {"gspo"}))
def test_gradients_agree_with_finite_differences(objective: str) -> None:
    """Of the loss as a function of the current log-probabilities, with what is a constant to it held fixed."""
    current, proximal, behavior, advantage = tokens(15, 40)
    lag = 2
    fixed = current.detach()

    def total(at: torch.Tensor) -> torch.Tensor:
        if objective == "cispo":
            ratio = (fixed - proximal).exp().clamp(0.8, 1.2)
            return -((proximal - behavior).exp() * ratio * advantage * at).sum()
        if objective == "a3po":
            center = behavior + (fixed - behavior) * lag / (lag + 1)
            return run("decoupled_ppo", at, center, behavior, advantage).loss.sum()
        return run(objective, at, proximal, behavior, advantage).loss.sum()

    found = gradient(run(objective, current, proximal, behavior, advantage, lag=lag).loss, current)
    for number in range(40):
        step = torch.zeros(40, dtype=torch.float64)
        step[number] = 1e-6
        slope = (total(fixed + step) - total(fixed - step)) / 2e-6
        assert float(found[number]) == pytest.approx(float(slope), rel=1e-6, abs=1e-8)


def test_spec_lists_exactly_the_available_objectives() -> None:
    assert set(OBJECTIVES) == set(OBJECTIVE_OPTIONS)
