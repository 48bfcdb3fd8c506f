"""What a minibatch's token losses are divided by."""

from __future__ import annotations

import torch


def token_scale(
    lengths: torch.Tensor, *, mode: str, loss_tokens: int, loss_sequences: int, constant_tokens: int
) -> torch.Tensor:
    """[N]: factor of each token, so that the minibatch's loss is the sum of factor times token loss over all ranks.

    lengths [N]: loss tokens of each token's sequence. The minibatch's counts are over all ranks.
    tokens: 1 / loss_tokens (DAPO, arXiv 2503.14476). sequences: 1 / (sequences x length), the mean over sequences of
    their token means (GRPO, arXiv 2402.03300). constant: 1 / (sequences x constant) (Dr. GRPO, arXiv 2503.20783).
    """
    if mode == "tokens":
        return torch.full_like(lengths, 1.0 / max(1, loss_tokens))
    if mode == "sequences":
        return 1.0 / (max(1, loss_sequences) * lengths)
    return torch.full_like(lengths, 1.0 / (max(1, loss_sequences) * constant_tokens))
