"""Startup check: packed rows must give the same log-probabilities as each sequence alone.

Packing errors are silent (sequences attend to each other) and depend on the model's code, the transformers version, the
attention kernel and the options. So each attempt checks the loaded model once, before its first step.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from trainers.models.packed_row import pack_row
from trainers.models.policy import Policy

LENGTHS = (7, 19, 12)  # tokens of the test sequences
FLOAT32_TOLERANCE = 1e-4  # nats; float32 differs by about 1e-6
HALF_PRECISION_FRACTION = 0.25  # of the difference that missing isolation makes


class PackingMismatch(Exception):
    """The model's packed log-probabilities are wrong. The message gives the differences."""


@dataclass(frozen=True)
class PackingCheck:
    packed_error: float  # largest |logprob packed - logprob alone|, nats
    unisolated_error: float  # the same with all tokens as one sequence: the size of a packing error

    @property
    def half_precision_tolerance(self) -> float:
        return max(FLOAT32_TOLERANCE, HALF_PRECISION_FRACTION * self.unisolated_error)


def print_packing_check(check: PackingCheck) -> None:
    print(
        f"packing check: log-probabilities of packed and single sequences differ by at most {check.packed_error:.1e} "
        f"nats (by {check.unisolated_error:.1e} without isolation)",
        flush=True,
    )


@torch.no_grad()
def check_packing(policy: Policy, *, exact: bool) -> PackingCheck:
    """Run five small forward passes. Collective. `exact` applies the float32 tolerance. Raises PackingMismatch."""
    device = next(policy.parameters()).device
    generator = torch.Generator().manual_seed(1)
    vocabulary = int(policy.config["vocab_size"])
    sequences = [torch.randint(vocabulary, (length,), generator=generator).tolist() for length in LENGTHS]

    def logprobs(*row: list[int]) -> torch.Tensor:
        """Log-probabilities of all tokens except the first of each sequence."""
        packed = pack_row(row, [range(1, len(sequence)) for sequence in row])
        return policy(packed.to(device))[0]

    alone = torch.cat([logprobs(sequence) for sequence in sequences])
    unisolated = logprobs([token for sequence in sequences for token in sequence])
    first_tokens = {sum(LENGTHS[:number]) - 1 for number in range(1, len(LENGTHS))}
    kept = [position for position in range(unisolated.numel()) if position not in first_tokens]
    check = PackingCheck(
        packed_error=float((logprobs(*sequences) - alone).abs().max()),
        unisolated_error=float((unisolated[kept] - alone).abs().max()),
    )
    tolerance = FLOAT32_TOLERANCE if exact else check.half_precision_tolerance
    if not check.packed_error <= tolerance:
        raise PackingMismatch(
            f"packed log-probabilities differ from those of each sequence alone by {check.packed_error:.2e} nats, more "
            f"than {tolerance:.2e} (without isolation they differ by {check.unisolated_error:.2e}): this model cannot "
            "be trained in packed rows with this version of transformers and this attention kernel"
        )
    return check
