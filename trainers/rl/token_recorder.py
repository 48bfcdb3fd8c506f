"""What the trainer computed for single tokens of a few trajectories, for the trajectory browser."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch

from oolong.contracts.rollout import Group, TrainedTokens
from trainers.rl.advantage_estimation import Advantages
from trainers.rl.microbatch_tensors import MicrobatchTensors

Place = tuple[str, int]  # group id, index of the trajectory in the group


@dataclass(frozen=True)
class RecordedSequence:
    """Of the N loss tokens of one trajectory."""

    place: Place
    positions: list[int]  # [N] in prompt and completion
    logprobs: list[float]  # [N] of the policy that the step began with; empty with `proximal: none`
    advantages: list[float]  # [N]


class TokenRecorder:
    """Keeps the values of the trajectories at `places` as the step computes them; reads them when it is done."""

    def __init__(self, places: Collection[Place]) -> None:
        self._places = frozenset(places)
        self._logprobs: dict[Place, torch.Tensor] = {}
        self._advantages: dict[Place, torch.Tensor] = {}
        self._positions: dict[Place, list[int]] = {}

    def add_logprobs(self, tensors: MicrobatchTensors, logprobs: torch.Tensor) -> None:
        """`logprobs` [N] of the microbatch's loss tokens."""
        for sequence, values in zip(tensors.sequences, tensors.by_sequence(logprobs), strict=True):
            if sequence.source in self._places and sequence.loss_positions:
                self._logprobs[sequence.source] = values.detach().clone()

    def add_advantages(self, batch: Sequence[MicrobatchTensors], advantages: Sequence[Advantages]) -> None:
        for tensors, estimate in zip(batch, advantages, strict=True):
            parts = tensors.by_sequence(estimate.advantages)
            for sequence, values in zip(tensors.sequences, parts, strict=True):
                place = sequence.source
                if place in self._places and sequence.loss_positions:
                    self._positions[place], self._advantages[place] = sequence.loss_positions, values

    def recorded(self) -> list[RecordedSequence]:
        return [
            RecordedSequence(
                place=place,
                positions=positions,
                logprobs=self._logprobs[place].tolist() if place in self._logprobs else [],
                advantages=self._advantages[place].tolist(),
            )
            for place, positions in self._positions.items()
        ]


def trained_tokens(groups: Sequence[Group], recorded: Sequence[RecordedSequence]) -> list[TrainedTokens]:
    """Spread the values over the completions of the batch's groups."""
    by_id = {group.group_id: group for group in groups}
    found = []
    for one in recorded:
        group_id, member = one.place
        group = by_id[group_id]
        prompt, length = len(group.prompt_token_ids), len(group.trajectories[member].token_ids)
        found.append(
            TrainedTokens(
                group_id=group_id,
                member=member,
                logprobs=_spread(one.logprobs, one.positions, prompt, length),
                advantages=_spread(one.advantages, one.positions, prompt, length),
            )
        )
    return found


def _spread(values: list[float], positions: list[int], prompt: int, length: int) -> list[float | None]:
    """[length] with None where no value is; empty if there are no values."""
    if not values:
        return []
    spread: list[float | None] = [None] * length
    for position, value in zip(positions, values, strict=True):
        spread[position - prompt] = round(value, 5)
    return spread
