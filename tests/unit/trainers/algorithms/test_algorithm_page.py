"""The examples in docs/how-to/algorithm.md work as documented."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import yaml

from oolong.contracts.run_spec import AlgorithmSection
from oolong.presets import read_preset
from tests.support.pages import block, blocks
from tests.unit.trainers.rl.test_learner import batch
from tests.unit.trainers.rl.test_learner_terms import learner, spec, step
from trainers.algorithms.losses import LossInputs
from trainers.algorithms.user_loss import load_user_loss
from trainers.distributed.context import DistributedContext

PAGE = Path(__file__).resolve().parents[4] / "docs" / "how-to" / "algorithm.md"
SOURCE = block(PAGE, "python")
COMBINED, PRESET, NAMED = (one.text for one in blocks(PAGE.read_text()) if one.language == "yaml")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tapered.py"
    path.write_text(SOURCE)
    return path


def test_documented_loss_tapers_negative_advantages_only(file: Path) -> None:
    behavior = torch.full((4,), -1.0, dtype=torch.float64)
    logprobs = (behavior + torch.log(torch.tensor([0.5, 0.5, 2.0, 2.0]).double())).requires_grad_()
    tokens = LossInputs(
        logprobs=logprobs, proximal_logprobs=behavior, behavior_logprobs=behavior,
        advantages=torch.tensor([-1.0, -1.0, 1.0, 1.0]).double(), importance_weights=torch.ones(4).double(),
        version_lag=torch.ones(4, dtype=torch.long), sequence_ids=torch.tensor([0, 0, 1, 1]), num_sequences=2,
    )  # fmt: skip
    result = load_user_loss(file, {})(tokens, AlgorithmSection())
    [slope] = torch.autograd.grad(result.loss.sum(), logprobs)
    assert slope.tolist() == pytest.approx([0.25, 0.25, -1.0, -1.0])
    low = load_user_loss(file, {"ceiling": 0.1})(tokens, AlgorithmSection())
    assert torch.autograd.grad(low.loss.sum(), logprobs)[0].tolist() == pytest.approx([0.1, 0.1, -1.0, -1.0])


def test_train_step_with_the_documented_loss_is_finite(
    file: Path, tiny_model: Path, context: DistributedContext
) -> None:
    algorithm = yaml.safe_load(NAMED)["algorithm"]
    objective = load_user_loss(file, algorithm["options"])
    outcome = step(learner(tiny_model, context, spec(algorithm), objective=objective), batch(tiny_model))
    assert outcome.finite and outcome.grad_norms[0] > 0 and "policy/ratio_max" in outcome.metrics


def test_documented_spec_and_preset_are_valid(tmp_path: Path) -> None:
    AlgorithmSection.model_validate(yaml.safe_load(COMBINED)["algorithm"])
    (tmp_path / "our-recipe.yaml").write_text(PRESET)
    assert read_preset(tmp_path / "our-recipe.yaml").name == "our-recipe"
