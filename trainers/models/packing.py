"""The nouns of a forward pass: sequences, and rows that hold many of them without padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch


@dataclass(frozen=True)
class PackedRow:
    """Several sequences in one row of T tokens, and the N tokens whose log-probabilities are wanted."""

    input_ids: torch.Tensor  # int64 [1, T]
    position_ids: torch.Tensor  # int64 [1, T], restarting at 0 in every sequence
    cu_seqlens: torch.Tensor  # int32 [sequences + 1]
    seqlens: list[int]  # [sequences]
    predict_at: torch.Tensor  # int64 [N], position whose hidden state predicts the target: the one before it
    targets: torch.Tensor  # int64 [N]

    @property
    def tokens(self) -> int:
        return int(self.input_ids.shape[1])

    @property
    def boundaries(self) -> dict[str, Any]:
        """What packed attention must be told."""
        return {"cu_seqlens": self.cu_seqlens, "seqlens": self.seqlens, "longest": max(self.seqlens)}

    def to(self, device: torch.device) -> PackedRow:
        if device.type == "cpu":
            return self
        return PackedRow(
            input_ids=self.input_ids.to(device, non_blocking=True),
            position_ids=self.position_ids.to(device, non_blocking=True),
            cu_seqlens=self.cu_seqlens.to(device, non_blocking=True),
            seqlens=self.seqlens,
            predict_at=self.predict_at.to(device, non_blocking=True),
            targets=self.targets.to(device, non_blocking=True),
        )


def pack(sequences: Sequence[Sequence[int]], targets_at: Sequence[Sequence[int]]) -> PackedRow:
    """Pack token sequences into one row; `targets_at` names, per sequence, the positions (>= 1) to be scored."""
    starts = [0, *accumulate(len(sequence) for sequence in sequences)]
    flat = [token for sequence in sequences for token in sequence]
    at = [
        start + position
        for start, positions in zip(starts, targets_at, strict=False)
        for position in positions
    ]
    input_ids = torch.tensor(flat, dtype=torch.long)
    target_positions = torch.tensor(at, dtype=torch.long)
    return PackedRow(
        input_ids=input_ids[None],
        position_ids=torch.cat([torch.arange(len(sequence)) for sequence in sequences])[None],
        cu_seqlens=torch.tensor(starts, dtype=torch.int32),
        seqlens=[len(sequence) for sequence in sequences],
        predict_at=target_positions - 1,
        targets=input_ids[target_positions],
    )
