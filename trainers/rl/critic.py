"""The critic's part of a train step: values before it, an optimizer step per minibatch."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from oolong.contracts.run_spec import CriticSection, TrainerSection
from trainers.algorithms.value_loss import value_loss
from trainers.models.critic import Critic
from trainers.models.optimizer import clip_gradients, learning_rate_at, make_adamw, set_learning_rate
from trainers.models.shard import sync_gradients
from trainers.ranks import Ranks
from trainers.rl.columns import TokenColumns
from trainers.rl.tally import Tally


class CriticLearner:
    """Holds the sharded critic and its optimizer."""

    def __init__(self, critic: Critic, section: CriticSection, trainer: TrainerSection, ranks: Ranks) -> None:
        self.critic = critic
        self.ranks = ranks
        self._section = section
        self._warmup_steps = trainer.warmup_steps
        self.parameters = list(critic.parameters())
        self.optimizer = make_adamw(
            self.parameters,
            learning_rate=section.learning_rate,
            betas=trainer.adam_betas,
            epsilon=trainer.adam_epsilon,
            weight_decay=trainer.weight_decay,
            offload=trainer.offload_optimizer,
        )

    @torch.no_grad()
    def values(self, columns: TokenColumns) -> torch.Tensor:
        """[N], before the step."""
        return self.critic(columns.row)

    def begin_step(self, version: int) -> float:
        """Set the learning rate of the step that trains at `version`, and return it."""
        rate = learning_rate_at(version, peak=self._section.learning_rate, warmup_steps=self._warmup_steps)
        set_learning_rate(self.optimizer, rate)
        return rate

    def backward(
        self,
        batch: Sequence[TokenColumns],
        old_values: Sequence[torch.Tensor],
        returns: Sequence[torch.Tensor],
        *,
        loss_tokens: int,
        tally: Tally,
    ) -> tuple[float, float]:
        """Gradients of one minibatch, clipped. Returns its token mean loss and gradient norm over all ranks."""
        total = 0.0
        for number, (columns, old, wanted) in enumerate(zip(batch, old_values, returns, strict=True)):
            sync_gradients(self.critic, number == len(batch) - 1)
            values = self.critic(columns.row)
            result = value_loss(values, old, wanted, clip=self._section.clip)
            loss = result.loss.sum() / max(1, loss_tokens)
            (loss * self.ranks.size).backward()  # FSDP2 averages over the ranks
            total += float(loss.detach())
            tally.add_values(result, old, wanted)
        norm = clip_gradients(self.parameters, self._section.max_grad_norm)
        return self.ranks.sum([total])[0], norm

    def take_step(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
