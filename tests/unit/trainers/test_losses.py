"""Identities of the objectives, in float64 (research/training.md, section 6)."""

from __future__ import annotations

import math

import pytest
import torch

from trainers.algorithms.losses import OBJECTIVES, ClipRange, WeightLimit

CLIP = ClipRange(0.2, 0.2)
NO_LIMIT = WeightLimit("none", 5.0)
decoupled, ppo = OBJECTIVES["decoupled_ppo"], OBJECTIVES["ppo"]


def tokens(seed: int, count: int = 400) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """(current with gradient, proximal, behaviour, advantages): ratios far enough apart to be clipped at times."""
    rng = torch.Generator().manual_seed(seed)
    behaviour = -3 * torch.rand(count, generator=rng, dtype=torch.float64)
    proximal = behaviour + 0.8 * torch.randn(count, generator=rng, dtype=torch.float64)
    current = (proximal + 0.3 * torch.randn(count, generator=rng, dtype=torch.float64)).requires_grad_()
    advantage = torch.randn(count, generator=rng, dtype=torch.float64)
    return current, proximal, behaviour, advantage


def gradient(loss: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad(loss.sum(), of)[0]


def test_with_behaviour_equal_to_proximal_decoupled_is_ppo_bit_for_bit() -> None:
    current, proximal, _, advantage = tokens(1)
    one = decoupled(current, proximal, proximal, advantage, clip=CLIP, weight_limit=NO_LIMIT).loss
    other = ppo(current, proximal, proximal, advantage, clip=CLIP, weight_limit=NO_LIMIT).loss
    assert torch.equal(one, other)
    assert torch.equal(gradient(one, current), gradient(other, current))


def test_the_gradient_is_minus_w_r_a_where_nothing_is_clipped_and_zero_elsewhere() -> None:
    current, proximal, behaviour, advantage = tokens(2)
    result = decoupled(current, proximal, behaviour, advantage, clip=CLIP, weight_limit=NO_LIMIT)
    clipped = result.clipped_low | result.clipped_high
    assert 0.05 < clipped.double().mean() < 0.6
    weight, ratio = (proximal - behaviour).exp(), (current - proximal).exp().detach()
    expected = torch.where(clipped, torch.zeros_like(ratio), -weight * ratio * advantage)
    torch.testing.assert_close(gradient(result.loss, current), expected, atol=1e-13, rtol=1e-13)
    torch.testing.assert_close(weight * ratio, (current.detach() - behaviour).exp(), atol=0, rtol=1e-13)


def test_at_the_proximal_policy_the_gradient_is_minus_w_a_exactly() -> None:
    _, proximal, behaviour, advantage = tokens(3)
    current = proximal.clone().requires_grad_()
    result = decoupled(current, proximal, behaviour, advantage, clip=CLIP, weight_limit=NO_LIMIT)
    assert torch.equal(gradient(result.loss, current), -(proximal - behaviour).exp() * advantage)


@pytest.mark.parametrize("limit", [1.0, 2.0, 5.0])
def test_masked_tokens_count_nothing_and_leave_all_others_as_they_are(limit: float) -> None:
    current, proximal, behaviour, advantage = tokens(4)
    free = decoupled(current, proximal, behaviour, advantage, clip=CLIP, weight_limit=NO_LIMIT)
    masked = decoupled(
        current, proximal, behaviour, advantage, clip=CLIP, weight_limit=WeightLimit("mask", limit)
    )
    over = (proximal - behaviour).exp() > limit
    assert bool(over.any()) and torch.equal(masked.limited, over)
    assert bool((masked.loss[over] == 0).all()) and torch.equal(masked.loss[~over], free.loss[~over])
    assert bool((gradient(masked.loss, current)[over] == 0).all())
    assert len(masked.loss) == len(free.loss)  # the caller's denominator does not change


def test_capped_tokens_count_with_the_limit_as_their_weight() -> None:
    current, proximal, behaviour, advantage = tokens(5)
    free = decoupled(current, proximal, behaviour, advantage, clip=CLIP, weight_limit=NO_LIMIT)
    capped = decoupled(
        current, proximal, behaviour, advantage, clip=CLIP, weight_limit=WeightLimit("cap", 2.0)
    )
    weight = (proximal - behaviour).exp()
    torch.testing.assert_close(capped.loss[weight > 2], (free.loss * 2.0 / weight)[weight > 2])
    assert torch.equal(capped.loss[weight <= 2], free.loss[weight <= 2])


def test_when_all_three_policies_agree_the_loss_is_minus_the_advantage() -> None:
    _, proximal, _, advantage = tokens(6)
    for objective in OBJECTIVES.values():
        result = objective(proximal, proximal, proximal, advantage, clip=CLIP, weight_limit=NO_LIMIT)
        assert torch.equal(result.loss, -advantage)


def test_clipping_around_the_behaviour_policy_silences_stale_tokens_before_any_update() -> None:
    _, proximal, behaviour, advantage = tokens(7)
    current = proximal.clone().requires_grad_()
    naive = ppo(current, behaviour, behaviour, advantage, clip=CLIP, weight_limit=NO_LIMIT)
    decoupled_one = decoupled(current, proximal, behaviour, advantage, clip=CLIP, weight_limit=NO_LIMIT)
    of_naive, of_decoupled = gradient(naive.loss, current), gradient(decoupled_one.loss, current)
    silent = of_naive == 0
    assert silent.double().mean() > 0.2
    assert bool((of_decoupled != 0).all())
    torch.testing.assert_close(of_naive[~silent], of_decoupled[~silent], atol=0, rtol=1e-12)


def test_in_expectation_over_behaviour_the_decoupled_gradient_is_the_policy_gradient_and_the_naive_one_is_not() -> (
    None
):
    rng = torch.Generator().manual_seed(8)
    logits = torch.randn(5, generator=rng, dtype=torch.float64).requires_grad_()
    behaviour = torch.randn(5, generator=rng, dtype=torch.float64).log_softmax(0)
    advantage = torch.randn(5, generator=rng, dtype=torch.float64)
    current = logits.log_softmax(0)
    true = torch.autograd.grad((current.exp() * advantage).sum(), logits, retain_graph=True)[0]

    def expected(objective: str) -> torch.Tensor:
        centre = behaviour if objective == "ppo" else current.detach()
        result = OBJECTIVES[objective](
            current, centre, behaviour, advantage, clip=CLIP, weight_limit=NO_LIMIT
        )
        return torch.autograd.grad(-(behaviour.exp() * result.loss).sum(), logits, retain_graph=True)[0]

    assert float((expected("decoupled_ppo") - true).abs().max()) < 1e-15
    assert float((expected("ppo") - true).abs().max()) > 1e-2


def test_no_gradient_flows_through_the_behaviour_weight() -> None:
    current, _, behaviour, advantage = tokens(9)
    proximal = current * 1.0  # a mistake of a caller: proximal log-probabilities still attached
    result = decoupled(current, proximal.detach(), behaviour, advantage, clip=CLIP, weight_limit=NO_LIMIT)
    assert not result.weight.requires_grad


def test_an_infinite_weight_is_masked_and_not_a_nan() -> None:
    current = torch.tensor([-1.0, -1.0], dtype=torch.float32, requires_grad=True)
    proximal, behaviour = torch.tensor([-1.0, -1.0]), torch.tensor([-1000.0, -1.0])
    result = decoupled(
        current,
        proximal,
        behaviour,
        torch.tensor([1.0, 1.0]),
        clip=CLIP,
        weight_limit=WeightLimit("mask", 5.0),
    )
    assert math.isinf(float(result.weight[0])) and result.loss.tolist() == [0.0, -1.0]
    assert gradient(result.loss, current).tolist() == [0.0, -1.0]
