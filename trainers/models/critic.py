"""A value model: the backbone of a causal language model with one number per position on top."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from trainers.models.packing import PackedRow
from trainers.models.policy import load_policy


class Critic(nn.Module):
    """Packed row in, values of the states in which its N targets are sampled out."""

    def __init__(self, backbone: nn.Module, *, hidden_size: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.value_head = nn.Linear(hidden_size, 1)
        nn.init.zeros_(self.value_head.weight)  # the first values are 0: no worse than no critic
        nn.init.zeros_(self.value_head.bias)

    def forward(self, row: PackedRow) -> torch.Tensor:
        """[N] float32. The state of a target is the hidden state at the position before it."""
        hidden = self.backbone(
            input_ids=row.input_ids,
            position_ids=row.position_ids,
            use_cache=False,
            **row.boundaries,
        ).last_hidden_state[0]
        return self.value_head(hidden.index_select(0, row.predict_at))[:, 0].float()

    @property
    def layers(self) -> nn.ModuleList:
        return self.backbone.layers


def load_critic(directory: Path) -> Critic:
    """A critic on the backbone of the policy in `directory`, on the CPU."""
    causal_lm = load_policy(directory).causal_lm
    return Critic(causal_lm.model, hidden_size=causal_lm.config.hidden_size)
