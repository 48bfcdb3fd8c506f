from __future__ import annotations

import torch

from trainers.rl.batch_plan import Microbatch, TrainingSequence
from trainers.rl.microbatch_tensors import StepTensors, build_microbatch_tensors, drop_zero_advantage

TENSORS = build_microbatch_tensors(
    Microbatch(
        [
            TrainingSequence(
                group=group, rollout=member, tokens=[7] * (length + 1), loss_positions=list(range(1, length + 1)),
                behavior_logprobs=[0.0] * length, versions=[0] * length,
            )
            for group, member, length in ((0, 1, 2), (1, 0, 1))
        ]
    ),
    version=0,
    device=torch.device("cpu"),
)  # fmt: skip


def test_sequence_with_one_nonzero_advantage_is_kept_whole() -> None:
    values = torch.arange(3.0)
    step = StepTensors(
        proximal=values, behavior=values, importance_weights=values, advantages=torch.tensor([0.0, 1.0, 0.0]),
        token_weights=values, version_lag=TENSORS.version_lag, sequence_ids=TENSORS.sequence_ids, reference=None,
    )  # fmt: skip
    row, part = drop_zero_advantage(TENSORS, step)
    assert row.seqlens == [3] and row.targets.numel() == 2
    assert part.advantages.tolist() == [0.0, 1.0] and part.importance_weights.tolist() == [0.0, 1.0]
