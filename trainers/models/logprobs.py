"""Log-probabilities of given tokens without the logits of a whole batch in memory.

The head is applied to a chunk of positions at a time; of each position only the log-probability and the entropy are
kept. Backward computes each chunk's logits once more.
"""

from __future__ import annotations

from typing import Any

import torch

CHUNK_ELEMENTS = 1 << 22  # logits alive at once: 4M numbers, 16 MiB in float32


class TokenLogprobs(torch.autograd.Function):
    """log softmax(hidden @ weight.T / temperature)[target] and the entropy of that distribution, in float32.

    hidden [N, H], weight [V, H], targets [N] -> logprobs [N], entropy [N]. Gradients flow through logprobs only.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, temperature: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        logprobs = torch.empty(hidden.shape[0], dtype=_logit_dtype(hidden), device=hidden.device)
        entropy = torch.empty_like(logprobs)
        for part in _chunks(hidden.shape[0], weight.shape[0]):
            log_softmax = _logits(hidden[part], weight, temperature).log_softmax(dim=-1)
            logprobs[part] = log_softmax.gather(1, targets[part, None]).squeeze(1)
            entropy[part] = -(log_softmax.exp() * log_softmax).sum(dim=-1)
        ctx.save_for_backward(hidden, weight, targets)
        ctx.temperature = temperature
        ctx.mark_non_differentiable(entropy)
        return logprobs, entropy

    @staticmethod
    def backward(ctx: Any, grad_logprobs: torch.Tensor, _: torch.Tensor) -> tuple[Any, ...]:
        hidden, weight, targets = ctx.saved_tensors
        grad_hidden = torch.empty_like(hidden)
        grad_weight = torch.zeros_like(weight, dtype=_logit_dtype(hidden))
        for part in _chunks(hidden.shape[0], weight.shape[0]):
            # d logprob / d logits = onehot(target) - softmax, over the temperature
            grad_logits = _logits(hidden[part], weight, ctx.temperature).softmax(dim=-1).neg_()
            grad_logits.scatter_add_(1, targets[part, None], torch.ones_like(grad_logits[:, :1]))
            grad_logits.mul_(grad_logprobs[part, None] / ctx.temperature)
            grad_logits = grad_logits.to(hidden.dtype)
            grad_hidden[part] = grad_logits @ weight
            grad_weight += grad_logits.T @ hidden[part]
        return grad_hidden, grad_weight.to(weight.dtype), None, None


def token_logprobs(
    hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, *, temperature: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """(logprobs [N], entropy [N]) of `targets` [N]; see `TokenLogprobs`."""
    return TokenLogprobs.apply(hidden, weight, targets, temperature)


@torch.no_grad()
def first_choices(hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The most likely token at each position: [N]."""
    chunks = [
        _logits(hidden[part], weight, 1.0).argmax(dim=-1)
        for part in _chunks(hidden.shape[0], weight.shape[0])
    ]
    return torch.cat(chunks) if chunks else torch.empty(0, dtype=torch.long, device=hidden.device)


def _logits(hidden: torch.Tensor, weight: torch.Tensor, temperature: float) -> torch.Tensor:
    logits = (hidden @ weight.T).to(_logit_dtype(hidden))
    return logits if temperature == 1.0 else logits / temperature


def _logit_dtype(hidden: torch.Tensor) -> torch.dtype:
    return torch.float64 if hidden.dtype == torch.float64 else torch.float32


def _chunks(positions: int, vocabulary: int) -> list[slice]:
    size = max(1, CHUNK_ELEMENTS // vocabulary)
    return [slice(start, min(start + size, positions)) for start in range(0, positions, size)]
