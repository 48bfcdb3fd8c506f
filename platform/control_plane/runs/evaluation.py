"""Metrics of an eval run, computed from its summary: pure functions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from oolong.contracts.error_words import nearest
from oolong.contracts.metrics import ACCURACY_BY_SOURCE
from oolong.contracts.run_spec import RunSpec

METRIC_NAME = re.compile(
    r"eval/((accuracy|greedy|sampled)(_low|_high)?|pass_at_[1-9]\d*(_low)?|mean_tokens|prompts|by_source/.+)"
)
LABEL = "end"  # an eval run scores once, at its end


def evaluation_metrics(summary: Mapping[str, Any]) -> dict[str, float]:
    """The metrics in the summary `evaluation`: eval/accuracy, eval/greedy, eval/sampled (avg@k), eval/pass_at_4, …"""
    scores = summary.get(LABEL)
    if not isinstance(scores, Mapping):
        return {}
    named = {f"eval/{name}": scores.get(name) for name in ("accuracy", "greedy", "sampled", "mean_tokens")}
    for name in ("accuracy", "greedy", "sampled"):
        low, high = scores.get(f"{name}_interval") or (None, None)
        named |= {f"eval/{name}_low": low, f"eval/{name}_high": high}
    pass_at: Mapping[str, Any] = scores.get("pass_at") or {}
    for k, estimate in pass_at.items():
        named[f"eval/pass_at_{k}"] = estimate.get("value")
        named[f"eval/pass_at_{k}_low"] = estimate.get("low")
    by_source: Mapping[str, Any] = scores.get("by_source") or {}
    for source, estimate in by_source.items():
        named[f"{ACCURACY_BY_SOURCE}{source}"] = estimate.get("value")
    named["eval/prompts"] = scores.get("prompts")
    return {name: float(value) for name, value in named.items() if isinstance(value, int | float)}


def unknown_metric_message(name: str) -> str:
    """The error message for a name that is not a metric of eval runs; "" for one that is."""
    if METRIC_NAME.fullmatch(name):
        return ""
    known = [
        f"eval/{kind}{end}" for kind in ("accuracy", "greedy", "sampled") for end in ("", "_low", "_high")
    ]
    near = nearest(name, [*known, "eval/mean_tokens", "eval/prompts", "eval/pass_at_4"])
    hint = near or "; use eval/accuracy, eval/sampled, eval/pass_at_4"
    return f"{name!r} is not a metric of eval runs{hint}"


def same_evaluation(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two resolved eval specs score the same way: rows, reward, workflow, sampling and limits."""
    return _scoring_identity(one) == _scoring_identity(other)


def _scoring_identity(document: Mapping[str, Any]) -> tuple[object, ...]:
    spec = RunSpec.model_validate(document)
    limits = (spec.rollout.max_new_tokens, spec.rollout.max_prompt_tokens)
    return spec.dataset, spec.reward, spec.workflow, spec.scoring, limits, spec.trainer.compute_type
