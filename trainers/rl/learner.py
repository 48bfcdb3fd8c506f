"""One train step on one rank: proximal pass, advantages, minibatches of packed microbatches, optimizer steps."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from oolong.contracts.run_spec import AlgorithmSection, RunSpec, TrainerSection
from trainers.algorithms.advantages import advantages
from trainers.algorithms.losses import OBJECTIVES, ClipRange, TokenLoss, WeightLimit
from trainers.models.optimizer import clip_gradients, learning_rate_at, make_adamw, set_learning_rate
from trainers.models.packing import PackedRow, pack
from trainers.models.policy import Policy
from trainers.models.shard import sync_gradients
from trainers.ranks import Ranks
from trainers.rl.plan import Microbatch, Minibatch, RankPlan
from trainers.rl.tally import Tally
from trainers.stopwatch import Stopwatch


@dataclass(frozen=True)
class TokenColumns:
    """A microbatch's loss tokens beside its packed row, all [N] in the row's order."""

    row: PackedRow
    behaviour: torch.Tensor
    fresh: torch.Tensor  # bool: sampled by the very version that is trained
    is_dummy: bool


@dataclass(frozen=True)
class TeachingTokens:
    """The part of a microbatch that has a gradient: its packed row, and its loss tokens, all [M]."""

    row: PackedRow
    centre: torch.Tensor  # proximal log-probabilities
    behaviour: torch.Tensor
    advantages: torch.Tensor  # nowhere 0


@dataclass(frozen=True)
class StepOutcome:
    """What a train step did, the same on all ranks."""

    finite: bool
    metrics: dict[str, float]  # by catalogue name; empty when not finite
    minibatch_losses: list[float]
    grad_norms: list[float]  # before clipping


class Learner:
    """Holds the sharded policy and its optimizer, and moves them by whole train steps or not at all."""

    def __init__(self, policy: Policy, spec: RunSpec, ranks: Ranks) -> None:
        self.policy = policy
        self.ranks = ranks
        self._algorithm: AlgorithmSection = spec.algorithm
        self._trainer: TrainerSection = spec.trainer
        self._temperature = spec.rollout.temperature
        self._objective = OBJECTIVES[spec.algorithm.objective]
        self.parameters = list(policy.parameters())
        self.optimizer = make_adamw(
            self.parameters,
            learning_rate=spec.trainer.learning_rate,
            betas=spec.trainer.adam_betas,
            epsilon=spec.trainer.adam_epsilon,
            weight_decay=spec.trainer.weight_decay,
        )

    def train(self, plan: RankPlan, watch: Stopwatch) -> StepOutcome:
        """Update the policy on one batch. When a loss or gradient is not finite nothing has changed afterwards."""
        watch.enter("prepare")
        batch = [
            [self._columns(one, plan.version) for one in minibatch.microbatches]
            for minibatch in plan.minibatches
        ]
        tally = Tally()

        watch.enter("proximal")
        proximal = [[self._proximal(columns, tally) for columns in minibatch] for minibatch in batch]

        watch.enter("train")
        section = self._algorithm.advantage
        values = advantages(plan.rewards, mean=section.mean, std=section.std, epsilon=section.epsilon)
        learning_rate = learning_rate_at(
            plan.version, peak=self._trainer.learning_rate, warmup_steps=self._trainer.warmup_steps
        )
        set_learning_rate(self.optimizer, learning_rate)
        before = _Kept(self) if len(batch) > 1 else None
        losses: list[float] = []
        norms: list[float] = []
        for number, (minibatch, columns, centre) in enumerate(
            zip(plan.minibatches, batch, proximal, strict=True)
        ):
            last = number == len(batch) - 1
            loss, norm = self._backward(minibatch, columns, centre, values, tally, measure_kl=last)
            losses.append(loss)
            norms.append(norm)
            if not (math.isfinite(loss) and math.isfinite(norm)):
                self.optimizer.zero_grad(set_to_none=True)
                if before is not None:
                    before.put_back(self)
                return StepOutcome(finite=False, metrics={}, minibatch_losses=losses, grad_norms=norms)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        metrics = tally.metrics(self.ranks)
        tokens, microbatches = self.ranks.sum(
            [
                float(sum(one.row.tokens for minibatch in batch for one in minibatch)),
                float(sum(len(minibatch) for minibatch in batch)),
            ]
        )
        metrics["pack/tokens"] = tokens
        metrics["pack/microbatches"] = microbatches
        metrics["optim/grad_norm"] = sum(norms) / len(norms)
        metrics["optim/learning_rate"] = learning_rate
        return StepOutcome(finite=True, metrics=metrics, minibatch_losses=losses, grad_norms=norms)

    def _columns(self, microbatch: Microbatch, version: int) -> TokenColumns:
        sequences = microbatch.sequences
        return TokenColumns(
            row=pack([one.tokens for one in sequences], [one.loss_at for one in sequences]).to(
                self.ranks.device
            ),
            behaviour=self._tensor([value for one in sequences for value in one.behaviour_logprobs]),
            fresh=torch.tensor(
                [sampled_by == version for one in sequences for sampled_by in one.versions],
                dtype=torch.bool,
                device=self.ranks.device,
            ),
            is_dummy=microbatch.is_dummy,
        )

    def _tensor(self, values: list[float]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float32, device=self.ranks.device)

    @torch.no_grad()
    def _proximal(self, columns: TokenColumns, tally: Tally) -> torch.Tensor:
        """[N] log-probabilities of the weights before the step; the behaviour ones where the spec wants no others."""
        if self._algorithm.proximal == "none":
            return columns.behaviour
        logprobs, entropy = self.policy(columns.row, temperature=self._temperature)
        if not columns.is_dummy:
            tally.add_proximal(logprobs, columns.behaviour, columns.fresh, entropy)
        return logprobs

    def _backward(
        self,
        minibatch: Minibatch,
        batch: list[TokenColumns],
        proximal: list[torch.Tensor],
        values: list[list[float]],
        tally: Tally,
        *,
        measure_kl: bool,
    ) -> tuple[float, float]:
        """Gradients of one minibatch, clipped. Returns its loss and gradient norm over all ranks."""
        total = 0.0
        for number, (microbatch, columns, centre) in enumerate(
            zip(minibatch.microbatches, batch, proximal, strict=True)
        ):
            part = self._teaching(microbatch, columns, centre, values)
            sync_gradients(self.policy, number == len(batch) - 1)
            logprobs, _ = self.policy(part.row, temperature=self._temperature)
            result: TokenLoss = self._objective(
                logprobs,
                part.centre,
                part.behaviour,
                part.advantages,
                clip=ClipRange(self._algorithm.clip_low, self._algorithm.clip_high),
                weight_limit=WeightLimit(
                    self._algorithm.behaviour_weight.mode, self._algorithm.behaviour_weight.limit
                ),
            )
            loss = result.loss.sum() / max(1, minibatch.loss_tokens)
            # FSDP2 averages gradients over the ranks; the loss is normalised over all of them already.
            (loss * self.ranks.size).backward()
            total += float(loss.detach())
            tally.add_update(
                result, part.advantages, logprobs.detach(), part.centre,
                silent_tokens=len(centre) - len(part.centre), measure_kl=measure_kl,
            )  # fmt: skip
        norm = clip_gradients(self.parameters, self._trainer.max_grad_norm)
        return self.ranks.sum([total])[0], norm

    def _teaching(
        self, microbatch: Microbatch, columns: TokenColumns, centre: torch.Tensor, values: list[list[float]]
    ) -> TeachingTokens:
        """The microbatch without sequences of advantage 0: their gradient is 0 and need not be computed.

        They still count in the denominator. As more groups are solved, this is what makes late steps cheap.
        """
        told = [values[one.group][one.member] for one in microbatch.sequences]
        heard = [
            one for one, value in zip(microbatch.sequences, told, strict=True) if value != 0 and one.loss_at
        ]
        advantage = self._tensor(
            [value for one, value in zip(microbatch.sequences, told, strict=True) for _ in one.loss_at]
        )
        if len(heard) == len(microbatch.sequences):
            return TeachingTokens(columns.row, centre, columns.behaviour, advantage)
        loud = advantage != 0
        row = (
            pack([one.tokens for one in heard], [one.loss_at for one in heard])
            if heard
            else pack([microbatch.sequences[0].tokens[:1]], [[]])  # the ranks must stay in step
        )
        return TeachingTokens(
            row.to(self.ranks.device), centre[loud], columns.behaviour[loud], advantage[loud]
        )


class _Kept:
    """Parameters and optimizer state as they were before a step of several minibatches, kept on the host.

    A later minibatch may turn out non-finite when earlier ones have already moved the weights; the step is then
    taken back whole, so that a policy version is always a whole number of batches.
    """

    def __init__(self, learner: Learner) -> None:
        self._parameters = [_host_copy(parameter.detach()) for parameter in learner.parameters]
        self._moments = {
            number: {name: _host_copy(value) for name, value in learner.optimizer.state[parameter].items()}
            for number, parameter in enumerate(learner.parameters)
            if parameter in learner.optimizer.state
        }

    @torch.no_grad()
    def put_back(self, learner: Learner) -> None:
        for number, (parameter, kept) in enumerate(zip(learner.parameters, self._parameters, strict=True)):
            _local(parameter).copy_(kept)
            if number not in self._moments:
                learner.optimizer.state.pop(parameter, None)
                continue
            for name, value in self._moments[number].items():
                _local(learner.optimizer.state[parameter][name]).copy_(value)


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _host_copy(tensor: torch.Tensor) -> torch.Tensor:
    return _local(tensor).detach().to("cpu", copy=True)
