"""The admission gate (SEMANTICS section 1): how many more groups may start now, and if none, why.

Eq. 3 of arXiv 2505.24298, in groups: the group that would be the N-th may start iff
`floor((N - 1) / B) <= i + eta`. N counts only groups that were or may still be trained, so a dropped group frees its
capacity.
"""

from __future__ import annotations

from dataclasses import dataclass

from oolong.contracts.rollout import Refusal


@dataclass(frozen=True, kw_only=True)
class GateConfig:
    groups_per_step: int  # B
    max_staleness: int  # eta
    max_concurrent_groups: int  # running at once, over all engines
    total_train_steps: int  # no group starts that no step can use


@dataclass(frozen=True, kw_only=True)
class Admission:
    groups: int  # free capacity
    refusal: Refusal | None  # the binding limit, when there is no capacity


def admit(config: GateConfig, *, version: int, held: int, running: int, waiting: int = 0) -> Admission:
    """`version` is the newest announced one; `held` = trained + taken + buffered + running + waiting.

    Once every group that a step can use has started, the refusal is `last_groups` while one of them is unfinished (if
    it fails, its capacity is free again), then `run_ending`.
    """
    all_started: Refusal = "last_groups" if running + waiting else "run_ending"
    limits: list[tuple[int, Refusal]] = [
        (config.total_train_steps * config.groups_per_step - held, all_started),
        ((version + config.max_staleness + 1) * config.groups_per_step - held, "staleness"),
        (config.max_concurrent_groups - running, "concurrency"),
    ]
    capacity, refusal = min(limits, key=lambda limit: limit[0])
    return Admission(groups=max(capacity, 0), refusal=None if capacity > 0 else refusal)
