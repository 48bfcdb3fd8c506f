"""The admission gate (SEMANTICS section 1): how many more groups may start now, and if none, why.

Eq. 3 of arXiv 2505.24298, in groups: the group that would be the N-th may start iff
`floor((N - 1) / B) <= i + eta`. N counts only groups that were or may still be trained, so a dropped group
gives its place back.
"""

from __future__ import annotations

from dataclasses import dataclass

from oolong.contracts.rollout import Refusal


@dataclass(frozen=True, kw_only=True)
class GateConfig:
    groups_per_step: int  # B
    max_staleness: int  # eta
    max_concurrent_groups: int  # running at once, over all engines
    total_train_steps: int  # no group is started that no step can use


@dataclass(frozen=True, kw_only=True)
class Admission:
    groups: int  # free places
    refusal: Refusal | None  # what binds, when there is no place


def admit(rules: GateConfig, *, version: int, held: int, running: int, waiting: int = 0) -> Admission:
    """`version` is the newest announced one; `held` = trained + taken + buffered + running + waiting.

    Once every group that a step can use is drawn, the reason is `last_groups` as long as one of them is not finished
    (should it fail, its place is free again), then `run_ending`.
    """
    all_drawn: Refusal = "last_groups" if running + waiting else "run_ending"
    bounds: list[tuple[int, Refusal]] = [
        (rules.total_train_steps * rules.groups_per_step - held, all_drawn),
        ((version + rules.max_staleness + 1) * rules.groups_per_step - held, "staleness"),
        (rules.max_concurrent_groups - running, "concurrency"),
    ]
    places, reason = min(bounds, key=lambda bound: bound[0])
    return Admission(groups=max(places, 0), refusal=None if places > 0 else reason)
