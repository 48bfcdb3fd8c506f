"""User losses: the interface, validation of their outputs, and errors with the line of the user's file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from oolong.contracts.run_spec import AlgorithmSection
from trainers.algorithms import user_loss
from trainers.algorithms.losses import OBJECTIVES, LossInputs
from trainers.algorithms.user_loss import InvalidLoss, load_user_loss

REINFORCE = """
from trainers.algorithms.losses import LossOutputs


def loss(inputs, settings, *, slope=1.0):
    return LossOutputs(loss=-slope * inputs.importance_weights * inputs.advantages * inputs.logprobs)
"""


def tokens() -> LossInputs:
    logprobs = torch.tensor([-1.0, -2.0, -0.5], dtype=torch.float64, requires_grad=True)
    return LossInputs(
        logprobs=logprobs, proximal_logprobs=logprobs.detach(), behavior_logprobs=logprobs.detach() - 0.1,
        advantages=torch.tensor([1.0, -1.0, 2.0]).double(), importance_weights=torch.full((3,), 1.1).double(),
        version_lag=torch.ones(3, dtype=torch.long), sequence_ids=torch.tensor([0, 0, 1]), num_sequences=2,
    )  # fmt: skip


def written(tmp_path: Path, source: str) -> Path:
    file = tmp_path / "loss.py"
    file.write_text(source)
    return file


def test_user_loss_receives_inputs_settings_and_options(tmp_path: Path) -> None:
    given = tokens()
    plain = load_user_loss(written(tmp_path, REINFORCE), {})(given, AlgorithmSection())
    steep = load_user_loss(tmp_path / "loss.py", {"slope": 3.0})(given, AlgorithmSection())
    assert torch.equal(plain.loss, -given.importance_weights * given.advantages * given.logprobs)
    torch.testing.assert_close(steep.loss, 3 * plain.loss)


def test_copy_of_a_built_in_loss_gives_equal_results(tmp_path: Path) -> None:
    own = Path(OBJECTIVES["decoupled_ppo"].__code__.co_filename)  # type: ignore[attr-defined]
    file = written(tmp_path, own.read_text().replace("def decoupled_ppo(", "def loss("))
    given, settings = tokens(), AlgorithmSection()
    ours = OBJECTIVES["decoupled_ppo"](given, settings)
    assert torch.equal(load_user_loss(file, {})(given, settings).loss, ours.loss)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import no_such_module\n", "cannot be imported: ModuleNotFoundError.*line 1"),
        ("x = 1\n", "cannot be imported: AttributeError"),
        ("def loss(inputs, settings):\n    return inputs.prompt\n", "raised AttributeError.*line 2"),
        ("def loss(inputs, settings):\n    return inputs.logprobs\n", "Tensor; it must return LossOutputs"),
        ("from trainers.algorithms.losses import LossOutputs\ndef loss(inputs, settings):\n"
         "    return LossOutputs(loss=-inputs.logprobs.mean()[None])\n",
         r"shape \(1,\); it must have one number per token, shape \(3,\)"),
        (REINFORCE.replace("inputs.logprobs", "inputs.behavior_logprobs"), "without a gradient"),
        (REINFORCE.replace("logprobs)", "logprobs, ratio=inputs.importance_weights.mean())"),
         r"whose ratio has shape \(\); it must have one number per token, shape \(3,\)"),
        (REINFORCE.replace("logprobs)", "logprobs, clipped_low=0.5)"), "whose clipped_low has type float"),
        (REINFORCE.replace("loss=-slope", "loss=0.0, ratio=-slope"), "whose loss has type float"),
    ],
)  # fmt: skip
def test_error_of_a_user_loss_names_cause_and_line(tmp_path: Path, source: str, said: str) -> None:
    with pytest.raises(InvalidLoss, match=said):
        load_user_loss(written(tmp_path, source), {})(tokens(), AlgorithmSection())


def test_user_loss_may_define_a_dataclass(tmp_path: Path) -> None:
    """Whose annotations, being strings, are looked up in the module by its name."""
    head = "from __future__ import annotations\nfrom dataclasses import dataclass\n"
    limits = "@dataclass(frozen=True)\nclass Limits:\n    slope: float = 2.0\n"
    source = head + limits + REINFORCE.replace("-slope", "-Limits().slope")
    given = tokens()
    found = load_user_loss(written(tmp_path, source), {})(given, AlgorithmSection())
    torch.testing.assert_close(
        found.loss, -2.0 * given.importance_weights * given.advantages * given.logprobs
    )


def test_user_loss_is_not_called_for_dummy_microbatches(tmp_path: Path) -> None:
    """A rank without work keeps in step by a microbatch that has none; much that is right fails on it."""
    none = LossInputs(
        **{
            name: value[:0] if isinstance(value, torch.Tensor) else value
            for name, value in vars(tokens()).items()
        }
    )
    source = REINFORCE.replace(
        "inputs.importance_weights", "inputs.importance_weights / inputs.importance_weights.max()"
    )
    found = load_user_loss(written(tmp_path, source), {})(none, AlgorithmSection())
    assert found.loss.shape == (0,) and found.loss.requires_grad


def test_unknown_option_of_a_user_loss_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidLoss, match="unexpected keyword argument 'slop'"):
        load_user_loss(written(tmp_path, REINFORCE), {"slop": 1.0})(tokens(), AlgorithmSection())


@pytest.fixture
def _as_before() -> Iterator[None]:
    """What a file of these tests replaces is put back."""
    softmax, clamp, validate = torch.softmax, torch.Tensor.clamp, user_loss.validate_outputs
    yield
    torch.softmax, torch.Tensor.clamp, user_loss.validate_outputs = softmax, clamp, validate  # type: ignore[method-assign,assignment]


PATCHES = {
    "torch.softmax": "import torch\ntorch.softmax = len\n",
    "torch.Tensor.clamp": "import torch\nsetattr(torch.Tensor, 'clamp', lambda *_: 0)\n",
    "trainers.algorithms.user_loss.validate_outputs": (
        "import trainers.algorithms.user_loss as u\nu.__dict__['validate_outputs'] = lambda outputs, _: outputs\n"
    ),
}


@pytest.mark.usefixtures("_as_before")
@pytest.mark.parametrize("name", PATCHES)
def test_monkey_patching_at_import_is_rejected(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidLoss, match=f"loss.py replaced {name}: a loss must not modify"):
        load_user_loss(written(tmp_path, PATCHES[name] + REINFORCE), {})


@pytest.mark.usefixtures("_as_before")
@pytest.mark.parametrize("name", PATCHES)
def test_monkey_patching_in_the_first_call_is_rejected(tmp_path: Path, name: str) -> None:
    patch = PATCHES[name].replace("\n", "\n    ")
    source = REINFORCE.replace("    return", f"    {patch}return")
    loss = load_user_loss(written(tmp_path, source), {})
    with pytest.raises(InvalidLoss, match=f"replaced {name}: "):
        loss(tokens(), AlgorithmSection())


def test_lazy_import_of_a_torch_module_is_accepted(tmp_path: Path) -> None:
    source = "import torch\nimport torch.distributions.beta\n" + REINFORCE
    assert load_user_loss(written(tmp_path, source), {})(tokens(), AlgorithmSection())
