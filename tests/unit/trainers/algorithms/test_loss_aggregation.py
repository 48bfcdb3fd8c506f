from __future__ import annotations

import pytest
import torch

from trainers.algorithms.loss_aggregation import token_weights


def test_token_weights_of_the_three_aggregation_modes() -> None:
    lengths = torch.tensor([1.0, 3.0, 3.0, 3.0])
    given = {"loss_tokens": 4, "loss_sequences": 2, "constant_tokens": 10}
    assert token_weights(lengths, mode="token_mean", **given).tolist() == [0.25] * 4
    assert token_weights(lengths, mode="seq_mean", **given).tolist() == pytest.approx(
        [1 / 2, 1 / 6, 1 / 6, 1 / 6]
    )
    assert token_weights(lengths, mode="constant", **given).tolist() == pytest.approx([0.05] * 4)
