"""KL estimators: bias, sign, and their gradients as losses."""

from __future__ import annotations

import pytest
import torch

from trainers.algorithms.kl import KL_ESTIMATORS, reference_kl


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


def test_k2_and_k3_agree_to_second_order() -> None:
    difference = torch.tensor([1e-4], dtype=torch.float64)
    k2, k3 = (KL_ESTIMATORS[name](difference) for name in ("k2", "k3"))
    assert float(k3) == pytest.approx(float(k2), rel=1e-3)


def test_expected_gradients_are_zero_for_k1_kl_for_k2_reverse_kl_for_k3() -> None:
    logits, current, reference = categorical(2)

    def of(loss: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(loss, logits, retain_graph=True)[0]

    def expected(name: str) -> torch.Tensor:
        return of((current.exp().detach() * reference_kl(current, reference, estimator=name)).sum())

    assert float(expected("k1").abs().max()) < 1e-15
    torch.testing.assert_close(expected("k2"), of((current.exp() * (current - reference)).sum()))
    torch.testing.assert_close(expected("k3"), of((reference.exp() * (reference - current)).sum()))


def test_importance_corrected_kl_has_on_policy_gradients_on_stale_tokens() -> None:
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
