"""The tensors of one microbatch: its packed row and, for its N loss tokens in row order, one [N] tensor per field."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch

from trainers.algorithms.sequences import sequence_length
from trainers.models.packed_row import PackedRow, pack_row
from trainers.rl.batch_plan import Microbatch, TrainingSequence


@dataclass(frozen=True)
class MicrobatchTensors:
    """Inputs that come from the batch."""

    sequences: list[TrainingSequence]
    row: PackedRow
    behavior: torch.Tensor  # log-probabilities
    version_lag: torch.Tensor  # int64, policy version in training minus the version that sampled the token
    sequence_ids: torch.Tensor  # int64, index of the token's sequence in `sequences`
    is_dummy: bool

    def by_sequence(self, values: torch.Tensor) -> list[torch.Tensor]:
        """Split [N] into one tensor per sequence."""
        return list(values.split([len(one.loss_positions) for one in self.sequences]))


@dataclass(frozen=True)
class StepTensors:
    """Tensors computed before the optimizer steps; constant over all minibatches of the train step."""

    proximal: torch.Tensor  # log-probabilities
    behavior: torch.Tensor  # log-probabilities
    importance_weights: torch.Tensor  # after masking or truncation
    advantages: torch.Tensor
    token_weights: torch.Tensor  # weight of each token's loss in the minibatch's sum
    version_lag: torch.Tensor
    sequence_ids: torch.Tensor
    reference: torch.Tensor | None  # log-probabilities

    def select(self, mask: torch.Tensor) -> StepTensors:
        """Keep the tokens where `mask` [N] is true."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return StepTensors(**{name: None if value is None else value[mask] for name, value in values.items()})


def build_microbatch_tensors(
    microbatch: Microbatch, *, version: int, device: torch.device
) -> MicrobatchTensors:
    sequences = microbatch.sequences
    lengths = torch.tensor([len(one.loss_positions) for one in sequences], dtype=torch.long)
    return MicrobatchTensors(
        sequences=sequences,
        row=pack_row([one.tokens for one in sequences], [one.loss_positions for one in sequences]).to(device),
        behavior=torch.tensor(
            [value for one in sequences for value in one.behavior_logprobs],
            dtype=torch.float32,
            device=device,
        ),
        version_lag=torch.tensor(
            [version - sampled_by for one in sequences for sampled_by in one.versions],
            dtype=torch.long,
            device=device,
        ),
        sequence_ids=torch.arange(len(sequences)).repeat_interleave(lengths).to(device),
        is_dummy=microbatch.is_dummy,
    )


def sequence_lengths(tensors: MicrobatchTensors) -> torch.Tensor:
    """[N] float32: number of loss tokens in each token's sequence."""
    return sequence_length(tensors.sequence_ids, len(tensors.sequences)).float()


def has_advantage(tensors: MicrobatchTensors, step: StepTensors) -> torch.Tensor:
    """[sequences] bool: whether any token of the sequence has an advantage other than 0."""
    found = torch.zeros(len(tensors.sequences), dtype=torch.bool, device=step.advantages.device)
    found[tensors.sequence_ids[step.advantages != 0]] = True
    return found


def drop_zero_advantage(tensors: MicrobatchTensors, step: StepTensors) -> tuple[PackedRow, StepTensors]:
    """Remove sequences whose advantages are all 0: they have no gradient, so they need no forward pass.

    They still count in every denominator. Late in training most groups are solved, and this makes steps cheap.
    """
    keep = has_advantage(tensors, step)
    if bool(keep.all()):
        return tensors.row, step
    return select_sequences(tensors, keep), step.select(keep[tensors.sequence_ids])


def select_sequences(tensors: MicrobatchTensors, keep: torch.Tensor) -> PackedRow:
    """Pack the sequences where `keep` is true; without any, one token, for all ranks must run as many passes."""
    kept = [one for one, is_kept in zip(tensors.sequences, keep.tolist(), strict=True) if is_kept]
    if kept:
        row = pack_row([one.tokens for one in kept], [one.loss_positions for one in kept])
    else:
        row = pack_row([tensors.sequences[0].tokens[:1]], [[]])
    return row.to(tensors.row.input_ids.device)
