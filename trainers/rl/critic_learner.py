"""The critic's part of a train step: values before the updates, one optimizer step per minibatch."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from oolong.contracts.run_spec import CriticSection, TrainerSection
from trainers.algorithms.value_loss import value_loss
from trainers.distributed.context import DistributedContext
from trainers.distributed.fsdp import set_gradient_sync
from trainers.models.critic import Critic
from trainers.models.optimizer import clip_gradients, learning_rate_at, make_adamw, set_learning_rate
from trainers.rl.metric_accumulator import MetricAccumulator
from trainers.rl.microbatch_tensors import MicrobatchTensors


class CriticLearner:
    """Holds the sharded critic and its optimizer."""

    def __init__(
        self, critic: Critic, section: CriticSection, trainer: TrainerSection, context: DistributedContext
    ) -> None:
        self.critic = critic
        self.context = context
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
    def values(self, tensors: MicrobatchTensors) -> torch.Tensor:
        """Return values [N] without gradient."""
        return self.critic(tensors.row)

    def set_learning_rate(self, version: int) -> float:
        """Set and return the learning rate of the step that trains policy version `version`."""
        rate = learning_rate_at(version, peak=self._section.learning_rate, warmup_steps=self._warmup_steps)
        set_learning_rate(self.optimizer, rate)
        return rate

    def backward(
        self,
        batch: Sequence[MicrobatchTensors],
        old_values: Sequence[torch.Tensor],
        returns: Sequence[torch.Tensor],
        *,
        loss_tokens: int,
        accumulator: MetricAccumulator,
    ) -> tuple[float, float]:
        """Compute clipped gradients of one minibatch. Returns its token-mean loss and gradient norm over all ranks."""
        total = 0.0
        for number, (tensors, old, targets) in enumerate(zip(batch, old_values, returns, strict=True)):
            set_gradient_sync(self.critic, is_last=number == len(batch) - 1)
            values = self.critic(tensors.row)
            result = value_loss(values, old, targets, clip=self._section.clip)
            loss = result.loss.sum() / max(1, loss_tokens)
            (loss * self.context.world_size).backward()  # FSDP2 averages over ranks
            total += float(loss.detach())
            accumulator.add_values(result, old, targets)
        norm = clip_gradients(self.parameters, self._section.max_grad_norm)
        return self.context.sum([total])[0], norm

    def optimizer_step(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
