"""What a checkpoint's weights are made of: a model, and the adapters that are merged into it."""

from __future__ import annotations

from dataclasses import dataclass

from control_plane.assets.models import BaseModel
from control_plane.checkpoints.models import Checkpoint, CheckpointContent, CheckpointState


@dataclass(frozen=True)
class Weights:
    base_model: BaseModel | None  # None: `model` is the base
    model: Checkpoint | None
    adapters: tuple[Checkpoint, ...]  # to merge in this order

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        return (*([self.model] if self.model is not None else []), *self.adapters)

    @property
    def deleted(self) -> Checkpoint | None:
        """One without which the others are of no use."""
        gone = (one for one in self.checkpoints if one.state == CheckpointState.DELETED)
        return next(gone, None)


def weights_of(checkpoint: Checkpoint) -> Weights:
    adapters: list[Checkpoint] = []
    current = checkpoint
    while current.content == CheckpointContent.ADAPTER:
        adapters.insert(0, current)
        if current.base_checkpoint is None:
            return Weights(current.base_model, None, tuple(adapters))
        current = current.base_checkpoint
    return Weights(None, current, tuple(adapters))
