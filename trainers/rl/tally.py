"""Sums over loss tokens that become the step's metrics, on every rank the same."""

from __future__ import annotations

from collections import defaultdict

import torch

from trainers.algorithms.losses import TokenLoss
from trainers.ranks import Ranks


class Tally:
    """Collects on one rank; `metrics` adds the ranks up. What was not measured has no metric."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = defaultdict(float)
        self._maxima: dict[str, float] = {"weight": 0.0}

    def add_proximal(
        self, proximal: torch.Tensor, behaviour: torch.Tensor, fresh: torch.Tensor, entropy: torch.Tensor
    ) -> None:
        """Of a proximal pass: staleness of the data and, on tokens of lag 0, the mismatch of the engine."""
        log_weight = (proximal - behaviour).double()
        weight = log_weight.exp()
        self._sums["proximal_tokens"] += proximal.numel()
        self._sums["entropy"] += float(entropy.double().sum())
        self._sums["weight"] += float(weight.sum())
        self._sums["abs_log_weight"] += float(log_weight.abs().sum())
        self._maxima["weight"] = max(self._maxima["weight"], float(weight.max()))
        self._sums["fresh_tokens"] += int(fresh.sum())
        if bool(fresh.any()):
            difference = log_weight[fresh].abs()
            self._sums["fresh_difference"] += float(difference.sum())
            self._maxima["fresh_difference"] = max(
                self._maxima.get("fresh_difference", 0.0), float(difference.max())
            )

    def add_update(
        self,
        result: TokenLoss,
        advantages: torch.Tensor,
        logprobs: torch.Tensor,
        proximal: torch.Tensor,
        *,
        silent_tokens: int,
        measure_kl: bool,
    ) -> None:
        """Of an update's forward pass. `silent_tokens` have advantage 0, were left out of it and count as such."""
        self._sums["tokens"] += advantages.numel() + silent_tokens
        self._sums["loss"] += float(result.loss.detach().double().sum())
        self._sums["limited"] += int(result.limited.sum())
        self._sums["clipped_low"] += int(result.clipped_low.sum())
        self._sums["clipped_high"] += int(result.clipped_high.sum())
        values = advantages.double()
        self._sums["advantage"] += float(values.sum())
        self._sums["advantage_squared"] += float(values.square().sum())
        if measure_kl:
            self._sums["kl_tokens"] += advantages.numel()
            self._sums["kl"] += float((proximal - logprobs).double().sum())

    def metrics(self, ranks: Ranks) -> dict[str, float]:
        names = (
            "tokens", "loss", "limited", "clipped_low", "clipped_high", "advantage", "advantage_squared",
            "kl_tokens", "kl", "proximal_tokens", "entropy", "weight", "abs_log_weight", "fresh_tokens",
            "fresh_difference",
        )  # fmt: skip
        total = dict(zip(names, ranks.sum([self._sums[name] for name in names]), strict=True))
        largest = dict(
            zip(
                ("weight", "fresh_difference"),
                ranks.max([self._maxima["weight"], self._maxima.get("fresh_difference", 0.0)]),
                strict=True,
            )
        )
        tokens = max(1.0, total["tokens"])
        mean = total["advantage"] / tokens
        metrics = {
            "loss/policy": total["loss"] / tokens,
            "policy/clip_low_share": total["clipped_low"] / tokens,
            "policy/clip_high_share": total["clipped_high"] / tokens,
            "weight/masked_share": total["limited"] / tokens,
            "advantage/mean": mean,
            "advantage/std": max(0.0, total["advantage_squared"] / tokens - mean * mean) ** 0.5,
            "perf/trained_tokens": total["tokens"],
        }
        if total["kl_tokens"]:
            metrics["policy/approx_kl"] = total["kl"] / total["kl_tokens"]
        if total["proximal_tokens"]:
            metrics["policy/entropy"] = total["entropy"] / total["proximal_tokens"]
            metrics["weight/mean"] = total["weight"] / total["proximal_tokens"]
            metrics["weight/max"] = largest["weight"]
            metrics["weight/abs_log_mean"] = total["abs_log_weight"] / total["proximal_tokens"]
        if total["fresh_tokens"]:
            metrics["mismatch/lag0_abs_mean"] = total["fresh_difference"] / total["fresh_tokens"]
            metrics["mismatch/lag0_abs_max"] = largest["fresh_difference"]
            metrics["mismatch/lag0_tokens"] = total["fresh_tokens"]
        return metrics
