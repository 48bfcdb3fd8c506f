"""Log-probabilities and entropies of given tokens without the logits of a whole batch in memory.

The head is applied to a chunk of positions at a time; of each position only two numbers are kept. Backward computes
each chunk's logits once more. Proximal, current and reference policy and the warm start all come through here.
"""

from __future__ import annotations

from typing import Any

import torch

# Logits alive at once, by kind of device: 16 MiB in float32 stays in a processor's cache; a GPU needs several hundred
# positions of a large vocabulary to be busy (512 MiB).
CHUNK_ELEMENTS = {"cpu": 1 << 22, "cuda": 1 << 27}


class TokenLogprobs(torch.autograd.Function):
    """log softmax(hidden @ weight.T / temperature)[target] and the entropy of that distribution, in float32.

    hidden [N, H], weight [V, H], targets [N] -> logprobs [N], entropy [N] (nats). Both have gradients. The weight is
    whatever tensor the caller's forward sees: tied or not, gathered by FSDP2 or not.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, temperature: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        logprobs = torch.empty(hidden.shape[0], dtype=_wide(hidden), device=hidden.device)
        entropy = torch.empty_like(logprobs)
        for part in _chunks(hidden, weight):
            log_softmax = _logits(hidden[part], weight, temperature).log_softmax(dim=-1)
            logprobs[part] = log_softmax.gather(1, targets[part, None]).squeeze(1)
            entropy[part] = -(log_softmax.exp().mul_(log_softmax)).sum(dim=-1)
        ctx.save_for_backward(hidden, weight, targets, entropy)
        ctx.temperature = temperature
        ctx.set_materialize_grads(False)
        return logprobs, entropy

    @staticmethod
    def backward(
        ctx: Any, grad_logprobs: torch.Tensor | None, grad_entropy: torch.Tensor | None
    ) -> tuple[Any, ...]:
        hidden, weight, targets, entropy = ctx.saved_tensors
        grad_hidden = torch.empty_like(hidden)
        grad_weight = torch.zeros_like(weight, dtype=_wide(hidden))
        for part in _chunks(hidden, weight):
            logits = _logits(hidden[part], weight, ctx.temperature)
            if grad_entropy is None:
                grad_logits = logits.softmax(dim=-1).neg_()
                if grad_logprobs is not None:
                    grad_logits.mul_(grad_logprobs[part, None])
            else:
                # d entropy / d logit_j = -p_j (log p_j + entropy)
                log_softmax = logits.log_softmax(dim=-1)
                slope = (log_softmax + entropy[part, None]).mul_(grad_entropy[part, None])
                if grad_logprobs is not None:
                    slope += grad_logprobs[part, None]
                grad_logits = log_softmax.exp_().neg_().mul_(slope)
            if grad_logprobs is not None:
                # d logprob / d logit_j = [j = target] - p_j; the second half is above
                grad_logits.scatter_add_(
                    1, targets[part, None], grad_logprobs[part, None].to(grad_logits.dtype)
                )
            grad_logits = grad_logits.div_(ctx.temperature).to(hidden.dtype)
            grad_hidden[part] = grad_logits @ weight
            _add_product(grad_weight, grad_logits.T, hidden[part])
        return grad_hidden, grad_weight.to(weight.dtype), None, None


def token_logprobs(
    hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, *, temperature: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """(logprobs [N], entropy [N]) of `targets` [N]; see `TokenLogprobs`."""
    return TokenLogprobs.apply(hidden, weight, targets, temperature)


@torch.no_grad()
def first_choices(hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The most likely token at each position: [N]."""
    chunks = [_logits(hidden[part], weight, 1.0).argmax(dim=-1) for part in _chunks(hidden, weight)]
    return torch.cat(chunks) if chunks else torch.empty(0, dtype=torch.long, device=hidden.device)


def _logits(hidden: torch.Tensor, weight: torch.Tensor, temperature: float) -> torch.Tensor:
    """[n, V], of the products' full precision: rounding a logit of 20 to bfloat16 moves it by up to 0.06 nats."""
    logits = _product(hidden, weight.T)
    return logits if temperature == 1.0 else logits.div_(temperature)


def _product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """left @ right in float32 (float64 for float64)."""
    if left.dtype in (torch.float32, torch.float64):
        return left @ right
    if left.is_cuda:
        return torch.mm(left, right, out_dtype=torch.float32)
    return left.float() @ right.float()


def _add_product(total: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> None:
    """total += left @ right, without a second matrix of that size where the types allow it."""
    if total.dtype == left.dtype:
        total.addmm_(left, right)
    else:
        total += _product(left, right)


def _wide(hidden: torch.Tensor) -> torch.dtype:
    return torch.float64 if hidden.dtype == torch.float64 else torch.float32


def _chunks(hidden: torch.Tensor, weight: torch.Tensor) -> list[slice]:
    positions = hidden.shape[0]
    size = max(1, CHUNK_ELEMENTS[hidden.device.type] // weight.shape[0])
    return [slice(start, min(start + size, positions)) for start in range(0, positions, size)]
