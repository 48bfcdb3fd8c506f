"""The loss tokens of one microbatch as columns beside its packed row: all [N], in the row's order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch

from trainers.algorithms.sequences import sequence_length
from trainers.models.packing import PackedRow, pack
from trainers.rl.plan import Microbatch, TrainingSequence


@dataclass(frozen=True)
class TokenColumns:
    """What the batch says."""

    sequences: list[TrainingSequence]
    row: PackedRow
    behaviour: torch.Tensor  # log-probabilities
    lag: torch.Tensor  # int64, policy version trained minus the version that sampled the token
    sequence: torch.Tensor  # int64, place of the token's sequence in `sequences`
    is_dummy: bool

    def by_sequence(self, values: torch.Tensor) -> list[torch.Tensor]:
        """[N] -> one tensor per sequence."""
        return list(values.split([len(one.loss_at) for one in self.sequences]))


@dataclass(frozen=True)
class StepColumns:
    """What is worked out before the updates and stays as it is through all minibatches of the step."""

    proximal: torch.Tensor  # log-probabilities
    behaviour: torch.Tensor
    weights: torch.Tensor  # behaviour weight after its limit
    advantages: torch.Tensor
    scale: torch.Tensor  # factor of the token's loss
    lag: torch.Tensor
    sequence: torch.Tensor
    reference: torch.Tensor | None  # log-probabilities

    def where(self, wanted: torch.Tensor) -> StepColumns:
        """[N] bool -> those tokens alone."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return StepColumns(
            **{name: None if value is None else value[wanted] for name, value in values.items()}
        )


def token_columns(microbatch: Microbatch, *, version: int, device: torch.device) -> TokenColumns:
    sequences = microbatch.sequences
    lengths = torch.tensor([len(one.loss_at) for one in sequences], dtype=torch.long)
    return TokenColumns(
        sequences=sequences,
        row=pack([one.tokens for one in sequences], [one.loss_at for one in sequences]).to(device),
        behaviour=torch.tensor(
            [value for one in sequences for value in one.behaviour_logprobs],
            dtype=torch.float32,
            device=device,
        ),
        lag=torch.tensor(
            [version - sampled_by for one in sequences for sampled_by in one.versions],
            dtype=torch.long,
            device=device,
        ),
        sequence=torch.arange(len(sequences)).repeat_interleave(lengths).to(device),
        is_dummy=microbatch.is_dummy,
    )


def lengths_of(columns: TokenColumns) -> torch.Tensor:
    """[N] float32: loss tokens of each token's sequence."""
    return sequence_length(columns.sequence, len(columns.sequences)).float()


def heard(columns: TokenColumns, step: StepColumns) -> tuple[PackedRow, StepColumns]:
    """The microbatch without sequences whose advantages are all 0: they have no gradient and need no pass.

    They still count in every denominator. As more groups are solved, this is what makes late steps cheap.
    """
    loud = torch.zeros(len(columns.sequences), dtype=torch.bool, device=step.advantages.device)
    loud[columns.sequence[step.advantages != 0]] = True
    if bool(loud.all()):
        return columns.row, step
    kept = [one for one, wanted in zip(columns.sequences, loud.tolist(), strict=True) if wanted]
    return _row(kept, columns.sequences[0], columns.row), step.where(loud[columns.sequence])


def _row(kept: Sequence[TrainingSequence], any_one: TrainingSequence, like: PackedRow) -> PackedRow:
    row = (
        pack([one.tokens for one in kept], [one.loss_at for one in kept])
        if kept
        else pack([any_one.tokens[:1]], [[]])  # the ranks must stay in step
    )
    return row.to(like.input_ids.device)
