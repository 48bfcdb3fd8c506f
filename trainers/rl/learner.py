"""One train step on one rank.

1. Forward passes of the policies that stay fixed: proximal, reference, critic.
2. Advantages from the rewards of the whole batch (`advantage_estimation`).
3. Importance weights (`trainers.algorithms.importance_weights`).
4. Per minibatch: the policy loss (`trainers.algorithms.losses`), KL and entropy terms, optimizer steps of policy and
   critic.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import torch

from oolong.contracts.run_spec import AlgorithmSection, RunSpec, TrainerSection
from trainers.algorithms.importance_weights import compute_importance_weights
from trainers.algorithms.kl import reference_kl
from trainers.algorithms.loss_aggregation import token_weights
from trainers.algorithms.losses import OBJECTIVES, LossInputs, LossOutputs, Objective
from trainers.distributed.context import DistributedContext
from trainers.distributed.fsdp import reshard, set_gradient_sync
from trainers.models.critic import Critic
from trainers.models.lora import BasePolicy
from trainers.models.optimizer import clip_gradients, learning_rate_at, make_adamw, set_learning_rate
from trainers.models.policy import Policy
from trainers.phase_timer import PhaseTimer
from trainers.rl.advantage_estimation import (
    Advantages,
    ForwardOutputs,
    estimate_gae_advantages,
    estimate_outcome_advantages,
)
from trainers.rl.batch_plan import Minibatch, RankPlan
from trainers.rl.critic_learner import CriticLearner
from trainers.rl.metric_accumulator import MetricAccumulator
from trainers.rl.microbatch_tensors import (
    MicrobatchTensors,
    StepTensors,
    build_microbatch_tensors,
    drop_zero_advantage,
    has_advantage,
    select_sequences,
    sequence_lengths,
)
from trainers.rl.step_backup import StepBackup
from trainers.rl.token_recorder import Place, RecordedSequence, TokenRecorder


@dataclass(frozen=True)
class StepOutcome:
    """The result of a train step, equal on all ranks except for `recorded`."""

    finite: bool
    metrics: dict[str, float]  # by key; empty if not finite
    minibatch_losses: list[float]  # of the policy, including all terms
    grad_norms: list[float]  # before clipping
    critic_losses: list[float]
    critic_grad_norms: list[float]
    recorded: list[RecordedSequence] = field(default_factory=list)  # of this rank


@dataclass(frozen=True)
class SharedPass:
    """A microbatch whose training pass gives the proximal log-probabilities too."""

    outputs: ForwardOutputs  # of the other fixed models
    pass_without_gradient: bool  # for the sequences that the training pass leaves out


class Learner:
    """Owns the sharded policy and its optimizer, and applies train steps atomically.

    `reference` (a frozen policy for the KL term; of a LoRA policy, its base) and `critic` are present iff the RunSpec
    configures them. `objective` is a user's loss; without it, the RunSpec's objective is used.
    """

    def __init__(
        self,
        policy: Policy,
        spec: RunSpec,
        context: DistributedContext,
        *,
        reference: Policy | BasePolicy | None = None,
        critic: CriticLearner | None = None,
        objective: Objective | None = None,
    ) -> None:
        self.policy = policy
        self.trains_adapters = spec.model.lora is not None
        self.reference = reference
        self.critic = critic
        self.context = context
        self._algorithm: AlgorithmSection = spec.algorithm
        self._trainer: TrainerSection = spec.trainer
        self.peak_learning_rate = spec.trainer.learning_rate  # may change between steps
        self._temperature = spec.rollout.temperature
        self._constant_tokens = spec.algorithm.loss_constant_tokens or spec.rollout.max_new_tokens
        self._objective = objective or OBJECTIVES[spec.algorithm.objective]
        kl = spec.algorithm.kl
        self._kl_in_loss = kl if kl is not None and kl.apply_to == "loss" else None
        assert (reference is not None) == (kl is not None)
        assert (critic is not None) == (spec.algorithm.critic is not None)
        # Sequences with advantage 0 have no gradient if all terms of the loss are multiplied by the advantage.
        self._drop_zero_advantage = (
            objective is None and self._kl_in_loss is None and not spec.algorithm.entropy_bonus
        )
        self.parameters = [parameter for parameter in policy.parameters() if parameter.requires_grad]
        self.optimizer = make_adamw(
            self.parameters,
            learning_rate=spec.trainer.learning_rate,
            betas=spec.trainer.adam_betas,
            epsilon=spec.trainer.adam_epsilon,
            weight_decay=spec.trainer.weight_decay,
            offload=spec.trainer.offload_optimizer,
        )
        self._recorder = TokenRecorder([])  # of the step under way
        self._backups = [StepBackup(self.parameters, self.optimizer)]
        if critic is not None:
            self._backups.append(StepBackup(critic.parameters, critic.optimizer))

    @property
    def critic_and_optimizer(self) -> tuple[Critic, torch.optim.Optimizer] | None:
        return None if self.critic is None else (self.critic.critic, self.critic.optimizer)

    def train(self, plan: RankPlan, timer: PhaseTimer, *, record: Collection[Place] = ()) -> StepOutcome:
        """Update the policy on one batch. If a loss or gradient is not finite, everything is rolled back.

        `record` names trajectories whose values by token the outcome holds.
        """
        timer.start("prepare")
        self._recorder = TokenRecorder(record)
        accumulator = MetricAccumulator()
        batch = [
            build_microbatch_tensors(microbatch, version=plan.version, device=self.context.device)
            for minibatch in plan.minibatches
            for microbatch in minibatch.microbatches
        ]
        # With one minibatch the weights do not change between the proximal and the training pass.
        shares_pass = self._can_share_pass(plan)
        backups = self._backups if len(plan.minibatches) > 1 else []
        for backup in backups:
            backup.begin()
        outputs = self._forward_fixed_models(batch, accumulator, timer, skip_proximal=shares_pass)

        timer.start("train")
        advantages = self._estimate_advantages(batch, outputs, plan.rewards)
        self._recorder.add_advantages(batch, advantages)
        step = self._build_step_tensors(
            plan,
            batch,
            outputs,
            advantages,
            None if shares_pass else self._importance_weights(batch, outputs, accumulator),
        )
        apart = self._need_pass_without_gradient(batch, step) if shares_pass else [False] * len(batch)
        rates = self._set_learning_rates(plan.version)
        for backup in backups:
            backup.wait()
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
            proximal = (
                [SharedPass(*one) for one in zip(outputs[part], apart[part], strict=True)]
                if shares_pass
                else None
            )
            loss, norm = self._backward(
                batch[part], step[part], accumulator, measure_kl=start == len(batch), proximal=proximal
            )
            outcome.minibatch_losses.append(loss)
            outcome.grad_norms.append(norm)
            scalars = [loss, norm]
            if self.critic is not None:
                scalars += self._critic_backward(
                    minibatch, batch[part], outputs[part], advantages[part], accumulator
                )
                outcome.critic_losses.append(scalars[2])
                outcome.critic_grad_norms.append(scalars[3])
            if not all(math.isfinite(value) for value in scalars):
                self._roll_back(backups)
                return StepOutcome(**{**vars(outcome), "finite": False})
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            if self.critic is not None:
                self.critic.optimizer_step()
        outcome.metrics.update(self._metrics(batch, accumulator, outcome, rates))
        outcome.recorded.extend(self._recorder.recorded())
        return outcome

    # --- before the optimizer steps ---------------------------------------------------------------------------

    @torch.no_grad()
    def _forward_fixed_models(
        self,
        batch: list[MicrobatchTensors],
        accumulator: MetricAccumulator,
        timer: PhaseTimer,
        *,
        skip_proximal: bool,
    ) -> list[ForwardOutputs]:
        """Run the forward passes whose results stay constant during the step: proximal, reference, critic.

        A skipped proximal pass leaves the behavior log-probabilities in its place.
        """
        timer.start("proximal")
        proximal = [
            tensors.behavior if skip_proximal else self._proximal(tensors, accumulator) for tensors in batch
        ]
        reference: list[torch.Tensor | None] = [None] * len(batch)
        if self.reference is not None:
            timer.start("reference")
            reference = [self.reference(tensors.row, temperature=self._temperature)[0] for tensors in batch]
            reshard(self.reference)  # there is no backward pass to do it
            for proximal_logprobs, reference_logprobs, tensors in zip(
                proximal, reference, batch, strict=True
            ):
                if not tensors.is_dummy and not skip_proximal:
                    accumulator.add_reference(proximal_logprobs, reference_logprobs)
        values: list[torch.Tensor | None] = [None] * len(batch)
        if self.critic is not None:
            timer.start("values")
            values = [self.critic.values(tensors) for tensors in batch]
        return [ForwardOutputs(*one) for one in zip(proximal, reference, values, strict=True)]

    def _proximal(self, tensors: MicrobatchTensors, accumulator: MetricAccumulator) -> torch.Tensor:
        """[N] log-probabilities of the weights before the step; with `proximal: none`, those of the behavior policy."""
        if self._algorithm.proximal == "none":
            return tensors.behavior
        logprobs, entropy = self.policy(tensors.row, temperature=self._temperature)
        if not tensors.is_dummy:
            accumulator.add_proximal(logprobs, tensors.behavior, tensors.version_lag == 0)
            accumulator.add_entropy(entropy)
            self._recorder.add_logprobs(tensors, logprobs)
        return logprobs

    def _estimate_advantages(
        self, batch: list[MicrobatchTensors], outputs: list[ForwardOutputs], rewards: list[list[float]]
    ) -> list[Advantages]:
        if self._algorithm.advantage.estimator == "gae":
            return estimate_gae_advantages(batch, outputs, rewards, self._algorithm, self.context.sum)
        return estimate_outcome_advantages(batch, rewards, self._algorithm)

    def _build_step_tensors(
        self,
        plan: RankPlan,
        batch: list[MicrobatchTensors],
        outputs: list[ForwardOutputs],
        advantages: list[Advantages],
        weights: list[torch.Tensor] | None,
    ) -> list[StepTensors]:
        """`weights` [N] per microbatch; None: the training pass computes them."""
        weights = weights or [torch.ones_like(tensors.behavior) for tensors in batch]
        minibatches = [minibatch for minibatch in plan.minibatches for _ in minibatch.microbatches]
        return [
            StepTensors(
                proximal=one.proximal,
                behavior=tensors.behavior,
                importance_weights=weight,
                advantages=estimate.advantages,
                token_weights=token_weights(
                    sequence_lengths(tensors),
                    mode=self._algorithm.loss_aggregation,
                    loss_tokens=minibatch.loss_tokens,
                    loss_sequences=minibatch.loss_sequences,
                    constant_tokens=self._constant_tokens,
                ),
                version_lag=tensors.version_lag,
                sequence_ids=tensors.sequence_ids,
                reference=one.reference if self._kl_in_loss is not None else None,
            )
            for tensors, one, weight, estimate, minibatch in zip(
                batch, outputs, weights, advantages, minibatches, strict=True
            )
        ]

    def _importance_weights(
        self, batch: list[MicrobatchTensors], outputs: list[ForwardOutputs], accumulator: MetricAccumulator
    ) -> list[torch.Tensor]:
        """Compute the weights of the rank's whole batch at once, because one mode compares all tokens."""
        offsets = [sum(len(one.sequences) for one in batch[:number]) for number in range(len(batch))]
        weights = compute_importance_weights(
            torch.cat([one.proximal - tensors.behavior for one, tensors in zip(outputs, batch, strict=True)]),
            torch.cat(
                [tensors.sequence_ids + offset for tensors, offset in zip(batch, offsets, strict=True)]
            ),
            sum(len(tensors.sequences) for tensors in batch),
            self._algorithm.importance_weight,
            self.context.sum,
        )
        if self._algorithm.proximal != "none":
            accumulator.add_weights(weights)
        return list(weights.bounded.split([len(tensors.behavior) for tensors in batch]))

    def _set_learning_rates(self, version: int) -> dict[str, float]:
        """Set the learning rates of the step, and return them by metric key."""
        rate = learning_rate_at(
            version, peak=self.peak_learning_rate, warmup_steps=self._trainer.warmup_steps
        )
        section = self._algorithm.critic
        if section is not None and version < section.warmup_steps:
            rate = 0.0  # keeps every weight bit-identical
        set_learning_rate(self.optimizer, rate)
        rates = {"optim/learning_rate": rate}
        if self.critic is not None:
            rates["optim/critic_learning_rate"] = self.critic.set_learning_rate(version)
        return rates

    # --- one forward pass for proximal and current policy -----------------------------------------------------

    def _can_share_pass(self, plan: RankPlan) -> bool:
        """Whether the training pass can give the proximal log-probabilities too.

        With one minibatch they are the current ones, detached. Nothing before the training pass may need them: not
        the KL in the reward, nor importance weights that compare all tokens of the batch.
        """
        kl = self._algorithm.kl
        return (
            len(plan.minibatches) == 1
            and self._algorithm.proximal != "none"
            and self._algorithm.importance_weight.mode != "second_moment"
            and (kl is None or kl.apply_to != "reward")
        )

    def _need_pass_without_gradient(
        self, batch: list[MicrobatchTensors], step: list[StepTensors]
    ) -> list[bool]:
        """Per microbatch: whether some rank drops sequences from the training pass. Their proximal log-probabilities,
        which metrics cover, then need a pass of their own, which all ranks must run."""
        if not self._drop_zero_advantage:
            return [False] * len(batch)
        dropped = [
            float(not bool(has_advantage(tensors, full).all()))
            for tensors, full in zip(batch, step, strict=True)
        ]
        return [value > 0 for value in self.context.max(dropped)]

    @torch.no_grad()
    def _pass_without_gradient(
        self, tensors: MicrobatchTensors, full: StepTensors
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (logprobs, entropy) of the sequences without an advantage."""
        row = select_sequences(tensors, ~has_advantage(tensors, full))
        return self.policy(row, temperature=self._temperature)

    @torch.no_grad()
    def _share_pass(
        self,
        tensors: MicrobatchTensors,
        full: StepTensors,
        part: StepTensors,
        outputs: ForwardOutputs,
        trained: tuple[torch.Tensor, torch.Tensor],
        left_out: tuple[torch.Tensor, torch.Tensor] | None,
        accumulator: MetricAccumulator,
    ) -> StepTensors:
        """Return `part` with proximal log-probabilities and importance weights from its training pass.

        `trained` and `left_out` are (logprobs, entropy) of the sequences in and not in the training pass.
        """
        if left_out is None:
            keep = torch.ones_like(full.behavior, dtype=torch.bool)
        else:
            keep = has_advantage(tensors, full)[tensors.sequence_ids]
        proximal, entropy = torch.empty_like(full.behavior), torch.empty_like(full.behavior)
        proximal[keep], entropy[keep] = (one.detach() for one in trained)
        if left_out is not None:
            proximal[~keep], entropy[~keep] = left_out
        if not tensors.is_dummy:
            accumulator.add_proximal(proximal, tensors.behavior, tensors.version_lag == 0)
            accumulator.add_entropy(entropy)
            self._recorder.add_logprobs(tensors, proximal)
            if outputs.reference is not None:
                accumulator.add_reference(proximal, outputs.reference)
        [weights] = self._importance_weights([tensors], [replace(outputs, proximal=proximal)], accumulator)
        return replace(part, proximal=proximal[keep], importance_weights=weights[keep])

    # --- optimizer steps --------------------------------------------------------------------------------------

    def _backward(
        self,
        batch: Sequence[MicrobatchTensors],
        step: Sequence[StepTensors],
        accumulator: MetricAccumulator,
        *,
        measure_kl: bool,
        proximal: Sequence[SharedPass] | None,
    ) -> tuple[float, float]:
        """Compute clipped gradients of one minibatch. Returns its loss and gradient norm over all ranks.

        With `proximal`, the proximal log-probabilities are still missing and come from the same forward pass.
        """
        total = 0.0
        for number, (tensors, full) in enumerate(zip(batch, step, strict=True)):
            row, part = (
                drop_zero_advantage(tensors, full) if self._drop_zero_advantage else (tensors.row, full)
            )
            set_gradient_sync(self.policy, is_last=number == len(batch) - 1)
            left_out = None
            if proximal is not None and proximal[number].pass_without_gradient:
                left_out = self._pass_without_gradient(tensors, full)
            logprobs, entropy = self.policy(row, temperature=self._temperature)
            if proximal is not None:
                outputs = proximal[number].outputs
                part = self._share_pass(
                    tensors, full, part, outputs, (logprobs, entropy), left_out, accumulator
                )
            result = self._policy_loss(logprobs, part, len(tensors.sequences))
            loss = (part.token_weights * (result.loss + self._extra_terms(logprobs, entropy, part))).sum()
            # FSDP2 averages gradients over ranks, but the loss is already normalized over all of them.
            (loss * self.context.world_size).backward()
            total += float(loss.detach())
            accumulator.add_update(
                result, part.advantages, dropped_tokens=len(full.advantages) - len(part.advantages)
            )
            if self._algorithm.proximal == "none":
                accumulator.add_entropy(entropy)
            if measure_kl:
                accumulator.add_kl(logprobs, part.proximal)
        norm = clip_gradients(self.parameters, self._trainer.max_grad_norm)
        return self.context.sum([total])[0], norm

    def _policy_loss(self, logprobs: torch.Tensor, part: StepTensors, num_sequences: int) -> LossOutputs:
        inputs = LossInputs(
            logprobs=logprobs,
            proximal_logprobs=part.proximal,
            behavior_logprobs=part.behavior,
            advantages=part.advantages,
            importance_weights=part.importance_weights,
            version_lag=part.version_lag,
            sequence_ids=part.sequence_ids,
            num_sequences=num_sequences,
        )
        return self._objective(inputs, self._algorithm)

    def _extra_terms(
        self, logprobs: torch.Tensor, entropy: torch.Tensor, part: StepTensors
    ) -> torch.Tensor | float:
        """[N]: beta KL to the reference policy, minus the entropy bonus."""
        terms: torch.Tensor | float = 0.0
        if self._kl_in_loss is not None:
            assert part.reference is not None
            terms = self._kl_in_loss.coefficient * reference_kl(
                logprobs, part.reference, estimator=self._kl_in_loss.estimator
            )
            if self._kl_in_loss.importance_correction:
                # w (proximal / behavior) times u (current / proximal): the KL is under the current policy.
                terms = terms * part.importance_weights * (logprobs.detach() - part.proximal).exp()
        if self._algorithm.entropy_bonus:
            terms = terms - self._algorithm.entropy_bonus * entropy
        return terms

    def _critic_backward(
        self,
        minibatch: Minibatch,
        batch: Sequence[MicrobatchTensors],
        outputs: Sequence[ForwardOutputs],
        advantages: Sequence[Advantages],
        accumulator: MetricAccumulator,
    ) -> tuple[float, float]:
        assert self.critic is not None
        return self.critic.backward(
            batch,
            [one.values for one in outputs if one.values is not None],
            [one.returns for one in advantages if one.returns is not None],
            loss_tokens=minibatch.loss_tokens,
            accumulator=accumulator,
        )

    # --- rollback and metrics ---------------------------------------------------------------------------------

    def _roll_back(self, backups: list[StepBackup]) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        if self.critic is not None:
            self.critic.optimizer.zero_grad(set_to_none=True)
        for backup in backups:
            backup.restore()

    def _metrics(
        self,
        batch: list[MicrobatchTensors],
        accumulator: MetricAccumulator,
        outcome: StepOutcome,
        rates: dict[str, float],
    ) -> dict[str, float]:
        tokens, microbatches = self.context.sum(
            [float(sum(one.row.tokens for one in batch)), float(len(batch))]
        )
        metrics = {
            **accumulator.reduce(self.context),
            **rates,
            "loss/total": sum(outcome.minibatch_losses) / len(outcome.minibatch_losses),
            "optim/grad_norm": sum(outcome.grad_norms) / len(outcome.grad_norms),
            "optim/grad_norm_clipped_frac": sum(
                norm > self._trainer.max_grad_norm for norm in outcome.grad_norms
            )
            / len(outcome.grad_norms),
            "packing/tokens": tokens,
            "packing/microbatches": microbatches,
        }
        if outcome.critic_grad_norms:
            metrics["optim/critic_grad_norm"] = sum(outcome.critic_grad_norms) / len(
                outcome.critic_grad_norms
            )
        return metrics
