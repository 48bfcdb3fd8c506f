"""The scores of one evaluation prompt by prompt: what a node sends, and what a comparison of two runs pairs."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable

import msgspec

PROMPT_SCORES = (
    "evaluation_prompts"  # name of the run's document; the newest evaluation replaces the one before
)
MOST_PROMPTS = 4096  # a document fits one telemetry batch; larger evaluations are compared by their intervals


class PromptScores(msgspec.Struct, frozen=True, kw_only=True):
    """One evaluation. Every list is in the order of `prompts`; an empty one was not measured."""

    label: str  # start, end, step-40
    version: int  # policy version that was scored
    success_score: float
    samples: int  # k of avg@k
    prompts: list[str]  # [P] see `prompt_keys`
    right: list[float]  # [P] eval/accuracy: 1 or 0 of the greedy completion, else the share of right samples
    greedy: list[float] = []  # [P] eval/greedy
    sampled: list[float] = []  # [P] eval/sampled: mean of the k samples

    def by_prompt(self, metric: str) -> dict[str, float]:
        """The metric's value for each prompt; empty for a metric that is no mean over prompts."""
        values = {"eval/accuracy": self.right, "eval/greedy": self.greedy, "eval/sampled": self.sampled}
        found = values.get(metric, [])
        return dict(zip(self.prompts, found, strict=True)) if found else {}


def prompt_keys(prompts: Iterable[tuple[str, str]]) -> list[str]:
    """A short name for each rendered prompt and its answer, the same in every run; a repeated one is numbered."""
    seen: Counter[str] = Counter()
    keys = []
    for prompt, answer in prompts:
        key = hashlib.sha256(f"{prompt}\0{answer}".encode()).hexdigest()[:12]
        seen[key] += 1
        keys.append(key if seen[key] == 1 else f"{key}.{seen[key]}")
    return keys
