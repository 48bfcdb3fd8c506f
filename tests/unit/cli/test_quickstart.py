"""`oolong quickstart` and the samples that it writes."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from oolong.cli.app import app
from oolong.contracts.run_spec import read_spec
from oolong.samples.files import SampleFiles
from oolong.samples.tiny_model import write_tiny_model
from tests.support.pages import GUIDE, block


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> SampleFiles:
    directory = tmp_path_factory.mktemp("samples") / "letters"
    result = CliRunner().invoke(app, ["quickstart", str(directory), "--files-only", "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {"directory": str(directory)}
    return SampleFiles(directory)


def test_it_writes_everything_that_the_guide_names(files: SampleFiles) -> None:
    assert {path.name for path in files.directory.iterdir()} == {
        "letters.jsonl",
        "pairs.jsonl",
        "my-model",
        "letters.py",
        "run.yaml",
    }


def test_an_edited_file_stays_and_a_missing_one_comes_back(files: SampleFiles) -> None:
    files.run.write_text("mine: true\n")
    files.reward.unlink()
    assert files.write() == [files.reward]
    assert files.run.read_text() == "mine: true\n"
    files.run.unlink()
    files.write()


def test_the_run_is_the_one_that_the_guide_shows(files: SampleFiles) -> None:
    spec = yaml.safe_load(files.run.read_text())
    assert yaml.safe_load(block(GUIDE, "yaml", "run.yaml")) == spec
    assert read_spec(spec).model.checkpoint == "letters-start"


def test_the_reward_tells_right_from_wrong_and_nothing(files: SampleFiles) -> None:
    source = files.reward.read_text()
    ast.parse(source)
    names: dict[str, object] = {}
    exec(compile(source, "letters.py", "exec"), names)
    score = names["score"]
    assert callable(score)
    found = [score("", completion, "12") for completion in ("a=12 \\boxed{12}", "a=1 \\boxed{1}", "12")]
    assert found == [1.0, 0.1, 0.0]


def test_the_same_seed_gives_the_same_model_and_another_seed_another(tmp_path: Path) -> None:
    weights = [
        (write_tiny_model(tmp_path / name, seed=seed) / "model.safetensors").read_bytes()
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    ]
    assert weights[0] == weights[1] != weights[2]
