"""The DPO loss over pairs of one policy. The reference model is the model that the run starts from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from oolong.contracts.run_spec import RunSpec
from trainers.distributed.context import DistributedContext
from trainers.dpo.loss import accuracy, dpo_losses
from trainers.dpo.pairs import Pair
from trainers.dpo.sequence_logprobs import pair_logprobs, reference_logprobs
from trainers.models.flops import forward_flops
from trainers.models.policy import Policy

MEASURES = (
    "dpo/loss", "dpo/accuracy", "dpo/margin", "dpo/chosen_reward", "dpo/rejected_reward", "dpo/chosen_logprob",
    "dpo/rejected_logprob",
)  # fmt: skip


@dataclass(frozen=True)
class PairLosses:
    losses: torch.Tensor  # [P]
    measures: dict[str, torch.Tensor]  # each of MEASURES → [P], without gradient; their means are metrics


class DpoObjective:
    """The loss, with reference log-probabilities that are computed once per attempt, before its first step.

    At that moment the policy is the reference model, with adapters too, which start at 0. So there is no second model
    in memory, and each pair costs one more forward pass, however often it is trained on.
    """

    def __init__(self, policy: Policy, spec: RunSpec, context: DistributedContext) -> None:
        self.policy = policy
        self._section = spec.dpo
        self._budget = spec.trainer.microbatch_tokens
        self._context = context
        self._flops = forward_flops(policy.config)
        self._reference: dict[int, list[float]] = {-1: [0.0, 0.0]}  # by position

    def prepare(self, pairs: Sequence[Pair]) -> None:
        """Compute the reference log-probabilities of these pairs, with the initial weights. Collective."""
        found = reference_logprobs(
            self.policy, pairs, context=self._context, token_budget=self._budget, flops=self._flops
        )
        self._reference |= {pair.position: row for pair, row in zip(pairs, found.tolist(), strict=True)}

    def losses(self, pairs: Sequence[Pair]) -> PairLosses:
        """The losses of one microbatch, whose pairs are prepared or padding."""
        device = self._context.device
        logprobs = pair_logprobs(self.policy, pairs, device)
        reference = torch.tensor(
            [self._reference[pair.position] for pair in pairs], dtype=logprobs.dtype, device=device
        )
        lengths = torch.tensor(
            [[len(side.target_positions) for side in pair.examples] for pair in pairs], device=device
        )
        found = dpo_losses(
            logprobs,
            reference,
            lengths,
            beta=self._section.beta,
            label_smoothing=self._section.label_smoothing,
            length_normalized=self._section.length_normalized,
        )
        chosen, rejected = found.chosen_rewards, found.rejected_rewards
        return PairLosses(
            found.losses,
            {
                "dpo/loss": found.losses.detach(), "dpo/accuracy": accuracy(chosen, rejected),
                "dpo/margin": chosen - rejected,
                "dpo/chosen_reward": chosen, "dpo/rejected_reward": rejected,
                "dpo/chosen_logprob": logprobs[:, 0].detach(), "dpo/rejected_logprob": logprobs[:, 1].detach(),
            },
        )  # fmt: skip
