"""The controller's part of a checkpoint (SEMANTICS section 6): one atomic snapshot at a step boundary."""

from __future__ import annotations

import msgspec

from gpu_agents.rollout.controller.evaluation_scores import EvaluationScores
from gpu_agents.rollout.controller.group_state import GroupState
from gpu_agents.rollout.controller.prompt_order import PromptCursor, SampledPrompt
from gpu_agents.rollout.controller.staleness_stats import ConsumedTotals, DroppedTotals, SelectionBias
from oolong.contracts.rollout import Group, LedgerCounts, PartialTrajectory, TokenCounts


class GroupSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    epoch: int
    row: int
    repeat: int
    order: int
    max_staleness: int
    claim_version: int
    partial: list[PartialTrajectory] = []
    finished: Group | None = None


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    seed: int
    groups_per_step: int
    cursors: dict[str, PromptCursor]  # by source; "" without weights
    next_order: int
    ledger: LedgerCounts
    tokens: TokenCounts
    consumed: ConsumedTotals = msgspec.field(default_factory=ConsumedTotals)
    dropped: DroppedTotals = msgspec.field(default_factory=DroppedTotals)
    selection_bias: SelectionBias = msgspec.field(default_factory=SelectionBias)
    evaluations: dict[str, EvaluationScores] = {}
    unfinished_evaluation: str = ""  # label of one between steps that was requested and had no result yet
    buffered: list[GroupSnapshot]
    unfinished: list[GroupSnapshot]  # taken, running and waiting ones in claim order: claimed again first


class InvalidSnapshot(ValueError):
    """The snapshot does not belong to the run that is being resumed; the attempt must not start."""


def encode(snapshot: Snapshot) -> bytes:
    return msgspec.msgpack.encode(snapshot)


def decode(data: bytes) -> Snapshot:
    try:
        return msgspec.msgpack.decode(data, type=Snapshot)
    except msgspec.DecodeError as error:
        raise InvalidSnapshot(f"controller.msgpack of the checkpoint cannot be read: {error}") from error


def snapshot_group(group: GroupState, *, keep_finished: bool) -> GroupSnapshot:
    return GroupSnapshot(
        epoch=group.prompt.epoch,
        row=group.prompt.row,
        repeat=group.prompt.repeat,
        order=group.order,
        max_staleness=group.max_staleness,
        claim_version=group.claim_version,
        partial=group.partial,
        finished=group.finished if keep_finished else None,
    )


def restore_group(snapshot: GroupSnapshot) -> GroupState:
    return GroupState(
        prompt=SampledPrompt(epoch=snapshot.epoch, row=snapshot.row, repeat=snapshot.repeat),
        order=snapshot.order,
        max_staleness=snapshot.max_staleness,
        claim_version=snapshot.claim_version,
        partial=list(snapshot.partial),
        finished=snapshot.finished,
    )
