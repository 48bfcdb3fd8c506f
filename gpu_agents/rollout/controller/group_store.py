"""Every group from its prompt to its final state: in exactly one container, and counted there (SEMANTICS section 2).

Only GroupStore moves a group. Each move changes the container, the ledger of groups and the ledger of tokens together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from types import MappingProxyType

from gpu_agents.rollout.controller.claims import Claim, Claims
from gpu_agents.rollout.controller.config import ControllerConfig
from gpu_agents.rollout.controller.group_state import GroupState, group_tokens, sampled_tokens
from gpu_agents.rollout.controller.ledger import (
    NOT_MIGRATABLE,
    STALE_CLAIM,
    DropReason,
    Ledger,
    LedgerState,
    TokenLedger,
)
from gpu_agents.rollout.controller.prompt_order import PromptOrder, PromptSource
from gpu_agents.rollout.controller.snapshot import InvalidSnapshot, Snapshot, restore_group, snapshot_group
from gpu_agents.rollout.controller.staleness_stats import DroppedTotals, SelectionBias
from gpu_agents.rollout.controller.versions import Versions
from oolong.contracts.rollout import Group, PartialTrajectory

REMEMBERED_CLAIMS = 10_000


class StaleClaim(Exception):
    """The claim is no longer this worker's; its tokens are counted and its result is discarded."""


class GroupStore:
    """The groups of a run, their claims and both ledgers. Callers read the containers; only methods move groups."""

    def __init__(
        self,
        *,
        config: ControllerConfig,
        prompts: Mapping[str, PromptSource],
        versions: Versions,
        restored: Snapshot | None = None,
    ) -> None:
        if restored and restored.cursors.keys() != prompts.keys():
            raise InvalidSnapshot(
                f"the snapshot has cursors of the sources {sorted(restored.cursors)}; this run samples from "
                f"{sorted(prompts)}"
            )
        self._config = config
        self._versions = versions
        self.prompts = PromptOrder(prompts, seed=config.seed, cursors=restored.cursors if restored else None)
        self.ledger = Ledger(restored.ledger if restored else None)
        self.tokens = TokenLedger(restored.tokens if restored else None)
        self.claims = Claims(timeout_seconds=config.group_timeout_seconds)
        self.selection_bias = copy(restored.selection_bias) if restored else SelectionBias()
        self.dropped = restored.dropped.copy() if restored else DroppedTotals()
        self._waiting: list[GroupState] = []  # in claim order
        self._running: dict[str, GroupState] = {}
        self._buffered: dict[str, GroupState] = {}
        self._taken: dict[str, GroupState] = {}
        self._next_order = restored.next_order if restored else 0
        self._settled: dict[str, None] = {}  # claims that were reported: a repeated report changes nothing
        if restored:
            self._restore(restored)

    @property
    def waiting(self) -> Sequence[GroupState]:
        """To be claimed again, in claim order."""
        return tuple(self._waiting)

    @property
    def running(self) -> Mapping[str, GroupState]:
        return MappingProxyType(self._running)

    @property
    def buffered(self) -> Mapping[str, GroupState]:
        return MappingProxyType(self._buffered)

    @property
    def taken(self) -> Mapping[str, GroupState]:
        return MappingProxyType(self._taken)

    # --- claims -------------------------------------------------------------------------------------------

    def assign_next(
        self, *, worker_id: str, engine_version: int, max_staleness: int, now: float
    ) -> tuple[GroupState, Claim]:
        """Assign the first waiting group, or else one of the next prompt, to a worker."""
        group = self._waiting.pop(0) if self._waiting else self._new_group(max_staleness)
        group.claim_version = engine_version
        self._running[group.group_id] = group
        self.ledger.move(LedgerState.WAITING, LedgerState.RUNNING)
        return group, self.claims.make(group.group_id, worker_id, now=now)

    def is_settled(self, claim_id: str) -> bool:
        return claim_id in self._settled

    def end_claim(self, claim_id: str, worker_id: str, *, reported_tokens: int) -> GroupState:
        """End the claim and return its group, which is still running.

        Raises StaleClaim if the claim is not this worker's any more; the tokens are counted either way.
        """
        claim = self.claims.of_worker(claim_id, worker_id)
        if claim is None:
            self.ledger.late_submits += 1
            self.tokens.receive(reported_tokens)
            self.tokens.drop(reported_tokens, STALE_CLAIM)
            raise StaleClaim(
                f"claim {claim_id} is no longer {worker_id}'s: it ended or was not renewed in time"
            )
        self.claims.end(claim)
        self._settled[claim_id] = None
        if len(self._settled) > REMEMBERED_CLAIMS:
            del self._settled[next(iter(self._settled))]
        return self._running[claim.group_id]

    def requeue_worker(self, worker_id: str) -> None:
        """End the worker's claims; their groups wait for another worker."""
        for claim in self.claims.all_of_worker(worker_id):
            self._requeue(claim)

    def requeue_expired(self, *, now: float) -> list[Claim]:
        """End the claims that were not renewed in time; their groups wait for another worker."""
        expired = self.claims.expired(now=now)
        for claim in expired:
            self._requeue(claim)
        return expired

    def drop_timed_out(self, *, now: float) -> list[Claim]:
        """Drop the groups that have been generated for longer than the config allows."""
        timed_out = self.claims.timed_out(now=now)
        for claim in timed_out:
            self.claims.end(claim)
            self._drop(
                self._running.pop(claim.group_id),
                LedgerState.RUNNING,
                DropReason.ERROR,
                error="group_timeout_seconds",
            )
        return timed_out

    # --- results of a claim that has ended ----------------------------------------------------------------

    def finish(self, group: GroupState, result: Group) -> None:
        """Buffer a finished group."""
        self._receive_result(group, result)
        del self._running[group.group_id]
        self._buffered[group.group_id] = group
        self.ledger.move(LedgerState.RUNNING, LedgerState.BUFFERED)

    def filter(self, group: GroupState, result: Group) -> None:
        """Drop a finished group that carries no signal."""
        self._receive_result(group, result)
        del self._running[group.group_id]
        self._drop(group, LedgerState.RUNNING, DropReason.FILTERED)

    def fail(self, group: GroupState, reason: DropReason, *, error: str, generated_tokens: int) -> None:
        """Drop a failed group. `generated_tokens` includes the tokens that its worker resumed from."""
        self.tokens.receive(max(generated_tokens - group.tokens, 0))
        dropped_tokens = max(generated_tokens, group.tokens)
        del self._running[group.group_id]
        self.ledger.drop(LedgerState.RUNNING, reason, error=error)
        self.tokens.drop(dropped_tokens, reason)

    def release(self, group: GroupState, partials: list[PartialTrajectory], *, lost_tokens: int) -> None:
        """The group waits for another worker with its partial trajectories.

        `lost_tokens` were generated under the claim by rollouts that cannot migrate.
        """
        resumable = sum(sampled_tokens(partial.trajectory) for partial in partials)
        self.tokens.receive(resumable + lost_tokens - group.tokens)
        self.tokens.drop(lost_tokens, NOT_MIGRATABLE)
        group.partial = [p for p in partials if p.trajectory.token_ids or p.finished]
        self._wait(group)

    # --- batches ------------------------------------------------------------------------------------------

    def take(self, group_ids: list[str]) -> None:
        """Move buffered groups into the batch in training."""
        for group_id in group_ids:
            group = self._taken[group_id] = self._buffered.pop(group_id)
            self.selection_bias.kept_trajectories += len(group.trajectories)
            self.selection_bias.kept_tokens += group.tokens
        self.ledger.move(LedgerState.BUFFERED, LedgerState.TAKEN, len(group_ids))

    def taken_groups(self) -> list[Group]:
        """The batch in training, in claim order."""
        ordered = sorted(self._taken.values(), key=lambda group: group.order)
        return [group.finished for group in ordered if group.finished is not None]

    def train_taken(self) -> None:
        groups = self.taken_groups()
        self.tokens.train(sum(group_tokens(group) for group in groups))
        self.ledger.train(len(groups))
        self._taken.clear()

    # --- staleness and drops ------------------------------------------------------------------------------

    def raise_bounds(self, max_staleness: int) -> None:
        """Give every untrained group at least this bound; no bound is ever lowered.

        The gate admitted each group so that it can be trained within the bound of that moment. A lower bound could not
        be kept any more, and `wait` would wait for ever.
        """
        groups = [*self._waiting, *self._running.values(), *self._buffered.values(), *self._taken.values()]
        for group in groups:
            group.max_staleness = max(group.max_staleness, max_staleness)

    def drop_expiring(self, version: int) -> None:
        """Drop the unfinished groups whose first tokens are over their bound at `version`."""
        for group in [g for g in self._running.values() if version > g.deadline]:
            self.claims.end_of_group(group.group_id)
            del self._running[group.group_id]
            self._drop_stale(group, LedgerState.RUNNING, version=version)
        for group in [g for g in self._waiting if g.partial and version > g.deadline]:
            self._waiting.remove(group)
            self._drop_stale(group, LedgerState.WAITING, version=version)

    def drop_stale_buffered(self, group_ids: Iterable[str]) -> None:
        for group_id in group_ids:
            group = self._buffered.pop(group_id)
            self._drop_stale(group, LedgerState.BUFFERED, version=self._versions.number)

    def drop_taken(self, reason: DropReason) -> None:
        for group in self._taken.values():
            self._drop(group, LedgerState.TAKEN, reason)
        self._taken.clear()

    def drop_everything(self, reason: DropReason) -> None:
        """Drop every untrained group."""
        for group_id in self._running:
            self.claims.end_of_group(group_id)
        for state, groups in (
            (LedgerState.WAITING, self._waiting),
            (LedgerState.RUNNING, self._running.values()),
            (LedgerState.BUFFERED, self._buffered.values()),
            (LedgerState.TAKEN, self._taken.values()),
        ):
            for group in groups:
                self._drop(group, state, reason)
        for container in (self._waiting, self._running, self._buffered, self._taken):
            container.clear()

    # --- checkpoints --------------------------------------------------------------------------------------

    def snapshot(self, version: int) -> Snapshot:
        """The groups and ledgers at a step boundary; the trainer API adds the rest."""
        unfinished = sorted(
            [*self._taken.values(), *self._running.values(), *self._waiting], key=lambda group: group.order
        )
        return Snapshot(
            version=version,
            seed=self._config.seed,
            groups_per_step=self._config.gate.groups_per_step,
            cursors=self.prompts.cursors,
            next_order=self._next_order,
            ledger=self.ledger.counts(),
            tokens=self.tokens.counts(),
            dropped=self.dropped.copy(),
            selection_bias=copy(self.selection_bias),
            buffered=[snapshot_group(group, keep_finished=True) for group in self._buffered.values()],
            unfinished=[snapshot_group(group, keep_finished=False) for group in unfinished],
        )

    def _restore(self, snapshot: Snapshot) -> None:
        """Restore the snapshot's groups; the gate follows from them (SEMANTICS section 6)."""
        batch = self._config.gate.groups_per_step
        if (snapshot.seed, snapshot.groups_per_step) != (self._config.seed, batch):
            raise InvalidSnapshot(
                f"the snapshot was made with seed={snapshot.seed}, groups_per_step={snapshot.groups_per_step}; "
                f"this run has seed={self._config.seed}, groups_per_step={batch}"
            )
        if snapshot.ledger.trained != snapshot.version * batch:
            raise InvalidSnapshot(
                f"the snapshot of version {snapshot.version} counts {snapshot.ledger.trained} trained groups "
                f"instead of {snapshot.version} * {batch}"
            )
        for image in snapshot.buffered:
            group = restore_group(image)
            self._buffered[group.group_id] = group
        for image in snapshot.unfinished:
            self._waiting.append(restore_group(image))
        for state in (LedgerState.TAKEN, LedgerState.RUNNING):
            self.ledger.move(state, LedgerState.WAITING, self.ledger.at(state))
        restored = (len(self._waiting), len(self._buffered))
        counted = (self.ledger.at(LedgerState.WAITING), self.ledger.at(LedgerState.BUFFERED))
        if restored != counted:
            raise InvalidSnapshot(
                f"the snapshot has {restored} waiting and buffered groups but its ledger counts {counted}"
            )
        resumable = sum(group.tokens for group in [*self._buffered.values(), *self._waiting])
        self.tokens.lose(self.tokens.in_hand - resumable)

    # --- moves --------------------------------------------------------------------------------------------

    def _new_group(self, max_staleness: int) -> GroupState:
        group = GroupState(prompt=self.prompts.next(), order=self._next_order, max_staleness=max_staleness)
        self._next_order += 1
        self.ledger.add_new()
        return group

    def _requeue(self, claim: Claim) -> None:
        self.claims.end(claim)
        self._wait(self._running[claim.group_id])

    def _wait(self, group: GroupState) -> None:
        del self._running[group.group_id]
        self._waiting.append(group)
        self._waiting.sort(key=lambda other: other.order)
        self.ledger.move(LedgerState.RUNNING, LedgerState.WAITING)

    def _receive_result(self, group: GroupState, result: Group) -> None:
        self.tokens.receive(group_tokens(result) - group.tokens)
        group.partial = []
        group.finished = result

    def _drop(
        self,
        group: GroupState,
        state: LedgerState,
        reason: DropReason,
        *,
        error: str = "",
        version: int | None = None,
    ) -> None:
        at_version = self._versions.number if version is None else version
        self.dropped.add(reason, group.trajectories, version=at_version)
        self.tokens.drop(group.tokens, reason)
        self.ledger.drop(state, reason, error=error)

    def _drop_stale(self, group: GroupState, state: LedgerState, *, version: int) -> None:
        if group.finished is not None:
            self.selection_bias.dropped_trajectories += len(group.trajectories)
            self.selection_bias.dropped_tokens += group.tokens
        self._drop(group, state, DropReason.STALE, version=version)
