"""Per-token estimators of the KL divergence to the reference policy, from sampled tokens.

d = log current - log reference. k1 = d is unbiased and can be negative; k2 = d^2/2; k3 = exp(-d) - 1 + d is unbiased
and never negative (J. Schulman, "Approximating KL divergence", 2020). Used as a loss they differ more: in expectation
over the current policy, the gradient of k1 is 0, that of k2 the gradient of KL(current, reference), and that of k3 the
gradient of KL(reference, current).
"""

from __future__ import annotations

from collections.abc import Callable

import torch

KL_ESTIMATORS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "k1": lambda difference: difference,
    "k2": lambda difference: difference.square() / 2,
    "k3": lambda difference: torch.expm1(-difference) + difference,
}


def reference_kl(logprobs: torch.Tensor, reference_logprobs: torch.Tensor, *, estimator: str) -> torch.Tensor:
    """[N]; differentiable in `logprobs`."""
    return KL_ESTIMATORS[estimator](logprobs - reference_logprobs)
