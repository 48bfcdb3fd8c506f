from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from trainers.models import logprobs as module
from trainers.models.logprobs import greedy_tokens, token_logprobs


def plain(
    hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    log_softmax = (hidden @ weight.T / temperature).log_softmax(-1)
    return log_softmax.gather(1, targets[:, None])[:, 0], -(log_softmax.exp() * log_softmax).sum(-1)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("chunk_elements", [50 * 7, 1 << 22])
@pytest.mark.parametrize("upstream_of", ["logprobs", "entropy", "both"])
def test_chunked_head_equals_plain_logits_in_values_and_gradients(
    monkeypatch: pytest.MonkeyPatch, temperature: float, chunk_elements: int, upstream_of: str
) -> None:
    monkeypatch.setitem(module.CHUNK_ELEMENTS, "cpu", chunk_elements)
    rng = torch.Generator().manual_seed(1)
    hidden = torch.randn(33, 16, generator=rng, dtype=torch.float64).requires_grad_()
    weight = torch.randn(50, 16, generator=rng, dtype=torch.float64).requires_grad_()
    targets = torch.randint(50, (33,), generator=rng)
    upstream = torch.randn(2, 33, generator=rng, dtype=torch.float64)

    def total(logprobs: torch.Tensor, entropy: torch.Tensor) -> torch.Tensor:
        parts = {"logprobs": logprobs @ upstream[0], "entropy": entropy @ upstream[1]}
        return sum(parts.values()) if upstream_of == "both" else parts[upstream_of]

    ours = token_logprobs(hidden, weight, targets, temperature=temperature)
    theirs = plain(hidden, weight, targets, temperature)
    torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(
        torch.autograd.grad(total(*ours), (hidden, weight)),
        torch.autograd.grad(total(*theirs), (hidden, weight)),
        atol=1e-11, rtol=1e-11,
    )  # fmt: skip


def test_tied_weight_accumulates_gradients_of_both_uses() -> None:
    weight = torch.randn(20, 8, dtype=torch.float64, requires_grad=True)
    tokens, targets = torch.tensor([3, 1, 4]), torch.tensor([1, 4, 1])
    gradients = [
        torch.autograd.grad(head(weight[tokens].tanh(), weight, targets, 1.0)[0].sum(), weight)[0]
        for head in (lambda *given: token_logprobs(*given[:3], temperature=given[3]), plain)
    ]
    torch.testing.assert_close(*gradients, atol=1e-12, rtol=1e-12)


def test_no_positions_give_empty_logprobs_and_zero_gradients() -> None:
    weight = torch.randn(5, 4, requires_grad=True)
    hidden = torch.randn(0, 4, requires_grad=True)
    logprobs, _ = token_logprobs(hidden, weight, torch.empty(0, dtype=torch.long))
    logprobs.sum().backward()
    assert logprobs.shape == (0,) and weight.grad is not None and not weight.grad.any()
    assert greedy_tokens(hidden, weight).shape == (0,)


def test_half_precision_weights_give_float32_logits() -> None:
    rng = torch.Generator().manual_seed(2)
    hidden = (9 * torch.randn(64, 32, generator=rng)).bfloat16().requires_grad_()
    weight = torch.randn(90, 32, generator=rng).bfloat16().requires_grad_()
    targets = torch.randint(90, (64,), generator=rng)
    ours, _ = token_logprobs(hidden, weight, targets)
    exact, _ = plain(hidden.double(), weight.double(), targets, 1.0)
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours.double(), exact, atol=1e-4, rtol=0)
    ours.sum().backward()
    assert hidden.grad is not None and weight.grad is not None
    [wanted] = torch.autograd.grad(exact.sum(), weight)
    assert float((weight.grad - wanted).norm() / wanted.norm()) < 0.01


def test_weight_gradient_accumulates_over_chunks_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """256 chunks of a position each: sums in bfloat16 would be wrong by 0.004, rounding the sum once by 0.0013."""
    monkeypatch.setitem(module.CHUNK_ELEMENTS, "cpu", 90)
    rng = torch.Generator().manual_seed(2)
    hidden = (9 * torch.randn(256, 32, generator=rng)).bfloat16()
    weight = torch.randn(90, 32, generator=rng).bfloat16().requires_grad_()
    targets = torch.randint(90, (256,), generator=rng)
    [found] = torch.autograd.grad(token_logprobs(hidden, weight, targets)[0].sum(), weight)
    [wanted] = torch.autograd.grad(plain(hidden.double(), weight.double(), targets, 1.0)[0].sum(), weight)
    assert float((found - wanted).norm() / wanted.norm()) < 0.002


class LargestTensor(TorchDispatchMode):
    """Watches how many elements the largest tensor has that any operation makes, and which of them are kept."""

    elements = 0

    def __init__(self) -> None:
        super().__init__()
        self.made: list[weakref.ref[torch.Tensor]] = []

    @property
    def kept(self) -> int:
        """Elements of what was made here and is still there."""
        there = [reference() for reference in self.made]
        return sum(tensor.numel() for tensor in there if tensor is not None)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, tuple | list) else [made]:
            if isinstance(tensor, torch.Tensor):
                self.elements = max(self.elements, tensor.numel())
                self.made.append(weakref.ref(tensor))
        return made


def test_forward_and_backward_never_materialize_all_logits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """How much memory that saves is measured by tests/bench/lm_head_memory.py."""
    monkeypatch.setitem(module.CHUNK_ELEMENTS, "cpu", 5_000)
    hidden = torch.randn(400, 8, requires_grad=True)
    weight = torch.randn(500, 8, requires_grad=True)
    with LargestTensor() as largest:
        targets = torch.zeros(400, dtype=torch.long)
        logprobs, entropy = token_logprobs(hidden, weight, targets)
        assert 3 * 400 <= largest.kept <= 8 * 400  # a few numbers per position until the backward pass
        (logprobs.sum() + entropy.sum()).backward()
    assert largest.elements == 5_000
    with LargestTensor() as largest:
        plain(hidden, weight, torch.zeros(400, dtype=torch.long), 1.0)[0].sum().backward()
    assert largest.elements == 400 * 500
