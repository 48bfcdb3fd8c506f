"""Sums and means over the sequences of a packed row, token by token."""

from __future__ import annotations

import torch


def sequence_sum(values: torch.Tensor, sequence: torch.Tensor, sequences: int) -> torch.Tensor:
    """[N] -> [N]: each token's value becomes the sum over its sequence's tokens; differentiable."""
    return values.new_zeros(sequences).index_add(0, sequence, values).index_select(0, sequence)


def sequence_mean(values: torch.Tensor, sequence: torch.Tensor, sequences: int) -> torch.Tensor:
    """[N] -> [N]: the mean over the sequence's tokens."""
    return sequence_sum(values, sequence, sequences) / sequence_length(sequence, sequences).to(values.dtype)


def sequence_length(sequence: torch.Tensor, sequences: int) -> torch.Tensor:
    """[N] int64: how many loss tokens the token's sequence has."""
    return torch.bincount(sequence, minlength=sequences).index_select(0, sequence)
