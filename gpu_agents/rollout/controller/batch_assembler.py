"""Takes batches from the finished groups and accounts for what was trained on (SEMANTICS section 3)."""

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
    SelectionBias,
    measure_batch,
)
from oolong.contracts.rollout import Group, TakeReply, TakeRequest


@dataclass(frozen=True, kw_only=True)
class TrainedBatch:
    """The batch that led to a version."""

    version: int  # after the step
    groups: list[Group]
    staleness: BatchStaleness
    dropped: DroppedTotals  # since the previous step
    selection_bias: SelectionBias  # of the run so far
    filtered_fraction: float | None  # of the groups finished since the previous step
    bound: int  # the largest max staleness of its groups
    exceeded_groups: int  # of the run so far


class BatchAssembler:
    def __init__(
        self, groups: GroupStore, consumed: ConsumedTotals, counters: Counters, *, notes: list[str]
    ) -> None:
        self._groups = groups
        self._consumed = consumed
        self._counters = counters
        self._notes = notes
        self._dropped_before = groups.dropped.copy()
        self._straggler_since: float | None = None

    def take(
        self, request: TakeRequest, *, policy: StragglerPolicy, last_chance: bool, now: float
    ) -> TakeReply:
        """Take a batch, or reply with none. `last_chance`: no other group can finish before a step is trained."""
        groups = self._groups
        selection = self._select(request, policy)
        if selection.straggler and last_chance:
            self._drop_missed_deadlines(request)
            selection = self._select(request, policy)
        if not selection.batch:
            if selection.straggler and self._straggler_since is None:
                self._straggler_since = now
            return TakeReply(groups=[], buffered=len(groups.buffered))
        waited = now - self._straggler_since if self._straggler_since is not None else 0.0
        self._straggler_since = None
        self._counters.straggler_wait_seconds += waited
        groups.take(selection.batch)
        return TakeReply(
            groups=groups.taken_groups(), straggler_wait_seconds=waited, buffered=len(groups.buffered)
        )

    def train(self, version: int, *, filtering: FilterCounts) -> TrainedBatch:
        """Record that training on the taken batch produced `version`."""
        taken = self._groups.taken_groups()
        staleness = measure_batch(taken, version=version - 1)
        bound = max(group.max_staleness for group in self._groups.taken.values())
        self._consumed.add(staleness, bound=bound)
        self._consumed.exceeded_groups += sum(
            version - 1 - group.oldest_version > bound for group in self._groups.taken.values()
        )
        self._groups.train_taken()
        dropped = self._groups.dropped.since(self._dropped_before)
        self._dropped_before = self._groups.dropped.copy()
        return TrainedBatch(
            version=version,
            groups=taken,
            staleness=staleness,
            dropped=dropped,
            selection_bias=self._groups.selection_bias,
            filtered_fraction=filtering.fraction_since_last_step(),
            bound=bound,
            exceeded_groups=self._consumed.exceeded_groups,
        )

    def _select(self, request: TakeRequest, policy: StragglerPolicy) -> BatchSelection:
        selection = select_batch(
            policy,
            version=request.version,
            groups=request.groups,
            finished=self._finished(),
            unfinished_deadlines=[group.deadline for group in self._groups.running.values()]
            + [group.deadline for group in self._groups.waiting if group.partial],
        )
        self._groups.drop_stale_buffered(selection.drop)
        return selection

    def _drop_missed_deadlines(self, request: TakeRequest) -> None:
        """Drop the finished groups whose bound cannot be kept, however long the trainer waits.

        Groups keep the bound under which they were admitted, so this is not expected to happen. Without the drop the
        trainer would wait for ever.
        """
        missed = missed_deadlines(self._finished(), version=request.version, groups=request.groups)
        self._groups.drop_stale_buffered(missed)
        self._counters.forced_drops += 1
        self._notes.append(
            f"no progress was possible at version {request.version}: {len(missed)} finished groups could not be "
            "trained within their max staleness any more and were dropped as stale"
        )

    def _finished(self) -> list[Candidate]:
        return [
            Candidate(group_id=group.group_id, order=group.order, deadline=group.deadline)
            for group in self._groups.buffered.values()
        ]
