"""CISPO: clips the ratio as a weight, so no token loses its gradient."""

from __future__ import annotations

from oolong.contracts.run_spec import AlgorithmSection
from trainers.algorithms.losses.base import LossInputs, LossOutputs


def cispo(inputs: LossInputs, settings: AlgorithmSection) -> LossOutputs:
    """-w stop(clip(r)) A log current, r = current / proximal (arXiv 2506.13585, eq. 4-5).

    The paper leaves the lower bound open (clip_low >= 1). `clipped_low` and `clipped_high` mark bounded weights.
    """
    ratio = (inputs.logprobs.detach() - inputs.proximal_logprobs).exp()
    bounded = ratio.clamp(1.0 - settings.clip_low, 1.0 + settings.clip_high)
    return LossOutputs(
        loss=-inputs.importance_weights * bounded * inputs.advantages * inputs.logprobs,
        ratio=ratio,
        clipped_low=ratio < 1.0 - settings.clip_low,
        clipped_high=ratio > 1.0 + settings.clip_high,
    )
