"""Aggregation of token losses over a minibatch: the weight of each token in the sum."""

from __future__ import annotations

import torch


def token_weights(
    lengths: torch.Tensor, *, mode: str, loss_tokens: int, loss_sequences: int, constant_tokens: int
) -> torch.Tensor:
    """[N]: the weight of each token. The minibatch's loss is the weighted sum of token losses over all ranks.

    `lengths` [N]: number of loss tokens in each token's sequence. `loss_tokens` and `loss_sequences` count the
    minibatch over all ranks.
    token_mean: 1 / loss_tokens (DAPO, arXiv 2503.14476). seq_mean: 1 / (sequences x length), the mean over sequences of
    their token means (GRPO, arXiv 2402.03300). constant: 1 / (sequences x constant) (Dr. GRPO, arXiv 2503.20783).
    """
    if mode == "token_mean":
        return torch.full_like(lengths, 1.0 / max(1, loss_tokens))
    if mode == "seq_mean":
        return 1.0 / (max(1, loss_sequences) * lengths)
    return torch.full_like(lengths, 1.0 / (max(1, loss_sequences) * constant_tokens))
