from __future__ import annotations

import pytest
import torch

from trainers.models import logprobs as module
from trainers.models.logprobs import first_choices, token_logprobs


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("chunk_elements", [50 * 7, 1 << 22])
def test_the_chunked_head_equals_a_plain_log_softmax(
    monkeypatch: pytest.MonkeyPatch, temperature: float, chunk_elements: int
) -> None:
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", chunk_elements)
    rng = torch.Generator().manual_seed(1)
    hidden = torch.randn(33, 16, generator=rng, dtype=torch.float64).requires_grad_()
    weight = torch.randn(50, 16, generator=rng, dtype=torch.float64).requires_grad_()
    targets = torch.randint(50, (33,), generator=rng)
    upstream = torch.randn(33, generator=rng, dtype=torch.float64)

    ours, entropy = token_logprobs(hidden, weight, targets, temperature=temperature)
    plain = (hidden @ weight.T / temperature).log_softmax(-1)
    theirs = plain.gather(1, targets[:, None])[:, 0]
    torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(entropy, -(plain.exp() * plain).sum(-1).detach(), atol=1e-12, rtol=1e-12)
    for one, other in zip(
        torch.autograd.grad((ours * upstream).sum(), (hidden, weight)),
        torch.autograd.grad((theirs * upstream).sum(), (hidden, weight)),
        strict=True,
    ):
        torch.testing.assert_close(one, other, atol=1e-11, rtol=1e-11)


def test_no_position_is_no_logprob_and_a_zero_gradient() -> None:
    weight = torch.randn(5, 4, requires_grad=True)
    hidden = torch.randn(0, 4, requires_grad=True)
    logprobs, _ = token_logprobs(hidden, weight, torch.empty(0, dtype=torch.long))
    logprobs.sum().backward()
    assert logprobs.shape == (0,) and weight.grad is not None and not weight.grad.any()
    assert first_choices(hidden, weight).shape == (0,)


def test_half_precision_weights_get_float32_logprobs() -> None:
    hidden, weight = torch.randn(3, 8, dtype=torch.bfloat16), torch.randn(9, 8, dtype=torch.bfloat16)
    assert token_logprobs(hidden, weight, torch.tensor([1, 2, 3]))[0].dtype == torch.float32
