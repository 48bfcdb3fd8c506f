"""Reductions over the sequences of a packed row, broadcast back to their tokens."""

from __future__ import annotations

import torch


def sequence_sum(values: torch.Tensor, sequence_ids: torch.Tensor, num_sequences: int) -> torch.Tensor:
    """[N] -> [N]: the sum over the tokens of each token's sequence. Differentiable."""
    return values.new_zeros(num_sequences).index_add(0, sequence_ids, values).index_select(0, sequence_ids)


def sequence_mean(values: torch.Tensor, sequence_ids: torch.Tensor, num_sequences: int) -> torch.Tensor:
    """[N] -> [N]: the mean over the tokens of each token's sequence. Differentiable."""
    return sequence_sum(values, sequence_ids, num_sequences) / sequence_length(
        sequence_ids, num_sequences
    ).to(values.dtype)


def sequence_length(sequence_ids: torch.Tensor, num_sequences: int) -> torch.Tensor:
    """[N] int64: the number of loss tokens in each token's sequence."""
    return torch.bincount(sequence_ids, minlength=num_sequences).index_select(0, sequence_ids)
