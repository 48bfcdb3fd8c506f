"""The input of a forward pass: several sequences packed into one row without padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch


@dataclass(frozen=True)
class PackedRow:
    """Several sequences in one row of T tokens, and N target tokens to compute log-probabilities of."""

    input_ids: torch.Tensor  # int64 [1, T]
    position_ids: torch.Tensor  # int64 [1, T], starting at 0 in each sequence
    cu_seqlens: torch.Tensor  # int32 [sequences + 1]
    seqlens: list[int]  # [sequences]
    logit_positions: (
        torch.Tensor
    )  # int64 [N], position of the hidden state that predicts the target: one before it
    targets: torch.Tensor  # int64 [N]

    @property
    def tokens(self) -> int:
        return int(self.input_ids.shape[1])

    @property
    def attention_kwargs(self) -> dict[str, Any]:
        """The sequence boundaries that packed attention needs."""
        return {"cu_seqlens": self.cu_seqlens, "seqlens": self.seqlens, "max_seqlen": max(self.seqlens)}

    def to(self, device: torch.device) -> PackedRow:
        if device.type == "cpu":
            return self
        return PackedRow(
            input_ids=self.input_ids.to(device, non_blocking=True),
            position_ids=self.position_ids.to(device, non_blocking=True),
            cu_seqlens=self.cu_seqlens.to(device, non_blocking=True),
            seqlens=self.seqlens,
            logit_positions=self.logit_positions.to(device, non_blocking=True),
            targets=self.targets.to(device, non_blocking=True),
        )


def pack_row(sequences: Sequence[Sequence[int]], target_positions: Sequence[Sequence[int]]) -> PackedRow:
    """Pack token sequences into one row. `target_positions` are, per sequence, the positions (>= 1) of its targets."""
    starts = [0, *accumulate(len(sequence) for sequence in sequences)]
    flat = [token for sequence in sequences for token in sequence]
    in_row = [
        start + position
        for start, positions in zip(starts, target_positions, strict=False)
        for position in positions
    ]
    input_ids = torch.tensor(flat, dtype=torch.long)
    targets_at = torch.tensor(in_row, dtype=torch.long)
    return PackedRow(
        input_ids=input_ids[None],
        position_ids=torch.cat([torch.arange(len(sequence)) for sequence in sequences])[None],
        cu_seqlens=torch.tensor(starts, dtype=torch.int32),
        seqlens=[len(sequence) for sequence in sequences],
        logit_positions=targets_at - 1,
        targets=input_ids[targets_at],
    )
