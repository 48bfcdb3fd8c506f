from __future__ import annotations

import torch

from tests.unit.trainers.rl.two_rollouts import TENSORS
from trainers.rl.microbatch_tensors import StepTensors, drop_zero_advantage


def test_sequence_with_one_nonzero_advantage_stays_whole() -> None:
    values = torch.arange(3.0)
    step = StepTensors(
        proximal=values, behavior=values, importance_weights=values, advantages=torch.tensor([0.0, 1.0, 0.0]),
        token_weights=values, version_lag=TENSORS.version_lag, sequence_ids=TENSORS.sequence_ids, reference=None,
    )  # fmt: skip
    row, part = drop_zero_advantage(TENSORS, step)
    assert row.seqlens == [3] and row.targets.numel() == 2
    assert part.advantages.tolist() == [0.0, 1.0] and part.importance_weights.tolist() == [0.0, 1.0]
