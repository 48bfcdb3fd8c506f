"""A critic: the backbone of a causal language model with a scalar value head."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from trainers.models.packed_row import PackedRow
from trainers.models.policy import load_policy


class Critic(nn.Module):
    """Computes the value of the state in which each of a packed row's N targets is sampled."""

    reduces_every_microbatch = False  # see trainers.distributed.fsdp.set_gradient_sync

    def __init__(self, backbone: nn.Module, *, hidden_size: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.value_head = nn.Linear(hidden_size, 1)
        nn.init.zeros_(self.value_head.weight)  # initial values are 0, the same as without a critic
        nn.init.zeros_(self.value_head.bias)

    def forward(self, row: PackedRow) -> torch.Tensor:
        """Return values [N] in float32. The state of a target is the hidden state at the position before it."""
        hidden = self.backbone(
            input_ids=row.input_ids,
            position_ids=row.position_ids,
            use_cache=False,
            **row.attention_kwargs,
        ).last_hidden_state[0]
        return self.value_head(hidden.index_select(0, row.logit_positions))[:, 0].float()

    @property
    def layers(self) -> nn.ModuleList:
        return self.backbone.layers


def load_critic(directory: Path) -> Critic:
    """Load a critic on the CPU, with the backbone of the policy in `directory`."""
    causal_lm = load_policy(directory).causal_lm
    return Critic(causal_lm.model, hidden_size=causal_lm.config.hidden_size)
