"""Importance weights: levels, bounds and the second-moment mask."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from oolong.contracts.run_spec import ImportanceWeightSection
from trainers.algorithms.importance_weights import compute_importance_weights

SEQUENCE = torch.tensor([0, 0, 1, 1, 1])


LOG_WEIGHT = torch.log(torch.tensor([3.0, 0.5, 2.0, 4.0, 1.0], dtype=torch.float64))


def weights(**section: object) -> list[float]:
    chosen = ImportanceWeightSection.model_validate(section)
    return compute_importance_weights(LOG_WEIGHT, SEQUENCE, 2, chosen, list).bounded.tolist()


def test_weight_over_the_bound_is_masked_truncated_or_used() -> None:
    assert weights(mode="mask", threshold=2.5) == pytest.approx([0, 0.5, 2, 0, 1])
    assert weights(mode="truncate", threshold=2.5) == pytest.approx([2.5, 0.5, 2, 2.5, 1])
    assert weights(mode="none", threshold=2.5) == pytest.approx([3, 0.5, 2, 4, 1])


def test_only_weights_over_the_bound_are_marked_out_of_bounds() -> None:
    at_the_limit = torch.zeros(5, dtype=torch.float64)  # w = 1
    for mode, limited in (("mask", False), ("truncate", False), ("none", False)):
        section = ImportanceWeightSection.model_validate({"mode": mode, "threshold": 1.0})
        found = compute_importance_weights(at_the_limit, SEQUENCE, 2, section, list)
        assert found.bounded.tolist() == [1.0] * 5 and bool(found.out_of_bounds.any()) is limited
    for mode, limited in (("mask", True), ("truncate", True), ("none", False)):
        section = ImportanceWeightSection.model_validate({"mode": mode, "threshold": 1.5})
        found = compute_importance_weights(LOG_WEIGHT, SEQUENCE, 2, section, list)
        assert found.out_of_bounds.tolist() == [limited, False, limited, limited, False]
        assert found.raw.tolist() == pytest.approx([3, 0.5, 2, 4, 1])


def test_two_sided_mask_masks_weights_below_the_lower_bound() -> None:
    """w = 3, 1/2, 2, 4, 1."""
    assert weights(mode="mask", threshold=3.5, lower_threshold=0.75) == pytest.approx([3, 0, 2, 0, 1])
    assert weights(mode="mask", threshold=3.5, lower_threshold=0.25) == pytest.approx([3, 0.5, 2, 0, 1])
    section = ImportanceWeightSection(threshold=3.5, lower_threshold=0.75)
    found = compute_importance_weights(LOG_WEIGHT, SEQUENCE, 2, section, list)
    assert found.out_of_bounds.tolist() == [False, True, False, True, False]
    of_sequences = {"mode": "mask", "level": "sequence_mean", "threshold": 3.5, "lower_threshold": 0.99}
    assert weights(**of_sequences) == pytest.approx([1.5**0.5] * 2 + [2.0] * 3)


def test_sequence_weight_is_the_product_or_geometric_mean_of_token_weights() -> None:
    assert weights(mode="none", level="sequence") == pytest.approx([1.5, 1.5, 8, 8, 8])
    assert weights(mode="none", level="sequence_mean") == pytest.approx([1.5**0.5] * 2 + [2.0] * 3)
    assert weights(mode="mask", level="sequence", threshold=5.0) == pytest.approx([1.5, 1.5, 0, 0, 0])
    assert weights(mode="truncate", level="sequence_mean", threshold=1.5) == pytest.approx(
        [1.5**0.5] * 2 + [1.5] * 3
    )


def test_second_moment_masks_as_few_tokens_as_possible() -> None:
    rng = torch.Generator().manual_seed(3)
    log_weight = 0.6 * torch.randn(500, generator=rng, dtype=torch.float64)
    section = ImportanceWeightSection(mode="second_moment", threshold=0.04)
    found = compute_importance_weights(log_weight, torch.zeros(500, dtype=torch.long), 1, section, list)
    kept = log_weight[~found.out_of_bounds].square()
    assert 0.2 < found.out_of_bounds.double().mean() < 0.9 and float(kept.mean()) <= 0.04
    smallest_masked = log_weight[found.out_of_bounds].square().min()
    assert float(smallest_masked) >= float(kept.max())
    assert float(torch.cat([kept, smallest_masked[None]]).mean()) > 0.04
    assert bool((found.bounded[found.out_of_bounds] == 0).all())

    def with_many_fresh_ones_elsewhere(values: Sequence[float]) -> list[float]:
        return [values[0] + 1e6, values[1]]

    everywhere = compute_importance_weights(
        log_weight, torch.zeros(500, dtype=torch.long), 1, section, with_many_fresh_ones_elsewhere
    )
    assert not everywhere.out_of_bounds.any()


def test_batch_within_the_second_moment_bound_masks_nothing() -> None:
    assert weights(mode="second_moment", threshold=100.0) == pytest.approx([3, 0.5, 2, 4, 1])
