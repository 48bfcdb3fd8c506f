"""Log-probabilities and entropies of given tokens, without materializing the logits of a whole batch.

The head is applied to one chunk of positions at a time, and only two numbers per position are kept. The backward pass
recomputes each chunk's logits. RL and SFT both use this.
"""

from __future__ import annotations

from typing import Any

import torch

# Elements of a chunk's logits, by device type: 16 MiB in float32 fits in a CPU's cache; a GPU needs several hundred
# positions of a large vocabulary to be well utilized (512 MiB).
CHUNK_ELEMENTS = {"cpu": 1 << 22, "cuda": 1 << 27}


class TokenLogprobs(torch.autograd.Function):
    """log softmax(hidden @ weight.T / temperature)[target] and the entropy of that distribution, in float32.

    hidden [N, H], weight [V, H], targets [N] -> logprobs [N], entropy [N] (nats). Both have gradients. The weight
    may be tied to the embedding and gathered by FSDP2.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, temperature: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        logprobs = torch.empty(hidden.shape[0], dtype=_accumulation_dtype(hidden), device=hidden.device)
        entropy = torch.empty_like(logprobs)
        for chunk in _chunks(hidden, weight):
            log_softmax = _logits(hidden[chunk], weight, temperature).log_softmax(dim=-1)
            logprobs[chunk] = log_softmax.gather(1, targets[chunk, None]).squeeze(1)
            entropy[chunk] = -(log_softmax.exp().mul_(log_softmax)).sum(dim=-1)
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
        grad_weight = (
            torch.zeros_like(weight, dtype=_accumulation_dtype(hidden)) if ctx.needs_input_grad[1] else None
        )
        for chunk in _chunks(hidden, weight):
            logits = _logits(hidden[chunk], weight, ctx.temperature)
            if grad_entropy is None:
                grad_logits = logits.softmax(dim=-1).neg_()
                if grad_logprobs is not None:
                    grad_logits.mul_(grad_logprobs[chunk, None])
            else:
                # d entropy / d logit_j = -p_j (log p_j + entropy)
                log_softmax = logits.log_softmax(dim=-1)
                slope = (log_softmax + entropy[chunk, None]).mul_(grad_entropy[chunk, None])
                if grad_logprobs is not None:
                    slope += grad_logprobs[chunk, None]
                grad_logits = log_softmax.exp_().neg_().mul_(slope)
            if grad_logprobs is not None:
                # d logprob / d logit_j = [j = target] - p_j; the second half is above
                grad_logits.scatter_add_(
                    1, targets[chunk, None], grad_logprobs[chunk, None].to(grad_logits.dtype)
                )
            grad_logits = grad_logits.div_(ctx.temperature).to(hidden.dtype)
            grad_hidden[chunk] = grad_logits @ weight
            if grad_weight is not None:
                _add_product(grad_weight, grad_logits.T, hidden[chunk])
        return grad_hidden, None if grad_weight is None else grad_weight.to(weight.dtype), None, None


def token_logprobs(
    hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, *, temperature: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (logprobs [N], entropy [N]) of `targets` [N]; see `TokenLogprobs`."""
    return TokenLogprobs.apply(hidden, weight, targets, temperature)


@torch.no_grad()
def greedy_tokens(hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return the most likely token at each position: [N]."""
    chunks = [_logits(hidden[chunk], weight, 1.0).argmax(dim=-1) for chunk in _chunks(hidden, weight)]
    return torch.cat(chunks) if chunks else torch.empty(0, dtype=torch.long, device=hidden.device)


def _logits(hidden: torch.Tensor, weight: torch.Tensor, temperature: float) -> torch.Tensor:
    """[n, V] in at least float32: rounding a logit of 20 to bfloat16 changes it by up to 0.06 nats."""
    logits = _product(hidden, weight.T)
    return logits if temperature == 1.0 else logits.div_(temperature)


def _product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """left @ right in float32, or in float64 for float64 inputs."""
    if left.dtype in (torch.float32, torch.float64):
        return left @ right
    if left.is_cuda:
        return torch.mm(left, right, out_dtype=torch.float32)
    return left.float() @ right.float()


def _add_product(total: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> None:
    """total += left @ right, without a temporary matrix if the dtypes are equal."""
    if total.dtype == left.dtype:
        total.addmm_(left, right)
    else:
        total += _product(left, right)


def _accumulation_dtype(hidden: torch.Tensor) -> torch.dtype:
    return torch.float64 if hidden.dtype == torch.float64 else torch.float32


def _chunks(hidden: torch.Tensor, weight: torch.Tensor) -> list[slice]:
    positions = hidden.shape[0]
    size = max(1, CHUNK_ELEMENTS[hidden.device.type] // weight.shape[0])
    return [slice(start, min(start + size, positions)) for start in range(0, positions, size)]
