"""Sums over loss tokens that become the step's metrics, on every rank the same."""

from __future__ import annotations

from collections import defaultdict

import torch

from trainers.algorithms.losses import TokenLoss
from trainers.algorithms.value_loss import ValueLoss
from trainers.algorithms.weights import Weights
from trainers.ranks import Ranks

_SUMS = (
    "tokens", "loss", "clipped_low", "clipped_high", "dual_clipped", "advantage", "advantage_squared",
    "kl_tokens", "kl", "ratio_tokens", "ratio", "entropy_tokens", "entropy", "clip_tokens", "dual_tokens",
    "proximal_tokens", "weight", "weight_squared", "abs_log_weight", "limit_tokens", "limited", "fresh_tokens",
    "fresh_difference", "reference_tokens", "reference_kl", "value_tokens", "value_loss", "value_clipped", "value",
    "return", "return_squared", "error", "error_squared",
)  # fmt: skip
_MAXIMA = ("weight", "fresh_difference", "ratio", "inverse_ratio")


class Tally:
    """Collects on one rank; `metrics` adds the ranks up. What was not measured has no metric."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = defaultdict(float)
        self._maxima: dict[str, float] = defaultdict(float)

    def add_proximal(self, proximal: torch.Tensor, behaviour: torch.Tensor, fresh: torch.Tensor) -> None:
        """Of a proximal pass: staleness of the data and, on tokens of lag 0, the mismatch of the engine."""
        log_weight = (proximal - behaviour).double()
        weight = log_weight.exp()
        self._sums["proximal_tokens"] += proximal.numel()
        self._sums["weight"] += float(weight.sum())
        self._sums["weight_squared"] += float(weight.square().sum())
        self._sums["abs_log_weight"] += float(log_weight.abs().sum())
        self._note_largest("weight", weight)
        self._sums["fresh_tokens"] += int(fresh.sum())
        if bool(fresh.any()):
            difference = log_weight[fresh].abs()
            self._sums["fresh_difference"] += float(difference.sum())
            self._note_largest("fresh_difference", difference)

    def add_entropy(self, entropy: torch.Tensor) -> None:
        self._sums["entropy_tokens"] += entropy.numel()
        self._sums["entropy"] += float(entropy.detach().double().sum())

    def add_weights(self, weights: Weights) -> None:
        self._sums["limit_tokens"] += weights.limited.numel()
        self._sums["limited"] += int(weights.limited.sum())

    def add_update(self, result: TokenLoss, advantages: torch.Tensor, *, silent_tokens: int) -> None:
        """Of an update's forward pass. `silent_tokens` have advantage 0, were left out of it and count as such."""
        tokens = advantages.numel() + silent_tokens
        self._sums["tokens"] += tokens
        self._sums["loss"] += float(result.loss.detach().double().sum())
        if result.clipped_low is not None and result.clipped_high is not None:
            self._sums["clip_tokens"] += tokens
            self._sums["clipped_low"] += int(result.clipped_low.sum())
            self._sums["clipped_high"] += int(result.clipped_high.sum())
        if result.dual_clipped is not None:
            self._sums["dual_tokens"] += tokens
            self._sums["dual_clipped"] += int(result.dual_clipped.sum())
        if result.limited is not None:
            self._sums["limit_tokens"] += tokens
            self._sums["limited"] += int(result.limited.sum())
        if result.ratio is not None and result.ratio.numel():
            ratio = result.ratio.detach().double()
            self._sums["ratio_tokens"] += ratio.numel()
            self._sums["ratio"] += float(ratio.sum())
            self._note_largest("ratio", ratio)
            self._note_largest("inverse_ratio", 1.0 / ratio)
        values = advantages.double()
        self._sums["advantage"] += float(values.sum())
        self._sums["advantage_squared"] += float(values.square().sum())

    def add_kl(self, logprobs: torch.Tensor, proximal: torch.Tensor) -> None:
        """Of the step's last minibatch: how far the ones before it moved the policy."""
        self._sums["kl_tokens"] += logprobs.numel()
        self._sums["kl"] += float((proximal - logprobs.detach()).double().sum())

    def add_reference(self, proximal: torch.Tensor, reference: torch.Tensor) -> None:
        """k3 of the policy before the step against the reference, whatever estimator the loss has."""
        difference = (proximal - reference).double()
        self._sums["reference_tokens"] += difference.numel()
        self._sums["reference_kl"] += float((torch.expm1(-difference) + difference).sum())

    def add_values(self, result: ValueLoss, values: torch.Tensor, returns: torch.Tensor) -> None:
        """Of a critic's update; `values` are those before the step."""
        self._sums["value_tokens"] += values.numel()
        self._sums["value_loss"] += float(result.loss.detach().double().sum())
        self._sums["value_clipped"] += int(result.clipped.sum())
        self._sums["value"] += float(values.double().sum())
        for name, of in (("return", returns.double()), ("error", (returns - values).double())):
            self._sums[name] += float(of.sum())
            self._sums[f"{name}_squared"] += float(of.square().sum())

    def metrics(self, ranks: Ranks) -> dict[str, float]:
        total = dict(zip(_SUMS, ranks.sum([self._sums[name] for name in _SUMS]), strict=True))
        largest = dict(zip(_MAXIMA, ranks.max([self._maxima[name] for name in _MAXIMA]), strict=True))
        tokens = max(1.0, total["tokens"])
        metrics = {
            "loss/policy": total["loss"] / tokens,
            "advantage/mean": total["advantage"] / tokens,
            "advantage/std": _variance(total["advantage"], total["advantage_squared"], tokens) ** 0.5,
            "perf/trained_tokens": total["tokens"],
        }
        for name, of, count in (
            ("policy/clip_low_share", "clipped_low", "clip_tokens"),
            ("policy/clip_high_share", "clipped_high", "clip_tokens"),
            ("policy/dual_clip_share", "dual_clipped", "dual_tokens"),
            ("policy/approx_kl", "kl", "kl_tokens"),
            ("policy/reference_kl", "reference_kl", "reference_tokens"),
            ("policy/entropy", "entropy", "entropy_tokens"),
            ("policy/ratio_mean", "ratio", "ratio_tokens"),
            ("weight/mean", "weight", "proximal_tokens"),
            ("weight/abs_log_mean", "abs_log_weight", "proximal_tokens"),
            ("weight/masked_share", "limited", "limit_tokens"),
            ("mismatch/lag0_abs_mean", "fresh_difference", "fresh_tokens"),
            ("value/loss", "value_loss", "value_tokens"),
            ("value/clip_share", "value_clipped", "value_tokens"),
            ("value/mean", "value", "value_tokens"),
            ("value/return_mean", "return", "value_tokens"),
        ):
            if total[count]:
                metrics[name] = total[of] / total[count]
        if total["ratio_tokens"]:
            metrics["policy/ratio_max"] = largest["ratio"]
            metrics["policy/ratio_min"] = 1.0 / largest["inverse_ratio"]
        if total["proximal_tokens"]:
            number, weight, squares = total["proximal_tokens"], total["weight"], total["weight_squared"]
            metrics["weight/max"] = largest["weight"]
            metrics["weight/std"] = _variance(weight, squares, number) ** 0.5
            metrics["weight/effective_share"] = weight * weight / (number * squares)
        if total["fresh_tokens"]:
            metrics["mismatch/lag0_abs_max"] = largest["fresh_difference"]
            metrics["mismatch/lag0_tokens"] = total["fresh_tokens"]
        if total["value_tokens"]:
            spread = _variance(total["return"], total["return_squared"], total["value_tokens"])
            missed = _variance(total["error"], total["error_squared"], total["value_tokens"])
            if spread:
                metrics["value/explained_variance"] = 1.0 - missed / spread
        return metrics

    def _note_largest(self, name: str, values: torch.Tensor) -> None:
        self._maxima[name] = (
            max(self._maxima[name], float(values.max())) if values.numel() else self._maxima[name]
        )


def _variance(total: float, squares: float, count: float) -> float:
    mean = total / count
    return max(0.0, squares / count - mean * mean)
