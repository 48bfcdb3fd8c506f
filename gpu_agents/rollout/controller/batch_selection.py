"""Which finished groups a train step takes: `keep`, `drop` and `wait` (SEMANTICS section 3)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

StragglerPolicy = Literal["keep", "drop", "wait"]


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """What the selection knows of a finished group."""

    group_id: str
    order: int  # claim order
    deadline: int  # last version at which it may be trained: its oldest version + its max staleness


@dataclass(frozen=True, kw_only=True)
class BatchSelection:
    batch: list[str]  # group ids, oldest first; empty while there is no batch
    drop: list[str]  # over-stale groups to drop now
    straggler: bool = False  # enough groups are finished, but the bound of an unfinished one would break


def select_batch(
    policy: StragglerPolicy,
    *,
    version: int,
    groups: int,
    finished: Sequence[Candidate],
    unfinished_deadlines: Sequence[int],
) -> BatchSelection:
    """The batch to train at `version`: the `groups` oldest finished ones, if the policy allows it.

    `unfinished_deadlines` has one entry per group that is running, or waiting with tokens. Its deadline counts from the
    oldest version among its tokens, or from its claim version before the first one.
    """
    drop: list[str] = []
    if policy == "drop":
        drop = [c.group_id for c in finished if version > c.deadline]
    dropped = set(drop)
    order = _earliest_deadline_first if policy == "wait" else _oldest_claim_first
    usable = sorted((c for c in finished if c.group_id not in dropped), key=order)
    if len(usable) < groups:
        return BatchSelection(batch=[], drop=drop)
    selected, rest = usable[:groups], usable[groups:]
    if policy == "wait":
        deadlines = [c.deadline for c in rest] + list(unfinished_deadlines)
        if not _every_deadline_can_be_met(deadlines, version=version, groups=groups):
            return BatchSelection(batch=[], drop=drop, straggler=True)
    return BatchSelection(batch=[c.group_id for c in selected], drop=drop)


def missed_deadlines(finished: Sequence[Candidate], *, version: int, groups: int) -> list[str]:
    """The fewest finished groups to drop so that every other one can be trained in time, from `version` on.

    Earliest deadline first is optimal for unit jobs: a group that finds no free slot before its deadline in that order
    finds none in any other order either.
    """
    missed: list[str] = []
    scheduled = 0
    for candidate in sorted(finished, key=_earliest_deadline_first):
        if version + scheduled // groups > candidate.deadline:
            missed.append(candidate.group_id)
        else:
            scheduled += 1
    return missed


def _every_deadline_can_be_met(deadlines: list[int], *, version: int, groups: int) -> bool:
    """For every k >= 1 the remaining groups with deadline < version + k number at most (k - 1) * groups.

    The step at `version` is full; each later one can train `groups` more.
    """
    ordered = sorted(deadlines)
    if not ordered:
        return True
    return all(
        bisect_left(ordered, version + k) <= (k - 1) * groups for k in range(1, ordered[-1] - version + 2)
    )


def _oldest_claim_first(candidate: Candidate) -> tuple[int, int]:
    return candidate.order, 0


def _earliest_deadline_first(candidate: Candidate) -> tuple[int, int]:
    # Nearly claim order. They differ for a group that was released before its first token: its deadline is later than
    # that of a group claimed after it, and taking it first would leave the other one over its bound for ever.
    return candidate.deadline, candidate.order
