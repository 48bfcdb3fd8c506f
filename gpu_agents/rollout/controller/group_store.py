"""Every group between draw and fate: in exactly one place, and counted there (SEMANTICS section 2).

Only this file moves a group. Each move changes the place, the ledger in groups and the ledger in tokens together.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy

from gpu_agents.rollout.controller.claims import Claim, Claims
from gpu_agents.rollout.controller.config import ControllerConfig
from gpu_agents.rollout.controller.group_state import GroupState, group_tokens, sampled_tokens
from gpu_agents.rollout.controller.ledger import (
    LATE,
    NOT_MIGRATABLE,
    DropReason,
    Ledger,
    LedgerState,
    TokenLedger,
)
from gpu_agents.rollout.controller.prompt_order import PromptOrder
from gpu_agents.rollout.controller.snapshot import InvalidSnapshot, Snapshot, held_group, image_of
from gpu_agents.rollout.controller.staleness_stats import DroppedTotals, LengthBias
from gpu_agents.rollout.controller.versions import Versions
from oolong.contracts.rollout import Group, PartialTrajectory

REMEMBERED_CLAIMS = 10_000


class StaleClaim(Exception):
    """The claim is no longer this worker's; what it brings is counted and left out."""


class GroupStore:
    """The places of groups, their claims and both ledgers."""

    def __init__(
        self,
        *,
        rules: ControllerConfig,
        rows: list[int],
        versions: Versions,
        restored: Snapshot | None = None,
    ) -> None:
        self._rules = rules
        self._versions = versions
        self.prompts = PromptOrder(rows, seed=rules.seed, cursor=restored.cursor if restored else None)
        self.ledger = Ledger(restored.ledger if restored else None)
        self.tokens = TokenLedger(restored.tokens if restored else None)
        self.claims = Claims(wall_seconds=rules.group_wall_seconds)
        self.length_bias = copy(restored.length_bias) if restored else LengthBias()
        self.dropped = restored.dropped.copy() if restored else DroppedTotals()
        self.waiting: list[GroupState] = []  # by claim order
        self.running: dict[str, GroupState] = {}
        self.buffered: dict[str, GroupState] = {}
        self.taken: dict[str, GroupState] = {}
        self._next_order = restored.next_order if restored else 0
        self._settled: dict[str, None] = {}  # claims that ended well: a repeated call changes nothing
        if restored:
            self._restore(restored)

    def draw(self, *, max_staleness: int) -> GroupState:
        """The next group of the seeded order, not yet in a place's container: hand it out at once."""
        held = GroupState(draw=self.prompts.draw(), order=self._next_order, max_staleness=max_staleness)
        self._next_order += 1
        self.ledger.draw()
        return held

    def hand_out(self, held: GroupState, *, worker_id: str, engine_version: int, now: float) -> Claim:
        held.claim_version = engine_version
        self.running[held.group_id] = held
        self.ledger.move(LedgerState.WAITING, LedgerState.RUNNING)
        return self.claims.make(held.group_id, worker_id, now=now)

    def raise_bounds(self, max_staleness: int) -> None:
        """Give every unfinished and untrained group at least this bound; none is ever lowered.

        The gate admitted each group so that it can be trained within the bound of that moment. A lower bound that
        applied to it later could not be kept any more, and `wait` would wait for ever.
        """
        for held in [*self.waiting, *self.running.values(), *self.buffered.values(), *self.taken.values()]:
            held.max_staleness = max(held.max_staleness, max_staleness)

    def is_settled(self, claim_id: str) -> bool:
        return claim_id in self._settled

    def end_claim(self, claim_id: str, worker_id: str, *, late_tokens: int) -> GroupState:
        """The claim's group, still among the running ones. Raises StaleClaim; the tokens are counted either way."""
        claim = self.claims.of_worker(claim_id, worker_id)
        if claim is None:
            self.ledger.late_submits += 1
            self.tokens.receive(late_tokens)
            self.tokens.drop(late_tokens, LATE)
            raise StaleClaim(
                f"claim {claim_id} is no longer {worker_id}'s: it ended or was not renewed in time"
            )
        self.claims.end(claim)
        self._settled[claim_id] = None
        if len(self._settled) > REMEMBERED_CLAIMS:
            del self._settled[next(iter(self._settled))]
        return self.running[claim.group_id]

    def finish(self, held: GroupState, group: Group) -> None:
        self.tokens.receive(group_tokens(group) - held.tokens)
        held.partial = []
        held.finished = group
        self.running.pop(held.group_id)
        self.buffered[held.group_id] = held
        self.ledger.move(LedgerState.RUNNING, LedgerState.BUFFERED)

    def filter(self, held: GroupState, group: Group) -> None:
        """A finished group that carries no signal: counted as made, and gone."""
        self.tokens.receive(group_tokens(group) - held.tokens)
        held.partial = []
        held.finished = group
        self.drop_running(held.group_id, DropReason.FILTERED)

    def fail(self, held: GroupState, reason: DropReason, *, error: str, generated_tokens: int) -> None:
        """`generated_tokens` counts all that its worker made, those that it began with included."""
        self.tokens.receive(max(generated_tokens - held.tokens, 0))
        dropped_tokens = max(generated_tokens, held.tokens)
        del self.running[held.group_id]
        self.ledger.drop(LedgerState.RUNNING, reason, error=error)
        self.tokens.drop(dropped_tokens, reason)

    def give_back(self, held: GroupState, members: list[PartialTrajectory], *, lost_tokens: int) -> None:
        """`lost_tokens` were made under the claim for members that cannot move, and come with none of them."""
        kept = sum(sampled_tokens(member.trajectory) for member in members)
        self.tokens.receive(kept + lost_tokens - held.tokens)
        self.tokens.drop(lost_tokens, NOT_MIGRATABLE)
        held.partial = [m for m in members if m.trajectory.token_ids or m.finished]
        self.to_waiting(held)

    def to_waiting(self, held: GroupState) -> None:
        del self.running[held.group_id]
        self.waiting.append(held)
        self.waiting.sort(key=lambda group: group.order)
        self.ledger.move(LedgerState.RUNNING, LedgerState.WAITING)

    def take(self, group_ids: list[str]) -> None:
        for group_id in group_ids:
            held = self.taken[group_id] = self.buffered.pop(group_id)
            self.length_bias.kept_trajectories += len(held.trajectories)
            self.length_bias.kept_tokens += held.tokens
        self.ledger.move(LedgerState.BUFFERED, LedgerState.TAKEN, len(group_ids))

    def taken_groups(self) -> list[Group]:
        held_groups = sorted(self.taken.values(), key=lambda held: held.order)
        return [held.finished for held in held_groups if held.finished is not None]

    def train_taken(self) -> None:
        groups = self.taken_groups()
        self.tokens.train(sum(group_tokens(group) for group in groups))
        self.ledger.train(len(groups))
        self.taken.clear()

    def drop_taken(self, reason: DropReason) -> None:
        for held in self.taken.values():
            self._drop(held, LedgerState.TAKEN, reason)
        self.taken.clear()

    def drop_stale_buffered(self, group_ids: Iterable[str]) -> None:
        for group_id in group_ids:
            self._drop_stale(self.buffered.pop(group_id), LedgerState.BUFFERED, version=self._versions.number)

    def cancel_what_will_be_too_old(self, version: int) -> None:
        """Unfinished groups whose first tokens will be over their bound at `version`."""
        for held in [h for h in self.running.values() if version > h.deadline]:
            self.claims.end_of_group(held.group_id)
            del self.running[held.group_id]
            self._drop_stale(held, LedgerState.RUNNING, version=version)
        for held in [h for h in self.waiting if h.partial and version > h.deadline]:
            self.waiting.remove(held)
            self._drop_stale(held, LedgerState.WAITING, version=version)

    def drop_running(self, group_id: str, reason: DropReason, *, error: str = "") -> None:
        """Its claim has ended."""
        held = self.running.pop(group_id)
        self._drop(held, LedgerState.RUNNING, reason, error=error)

    def drop_everything(self, reason: DropReason) -> None:
        """What is left at the run's end."""
        for group_id in self.running:
            self.claims.end_of_group(group_id)
        for place, groups in (
            (LedgerState.WAITING, self.waiting),
            (LedgerState.RUNNING, list(self.running.values())),
            (LedgerState.BUFFERED, list(self.buffered.values())),
            (LedgerState.TAKEN, list(self.taken.values())),
        ):
            for held in groups:
                self._drop(held, place, reason)
        for container in (self.waiting, self.running, self.buffered, self.taken):
            container.clear()

    def image(self, version: int) -> Snapshot:
        """All of it at a step boundary; the controller adds what is not about groups."""
        unfinished = sorted(
            [*self.taken.values(), *self.running.values(), *self.waiting], key=lambda held: held.order
        )
        return Snapshot(
            version=version,
            seed=self._rules.seed,
            groups_per_step=self._rules.gate.groups_per_step,
            cursor=self.prompts.cursor,
            next_order=self._next_order,
            ledger=self.ledger.counts(),
            tokens=self.tokens.counts(),
            dropped=self.dropped.copy(),
            length_bias=copy(self.length_bias),
            buffered=[image_of(held, keep_finished=True) for held in self.buffered.values()],
            unfinished=[image_of(held, keep_finished=False) for held in unfinished],
        )

    def _drop(
        self,
        held: GroupState,
        place: LedgerState,
        reason: DropReason,
        *,
        error: str = "",
        version: int | None = None,
    ) -> None:
        at = self._versions.number if version is None else version
        self.dropped.add(reason, held.trajectories, version=at)
        self.tokens.drop(held.tokens, reason)
        self.ledger.drop(place, reason, error=error)

    def _drop_stale(self, held: GroupState, place: LedgerState, *, version: int) -> None:
        if held.finished is not None:
            self.length_bias.dropped_trajectories += len(held.trajectories)
            self.length_bias.dropped_tokens += held.tokens
        self._drop(held, place, DropReason.STALE, version=version)

    def _restore(self, snapshot: Snapshot) -> None:
        """Put the image's groups back; the gate follows from them (SEMANTICS section 6)."""
        batch = self._rules.gate.groups_per_step
        if (snapshot.seed, snapshot.groups_per_step) != (self._rules.seed, batch):
            raise InvalidSnapshot(
                f"the snapshot was made with seed={snapshot.seed}, groups_per_step={snapshot.groups_per_step}; "
                f"this run has seed={self._rules.seed}, groups_per_step={batch}"
            )
        if snapshot.ledger.trained != snapshot.version * batch:
            raise InvalidSnapshot(
                f"the snapshot of version {snapshot.version} counts {snapshot.ledger.trained} trained groups, "
                f"and {snapshot.version} * {batch} are due"
            )
        for image in snapshot.buffered:
            held = held_group(image)
            self.buffered[held.group_id] = held
        for image in snapshot.unfinished:
            self.waiting.append(held_group(image))
        self.ledger.move(LedgerState.TAKEN, LedgerState.WAITING, self.ledger.at(LedgerState.TAKEN))
        self.ledger.move(LedgerState.RUNNING, LedgerState.WAITING, self.ledger.at(LedgerState.RUNNING))
        places = (len(self.waiting), len(self.buffered))
        counted = (self.ledger.at(LedgerState.WAITING), self.ledger.at(LedgerState.BUFFERED))
        if places != counted:
            raise InvalidSnapshot(
                f"the snapshot holds {places} waiting and buffered groups and counts {counted}"
            )
        kept = sum(held.tokens for held in [*self.buffered.values(), *self.waiting])
        self.tokens.lose(self.tokens.in_hand - kept)
