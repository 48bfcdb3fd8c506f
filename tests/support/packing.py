"""How full the microbatches of a plan are."""

from __future__ import annotations

from collections.abc import Sequence

from trainers.distributed.sequence_packing import Microbatches, SequenceSize


def utilization(
    sizes: Sequence[SequenceSize], by_rank: Sequence[Microbatches], *, token_budget: int
) -> float:
    """Fraction of the microbatches' token budget that is filled, over all ranks."""
    return sum(size.tokens for size in sizes) / (
        token_budget * sum(len(microbatches) for microbatches in by_rank)
    )
