"""A microbatch of two rollouts, of two and of one response token, of different groups."""

from __future__ import annotations

import torch

from trainers.rl.batch_plan import Microbatch, TrainingSequence
from trainers.rl.microbatch_tensors import build_microbatch_tensors

TENSORS = build_microbatch_tensors(
    Microbatch(
        [
            TrainingSequence(
                group=group, rollout=member, source=(str(group), member), tokens=[7] * (length + 1),
                loss_positions=list(range(1, length + 1)),
                behavior_logprobs=[0.0] * length, versions=[0] * length,
            )
            for group, member, length in ((0, 1, 2), (1, 0, 1))
        ]
    ),
    version=0,
    device=torch.device("cpu"),
)  # fmt: skip
