"""Which checkpoints may be deleted: a pure function of the rows, the policy and the clock.

A checkpoint that anything needs is kept whatever the policy says. Of the others a policy keeps what any of its
rules names; without a rule nothing is deleted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Rules add up: a checkpoint is kept when any of them keeps it."""

    keep_last: int | None = None  # newest of each run
    best_metric: str = ""  # of each run, by a name in `metrics`
    best_mode: Literal["max", "min"] = "max"
    best_count: int = 1
    every_steps: int | None = None  # steps that are a multiple of it
    ttl_days: int | None = None  # younger ones
    kinds: tuple[str, ...] = ()  # frees only checkpoints of these kinds; none: of every kind

    @property
    def has_rules(self) -> bool:
        return bool(self.keep_last or self.best_metric or self.every_steps or self.ttl_days)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """What the decision looks at of one stored checkpoint."""

    id: str
    run_id: str
    step: int
    kind: str = "training"
    final: bool
    bytes: int
    stored_at: datetime
    metrics: Mapping[str, Any] = field(default_factory=dict)
    needed: tuple[str, ...] = ()  # who needs it: "alias prod", "pinned", "run x starts from it"


@dataclass(frozen=True)
class RetentionDecision:
    id: str
    bytes: int
    keep_reasons: tuple[str, ...]  # empty: it may be deleted

    @property
    def deletable(self) -> bool:
        return not self.keep_reasons


def evaluate(candidates: Sequence[Candidate], policy: Policy, *, now: datetime) -> list[RetentionDecision]:
    """A decision for every candidate, in the given order."""
    named = _named_by_rules(candidates, policy, now=now)
    decisions = []
    for candidate in candidates:
        why = (*candidate.needed, *named[candidate.id])
        if policy.kinds and candidate.kind not in policy.kinds:
            why = (*why, f"the policy frees no checkpoint of kind {candidate.kind}")
        if not why and not policy.has_rules:
            why = ("the policy has no rule",)
        decisions.append(RetentionDecision(candidate.id, candidate.bytes, why))
    return decisions


def _named_by_rules(
    candidates: Sequence[Candidate], policy: Policy, *, now: datetime
) -> defaultdict[str, list[str]]:
    why: defaultdict[str, list[str]] = defaultdict(list)
    by_run: defaultdict[str, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        by_run[candidate.run_id].append(candidate)
        if policy.every_steps and candidate.step % policy.every_steps == 0:
            why[candidate.id].append(f"every {policy.every_steps} steps")
        if policy.ttl_days and candidate.stored_at > now - timedelta(days=policy.ttl_days):
            why[candidate.id].append(f"younger than {policy.ttl_days} days")
    for own in by_run.values():
        if policy.keep_last:
            newest = sorted(own, key=lambda found: (found.final, found.step, found.stored_at))
            for candidate in newest[-policy.keep_last :]:
                why[candidate.id].append(f"last {policy.keep_last} of its run")
        if policy.best_metric:
            for candidate in _best(own, policy):
                why[candidate.id].append(f"best {policy.best_metric}")
    return why


def _best(own: Sequence[Candidate], policy: Policy) -> list[Candidate]:
    """Those with a value; among equal ones the later step is as good and newer."""
    sign = 1.0 if policy.best_mode == "max" else -1.0
    valued = [
        (sign * float(value), found.step, found)
        for found in own
        if isinstance(value := found.metrics.get(policy.best_metric), int | float)
    ]
    ranked = sorted(valued, key=lambda item: item[:2], reverse=True)
    return [found for _, _, found in ranked[: policy.best_count]]
