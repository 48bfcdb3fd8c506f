"""The trainer's side of the buffer: a batch is taken from the finished groups, and trained (SEMANTICS section 3)."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_agents.rollout.controller.batch_selection import (
    BatchSelection,
    Candidate,
    StragglerPolicy,
    missed_deadlines,
    select_batch,
)
from gpu_agents.rollout.controller.counters import Counters
from gpu_agents.rollout.controller.filtering import FilterCounts
from gpu_agents.rollout.controller.group_store import GroupStore
from gpu_agents.rollout.controller.staleness_stats import (
    BatchStaleness,
    ConsumedTotals,
    DroppedTotals,
    LengthBias,
    measure_batch,
)
from oolong.contracts.rollout import Group, TakeReply, TakeRequest


@dataclass(frozen=True, kw_only=True)
class TrainedBatch:
    """What the announcement of a version says about the batch that led to it."""

    version: int  # after the step
    groups: list[Group]
    staleness: BatchStaleness
    dropped: DroppedTotals  # since the step before
    length_bias: LengthBias  # of the run so far
    filtered_share: float | None  # of the groups finished since the step before
    bound: int  # the largest max staleness of its groups
    groups_over_bound: int  # of the run so far


class BatchAssembler:
    """Takes batches from `groups` and accounts for what was trained on."""

    def __init__(
        self, groups: GroupStore, consumed: ConsumedTotals, counts: Counters, *, notes: list[str]
    ) -> None:
        self._groups = groups
        self._consumed = consumed
        self._counts = counts
        self._notes = notes
        self._dropped_before = groups.dropped.copy()
        self._straggler_since: float | None = None

    def take(
        self, request: TakeRequest, *, policy: StragglerPolicy, last_chance: bool, now: float
    ) -> TakeReply:
        """A batch, or an empty reply. `last_chance`: no other group will ever finish unless a batch is taken."""
        groups = self._groups
        choice = self._choose(request, policy)
        if choice.straggler and last_chance:
            self._drop_missed_deadlines(request)
            choice = self._choose(request, policy)
        if not choice.batch:
            if choice.straggler and self._straggler_since is None:
                self._straggler_since = now
            return TakeReply(groups=[], buffered=len(groups.buffered))
        waited = now - self._straggler_since if self._straggler_since is not None else 0.0
        self._straggler_since = None
        self._counts.straggler_wait_seconds += waited
        groups.take(choice.batch)
        return TakeReply(
            groups=groups.taken_groups(), straggler_wait_seconds=waited, buffered=len(groups.buffered)
        )

    def train(self, version: int, *, filtering: FilterCounts) -> TrainedBatch:
        """The taken batch became `version`."""
        taken = self._groups.taken_groups()
        staleness = measure_batch(taken, version=version - 1)
        bound = max(held.max_staleness for held in self._groups.taken.values())
        self._consumed.add(staleness, bound=bound)
        self._consumed.groups_over_bound += sum(
            version - 1 - held.oldest_version > bound for held in self._groups.taken.values()
        )
        self._groups.train_taken()
        dropped = self._groups.dropped.since(self._dropped_before)
        self._dropped_before = self._groups.dropped.copy()
        return TrainedBatch(
            version=version,
            groups=taken,
            staleness=staleness,
            dropped=dropped,
            length_bias=self._groups.length_bias,
            filtered_share=filtering.share_since_last_step(),
            bound=bound,
            groups_over_bound=self._consumed.groups_over_bound,
        )

    def _choose(self, request: TakeRequest, policy: StragglerPolicy) -> BatchSelection:
        choice = select_batch(
            policy,
            version=request.version,
            groups=request.groups,
            finished=self._finished(),
            unfinished_deadlines=[h.deadline for h in self._groups.running.values()]
            + [h.deadline for h in self._groups.waiting if h.partial],
        )
        self._groups.drop_stale_buffered(choice.drop)
        return choice

    def _drop_missed_deadlines(self, request: TakeRequest) -> None:
        """The bound of some finished groups cannot be kept any more, however long the trainer waits: they go.

        GroupStore keep the bound under which they were admitted, so this is not expected to happen; waiting for it to
        pass would be waiting for ever.
        """
        missed = missed_deadlines(self._finished(), version=request.version, groups=request.groups)
        self._groups.drop_stale_buffered(missed)
        self._counts.standstills += 1
        self._notes.append(
            f"no progress was possible at version {request.version}: {len(missed)} finished groups could not be "
            "trained within their max staleness any more and were dropped as stale"
        )

    def _finished(self) -> list[Candidate]:
        return [
            Candidate(group_id=held.group_id, order=held.order, deadline=held.deadline)
            for held in self._groups.buffered.values()
        ]
