"""One train step on one rank: passes of the fixed policies, advantages, minibatches of packed microbatches.

The order, with the file that decides: what the batch says (`columns`), proximal, reference and value passes, whose
credit it is (`credit`), behaviour weights (`trainers.algorithms.weights`), then per minibatch the objective
(`trainers.algorithms.losses`), its other terms, and the optimizer steps of policy and critic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from oolong.contracts.run_spec import AlgorithmSection, RunSpec, TrainerSection
from trainers.algorithms.kl import reference_kl
from trainers.algorithms.losses import OBJECTIVES, LossTokens, Objective, TokenLoss
from trainers.algorithms.normalisation import token_scale
from trainers.algorithms.weights import behaviour_weights
from trainers.models.critic import Critic
from trainers.models.optimizer import clip_gradients, learning_rate_at, make_adamw, set_learning_rate
from trainers.models.policy import Policy
from trainers.models.shard import reshard, sync_gradients
from trainers.ranks import Ranks
from trainers.rl.columns import StepColumns, TokenColumns, heard, lengths_of, token_columns
from trainers.rl.credit import Credit, Passes, gae_credit, outcome_credit
from trainers.rl.critic import CriticLearner
from trainers.rl.kept import Kept
from trainers.rl.plan import Minibatch, RankPlan
from trainers.rl.tally import Tally
from trainers.stopwatch import Stopwatch


@dataclass(frozen=True)
class StepOutcome:
    """What a train step did, the same on all ranks."""

    finite: bool
    metrics: dict[str, float]  # by catalogue name; empty when not finite
    minibatch_losses: list[float]  # of the policy, all terms
    grad_norms: list[float]  # before clipping
    critic_losses: list[float]
    critic_grad_norms: list[float]


class Learner:
    """Holds the sharded policy and its optimizer, and moves them by whole train steps or not at all.

    `reference` is a frozen policy for the KL term, `critic` brings values; each is there iff the spec asks for it.
    `objective` is a user's own; without one it is the spec's.
    """

    def __init__(
        self,
        policy: Policy,
        spec: RunSpec,
        ranks: Ranks,
        *,
        reference: Policy | None = None,
        critic: CriticLearner | None = None,
        objective: Objective | None = None,
    ) -> None:
        self.policy = policy
        self.reference = reference
        self.critic = critic
        self.ranks = ranks
        self._algorithm: AlgorithmSection = spec.algorithm
        self._trainer: TrainerSection = spec.trainer
        self.peak_learning_rate = spec.trainer.learning_rate  # may be changed between steps
        self._temperature = spec.rollout.temperature
        self._constant_tokens = spec.algorithm.loss_constant_tokens or spec.rollout.max_new_tokens
        self._objective = objective or OBJECTIVES[spec.algorithm.objective]
        kl = spec.algorithm.kl
        self._kl_in_loss = kl if kl is not None and kl.place == "loss" else None
        assert (reference is not None) == (kl is not None)
        assert (critic is not None) == (spec.algorithm.critic is not None)
        # Sequences of advantage 0 have no gradient only where nothing but the advantage drives the loss.
        self._may_skip = objective is None and self._kl_in_loss is None and not spec.algorithm.entropy_bonus
        self.parameters = list(policy.parameters())
        self.optimizer = make_adamw(
            self.parameters,
            learning_rate=spec.trainer.learning_rate,
            betas=spec.trainer.adam_betas,
            epsilon=spec.trainer.adam_epsilon,
            weight_decay=spec.trainer.weight_decay,
            offload=spec.trainer.offload_optimizer,
        )

    @property
    def trained_critic(self) -> tuple[Critic, torch.optim.Optimizer] | None:
        return None if self.critic is None else (self.critic.critic, self.critic.optimizer)

    def train(self, plan: RankPlan, watch: Stopwatch) -> StepOutcome:
        """Update the policy on one batch. When a loss or gradient is not finite nothing has changed afterwards."""
        watch.enter("prepare")
        tally = Tally()
        batch = [
            token_columns(microbatch, version=plan.version, device=self.ranks.device)
            for minibatch in plan.minibatches
            for microbatch in minibatch.microbatches
        ]
        passes = self._fixed_passes(batch, tally, watch)

        watch.enter("train")
        credit = self._credit(batch, passes, plan.rewards)
        step = self._step_columns(plan, batch, passes, credit, tally)
        rates = self._begin_step(plan.version)
        way_back = self._kept() if len(plan.minibatches) > 1 else []
        outcome = StepOutcome(
            finite=True,
            metrics={},
            minibatch_losses=[],
            grad_norms=[],
            critic_losses=[],
            critic_grad_norms=[],
        )
        start = 0
        for minibatch in plan.minibatches:
            part = slice(start, start + len(minibatch.microbatches))
            start = part.stop
            loss, norm = self._backward(batch[part], step[part], tally, measure_kl=start == len(batch))
            outcome.minibatch_losses.append(loss)
            outcome.grad_norms.append(norm)
            found = [loss, norm]
            if self.critic is not None:
                found += self._critic_backward(minibatch, batch[part], passes[part], credit[part], tally)
                outcome.critic_losses.append(found[2])
                outcome.critic_grad_norms.append(found[3])
            if not all(math.isfinite(value) for value in found):
                self._take_back(way_back)
                return StepOutcome(**{**vars(outcome), "finite": False})
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            if self.critic is not None:
                self.critic.take_step()
        outcome.metrics.update(self._metrics(batch, tally, outcome, rates))
        return outcome

    # --- before the updates -----------------------------------------------------------------------------------

    @torch.no_grad()
    def _fixed_passes(self, batch: list[TokenColumns], tally: Tally, watch: Stopwatch) -> list[Passes]:
        """Forward passes of what does not change during the step: proximal policy, reference policy, critic."""
        watch.enter("proximal")
        proximal = [self._proximal(columns, tally) for columns in batch]
        reference: list[torch.Tensor | None] = [None] * len(batch)
        if self.reference is not None:
            watch.enter("reference")
            reference = [self.reference(columns.row, temperature=self._temperature)[0] for columns in batch]
            reshard(self.reference)  # no backward pass will do it
            for near, far, columns in zip(proximal, reference, batch, strict=True):
                if not columns.is_dummy:
                    tally.add_reference(near, far)
        values: list[torch.Tensor | None] = [None] * len(batch)
        if self.critic is not None:
            watch.enter("values")
            values = [self.critic.values(columns) for columns in batch]
        return [Passes(*found) for found in zip(proximal, reference, values, strict=True)]

    def _proximal(self, columns: TokenColumns, tally: Tally) -> torch.Tensor:
        """[N] log-probabilities of the weights before the step; the behaviour ones where the spec wants no others."""
        if self._algorithm.proximal == "none":
            return columns.behaviour
        logprobs, entropy = self.policy(columns.row, temperature=self._temperature)
        if not columns.is_dummy:
            tally.add_proximal(logprobs, columns.behaviour, columns.lag == 0)
            tally.add_entropy(entropy)
        return logprobs

    def _credit(
        self, batch: list[TokenColumns], passes: list[Passes], rewards: list[list[float]]
    ) -> list[Credit]:
        if self._algorithm.advantage.estimator == "gae":
            return gae_credit(batch, passes, rewards, self._algorithm, self.ranks.sum)
        return outcome_credit(batch, rewards, self._algorithm)

    def _step_columns(
        self,
        plan: RankPlan,
        batch: list[TokenColumns],
        passes: list[Passes],
        credit: list[Credit],
        tally: Tally,
    ) -> list[StepColumns]:
        weights = self._weights(batch, passes, tally)
        minibatches = [minibatch for minibatch in plan.minibatches for _ in minibatch.microbatches]
        return [
            StepColumns(
                proximal=one.proximal,
                behaviour=columns.behaviour,
                weights=weight,
                advantages=earned.advantages,
                scale=token_scale(
                    lengths_of(columns),
                    mode=self._algorithm.loss_normalisation,
                    loss_tokens=minibatch.loss_tokens,
                    loss_sequences=minibatch.loss_sequences,
                    constant_tokens=self._constant_tokens,
                ),
                lag=columns.lag,
                sequence=columns.sequence,
                reference=one.reference if self._kl_in_loss is not None else None,
            )
            for columns, one, weight, earned, minibatch in zip(
                batch, passes, weights, credit, minibatches, strict=True
            )
        ]

    def _weights(self, batch: list[TokenColumns], passes: list[Passes], tally: Tally) -> list[torch.Tensor]:
        """Behaviour weights of the rank's whole batch at once: one mode compares all tokens."""
        offsets = [sum(len(one.sequences) for one in batch[:number]) for number in range(len(batch))]
        found = behaviour_weights(
            torch.cat([one.proximal - columns.behaviour for one, columns in zip(passes, batch, strict=True)]),
            torch.cat([columns.sequence + offset for columns, offset in zip(batch, offsets, strict=True)]),
            sum(len(columns.sequences) for columns in batch),
            self._algorithm.behaviour_weight,
            self.ranks.sum,
        )
        if self._algorithm.proximal != "none":
            tally.add_weights(found)
        return list(found.used.split([len(columns.behaviour) for columns in batch]))

    def _begin_step(self, version: int) -> dict[str, float]:
        """Set the learning rates of the step, and return them by metric."""
        rate = learning_rate_at(
            version, peak=self.peak_learning_rate, warmup_steps=self._trainer.warmup_steps
        )
        section = self._algorithm.critic
        if section is not None and version < section.alone_steps:
            rate = 0.0  # leaves every weight as it is, to the bit
        set_learning_rate(self.optimizer, rate)
        rates = {"optim/learning_rate": rate}
        if self.critic is not None:
            rates["optim/critic_learning_rate"] = self.critic.begin_step(version)
        return rates

    # --- the updates ------------------------------------------------------------------------------------------

    def _backward(
        self, batch: Sequence[TokenColumns], step: Sequence[StepColumns], tally: Tally, *, measure_kl: bool
    ) -> tuple[float, float]:
        """Gradients of one minibatch, clipped. Returns its loss and gradient norm over all ranks."""
        total = 0.0
        for number, (columns, whole) in enumerate(zip(batch, step, strict=True)):
            row, part = heard(columns, whole) if self._may_skip else (columns.row, whole)
            sync_gradients(self.policy, number == len(batch) - 1)
            logprobs, entropy = self.policy(row, temperature=self._temperature)
            result = self._token_loss(logprobs, part, len(columns.sequences))
            loss = (part.scale * (result.loss + self._other_terms(logprobs, entropy, part))).sum()
            # FSDP2 averages gradients over the ranks; the loss is normalised over all of them already.
            (loss * self.ranks.size).backward()
            total += float(loss.detach())
            tally.add_update(
                result, part.advantages, silent_tokens=len(whole.advantages) - len(part.advantages)
            )
            if self._algorithm.proximal == "none":
                tally.add_entropy(entropy)
            if measure_kl:
                tally.add_kl(logprobs, part.proximal)
        norm = clip_gradients(self.parameters, self._trainer.max_grad_norm)
        return self.ranks.sum([total])[0], norm

    def _token_loss(self, logprobs: torch.Tensor, part: StepColumns, sequences: int) -> TokenLoss:
        tokens = LossTokens(
            logprobs=logprobs,
            proximal_logprobs=part.proximal,
            behaviour_logprobs=part.behaviour,
            advantages=part.advantages,
            weights=part.weights,
            lag=part.lag,
            sequence=part.sequence,
            sequences=sequences,
        )
        return self._objective(tokens, self._algorithm)

    def _other_terms(
        self, logprobs: torch.Tensor, entropy: torch.Tensor, part: StepColumns
    ) -> torch.Tensor | float:
        """[N]: beta KL to the reference, minus the entropy bonus."""
        terms: torch.Tensor | float = 0.0
        if self._kl_in_loss is not None:
            assert part.reference is not None
            terms = self._kl_in_loss.coefficient * reference_kl(
                logprobs, part.reference, estimator=self._kl_in_loss.estimator
            )
            if self._kl_in_loss.importance_correction:
                # w (proximal over behaviour) times u (current over proximal): the KL is under the current policy.
                terms = terms * part.weights * (logprobs.detach() - part.proximal).exp()
        if self._algorithm.entropy_bonus:
            terms = terms - self._algorithm.entropy_bonus * entropy
        return terms

    def _critic_backward(
        self,
        minibatch: Minibatch,
        batch: Sequence[TokenColumns],
        passes: Sequence[Passes],
        credit: Sequence[Credit],
        tally: Tally,
    ) -> tuple[float, float]:
        assert self.critic is not None
        return self.critic.backward(
            batch,
            [one.values for one in passes if one.values is not None],
            [one.returns for one in credit if one.returns is not None],
            loss_tokens=minibatch.loss_tokens,
            tally=tally,
        )

    # --- whole steps or none ----------------------------------------------------------------------------------

    def _kept(self) -> list[Kept]:
        kept = [Kept(self.parameters, self.optimizer)]
        if self.critic is not None:
            kept.append(Kept(self.critic.parameters, self.critic.optimizer))
        return kept

    def _take_back(self, way_back: list[Kept]) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        if self.critic is not None:
            self.critic.optimizer.zero_grad(set_to_none=True)
        for kept in way_back:
            kept.put_back()

    def _metrics(
        self, batch: list[TokenColumns], tally: Tally, outcome: StepOutcome, rates: dict[str, float]
    ) -> dict[str, float]:
        tokens, microbatches = self.ranks.sum(
            [float(sum(one.row.tokens for one in batch)), float(len(batch))]
        )
        metrics = {
            **tally.metrics(self.ranks),
            **rates,
            "loss/total": sum(outcome.minibatch_losses) / len(outcome.minibatch_losses),
            "optim/grad_norm": sum(outcome.grad_norms) / len(outcome.grad_norms),
            "optim/grad_norm_clipped_share": sum(
                norm > self._trainer.max_grad_norm for norm in outcome.grad_norms
            )
            / len(outcome.grad_norms),
            "pack/tokens": tokens,
            "pack/microbatches": microbatches,
        }
        if outcome.critic_grad_norms:
            metrics["optim/critic_grad_norm"] = sum(outcome.critic_grad_norms) / len(
                outcome.critic_grad_norms
            )
        return metrics
