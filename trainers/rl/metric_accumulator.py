"""Accumulates sums over loss tokens and reduces them over ranks to the metrics of a train step."""

from __future__ import annotations

from collections import defaultdict

import torch

from trainers.algorithms.importance_weights import ImportanceWeights
from trainers.algorithms.losses import LossOutputs
from trainers.algorithms.value_loss import ValueLoss
from trainers.distributed.context import DistributedContext

_SUMS = (
    "tokens", "loss", "clipped_low", "clipped_high", "dual_clipped", "advantage", "advantage_squared",
    "kl_tokens", "kl", "ratio_tokens", "ratio", "entropy_tokens", "entropy", "clip_tokens", "dual_tokens",
    "proximal_tokens", "weight", "weight_squared", "abs_log_weight", "bounds_tokens", "out_of_bounds",
    "on_policy_tokens", "mismatch", "reference_tokens", "reference_kl", "value_tokens", "value_loss",
    "value_clipped", "value",
    "return", "return_squared", "error", "error_squared",
)  # fmt: skip
_MAXIMA = ("weight", "mismatch", "ratio", "inverse_ratio")


class MetricAccumulator:
    """Accumulates on one rank; `reduce` combines the ranks. Quantities that were not measured have no metric."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = defaultdict(float)
        self._maxima: dict[str, float] = defaultdict(float)

    def add_proximal(self, proximal: torch.Tensor, behavior: torch.Tensor, on_policy: torch.Tensor) -> None:
        """Add a proximal pass: importance weights and, on on-policy tokens (version lag 0), the engine mismatch."""
        log_weight = (proximal - behavior).double()
        weight = log_weight.exp()
        self._sums["proximal_tokens"] += proximal.numel()
        self._sums["weight"] += float(weight.sum())
        self._sums["weight_squared"] += float(weight.square().sum())
        self._sums["abs_log_weight"] += float(log_weight.abs().sum())
        self._update_max("weight", weight)
        self._sums["on_policy_tokens"] += int(on_policy.sum())
        if bool(on_policy.any()):
            difference = log_weight[on_policy].abs()
            self._sums["mismatch"] += float(difference.sum())
            self._update_max("mismatch", difference)

    def add_entropy(self, entropy: torch.Tensor) -> None:
        self._sums["entropy_tokens"] += entropy.numel()
        self._sums["entropy"] += float(entropy.detach().double().sum())

    def add_weights(self, weights: ImportanceWeights) -> None:
        self._sums["bounds_tokens"] += weights.out_of_bounds.numel()
        self._sums["out_of_bounds"] += int(weights.out_of_bounds.sum())

    def add_update(self, result: LossOutputs, advantages: torch.Tensor, *, dropped_tokens: int) -> None:
        """Add an update's forward pass. `dropped_tokens` have advantage 0 and were left out of the pass."""
        tokens = advantages.numel() + dropped_tokens
        self._sums["tokens"] += tokens
        self._sums["loss"] += float(result.loss.detach().double().sum())
        if result.clipped_low is not None and result.clipped_high is not None:
            self._sums["clip_tokens"] += tokens
            self._sums["clipped_low"] += int(result.clipped_low.sum())
            self._sums["clipped_high"] += int(result.clipped_high.sum())
        if result.dual_clipped is not None:
            self._sums["dual_tokens"] += tokens
            self._sums["dual_clipped"] += int(result.dual_clipped.sum())
        if result.weight_out_of_bounds is not None:
            self._sums["bounds_tokens"] += tokens
            self._sums["out_of_bounds"] += int(result.weight_out_of_bounds.sum())
        if result.ratio is not None and result.ratio.numel():
            ratio = result.ratio.detach().double()
            self._sums["ratio_tokens"] += ratio.numel()
            self._sums["ratio"] += float(ratio.sum())
            self._update_max("ratio", ratio)
            self._update_max("inverse_ratio", 1.0 / ratio)
        values = advantages.double()
        self._sums["advantage"] += float(values.sum())
        self._sums["advantage_squared"] += float(values.square().sum())

    def add_kl(self, logprobs: torch.Tensor, proximal: torch.Tensor) -> None:
        """Add the step's last minibatch: the KL caused by the minibatches before it."""
        self._sums["kl_tokens"] += logprobs.numel()
        self._sums["kl"] += float((proximal - logprobs.detach()).double().sum())

    def add_reference(self, proximal: torch.Tensor, reference: torch.Tensor) -> None:
        """Add the KL of the proximal policy to the reference, always with estimator k3."""
        difference = (proximal - reference).double()
        self._sums["reference_tokens"] += difference.numel()
        self._sums["reference_kl"] += float((torch.expm1(-difference) + difference).sum())

    def add_values(self, result: ValueLoss, values: torch.Tensor, returns: torch.Tensor) -> None:
        """Add a critic update; `values` are those before the step."""
        self._sums["value_tokens"] += values.numel()
        self._sums["value_loss"] += float(result.loss.detach().double().sum())
        self._sums["value_clipped"] += int(result.clipped.sum())
        self._sums["value"] += float(values.double().sum())
        for name, of in (("return", returns.double()), ("error", (returns - values).double())):
            self._sums[name] += float(of.sum())
            self._sums[f"{name}_squared"] += float(of.square().sum())

    def reduce(self, context: DistributedContext) -> dict[str, float]:
        total = dict(zip(_SUMS, context.sum([self._sums[name] for name in _SUMS]), strict=True))
        largest = dict(zip(_MAXIMA, context.max([self._maxima[name] for name in _MAXIMA]), strict=True))
        tokens = max(1.0, total["tokens"])
        metrics = {
            "loss/policy": total["loss"] / tokens,
            "advantage/mean": total["advantage"] / tokens,
            "advantage/std": _variance(total["advantage"], total["advantage_squared"], tokens) ** 0.5,
            "perf/trained_tokens": total["tokens"],
        }
        for name, of, count in (
            ("policy/clip_low_frac", "clipped_low", "clip_tokens"),
            ("policy/clip_high_frac", "clipped_high", "clip_tokens"),
            ("policy/dual_clip_frac", "dual_clipped", "dual_tokens"),
            ("policy/approx_kl", "kl", "kl_tokens"),
            ("policy/reference_kl", "reference_kl", "reference_tokens"),
            ("policy/entropy", "entropy", "entropy_tokens"),
            ("policy/ratio_mean", "ratio", "ratio_tokens"),
            ("importance_ratio/mean", "weight", "proximal_tokens"),
            ("importance_ratio/abs_log_mean", "abs_log_weight", "proximal_tokens"),
            ("importance_ratio/masked_frac", "out_of_bounds", "bounds_tokens"),
            ("mismatch/on_policy_abs_mean", "mismatch", "on_policy_tokens"),
            ("value/loss", "value_loss", "value_tokens"),
            ("value/clip_frac", "value_clipped", "value_tokens"),
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
            metrics["importance_ratio/max"] = largest["weight"]
            metrics["importance_ratio/std"] = _variance(weight, squares, number) ** 0.5
            metrics["importance_ratio/effective_sample_frac"] = weight * weight / (number * squares)
        if total["on_policy_tokens"]:
            metrics["mismatch/on_policy_abs_max"] = largest["mismatch"]
            metrics["mismatch/on_policy_tokens"] = total["on_policy_tokens"]
        if total["value_tokens"]:
            spread = _variance(total["return"], total["return_squared"], total["value_tokens"])
            residual = _variance(total["error"], total["error_squared"], total["value_tokens"])
            if spread:
                metrics["value/explained_variance"] = 1.0 - residual / spread
        return metrics

    def _update_max(self, name: str, values: torch.Tensor) -> None:
        self._maxima[name] = (
            max(self._maxima[name], float(values.max())) if values.numel() else self._maxima[name]
        )


def _variance(total: float, squares: float, count: float) -> float:
    mean = total / count
    return max(0.0, squares / count - mean * mean)
