"""The controller's part of a checkpoint (SEMANTICS section 6): one atomic image at a step boundary."""

from __future__ import annotations

import msgspec

from gpu_agents.rollout.controller.evaluation_scores import EvaluationScores
from gpu_agents.rollout.controller.group_state import GroupState
from gpu_agents.rollout.controller.prompt_order import Draw, PromptCursor
from gpu_agents.rollout.controller.staleness_stats import ConsumedTotals, DroppedTotals, LengthBias
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
    cursor: PromptCursor
    next_order: int
    ledger: LedgerCounts
    tokens: TokenCounts
    consumed: ConsumedTotals = msgspec.field(default_factory=ConsumedTotals)
    dropped: DroppedTotals = msgspec.field(default_factory=DroppedTotals)
    length_bias: LengthBias = msgspec.field(default_factory=LengthBias)
    evaluations: dict[str, EvaluationScores] = {}
    unfinished_evaluation: str = ""  # label of one between steps that was wanted, and had no result yet
    buffered: list[GroupSnapshot]
    unfinished: list[GroupSnapshot]  # taken, running and waiting ones, by claim order: claimed again first


class InvalidSnapshot(ValueError):
    """The snapshot does not belong to what is being resumed; the attempt must not start."""


def encode(snapshot: Snapshot) -> bytes:
    return msgspec.msgpack.encode(snapshot)


def decode(data: bytes) -> Snapshot:
    try:
        return msgspec.msgpack.decode(data, type=Snapshot)
    except msgspec.DecodeError as error:
        raise InvalidSnapshot(f"controller.msgpack of the checkpoint cannot be read: {error}") from error


def image_of(held: GroupState, *, keep_finished: bool) -> GroupSnapshot:
    return GroupSnapshot(
        epoch=held.draw.epoch,
        row=held.draw.row,
        repeat=held.draw.repeat,
        order=held.order,
        max_staleness=held.max_staleness,
        claim_version=held.claim_version,
        partial=held.partial,
        finished=held.finished if keep_finished else None,
    )


def held_group(image: GroupSnapshot) -> GroupState:
    return GroupState(
        draw=Draw(epoch=image.epoch, row=image.row, repeat=image.repeat),
        order=image.order,
        max_staleness=image.max_staleness,
        claim_version=image.claim_version,
        partial=list(image.partial),
        finished=image.finished,
    )
