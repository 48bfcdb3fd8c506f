"""Loading of policies from Hugging Face directories."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from trainers.models.policy import InvalidModel, load_policy


@pytest.mark.parametrize(
    "break_it", ["missing tensor", "truncated file", "no config", "other family", "no weights"]
)
def test_invalid_model_is_rejected_by_name(tiny_model: Path, tmp_path: Path, break_it: str) -> None:
    directory = tmp_path / "model"
    shutil.copytree(tiny_model, directory)
    weights = directory / "model.safetensors"
    if break_it == "missing tensor":
        tensors = load_file(weights)
        del tensors["model.layers.1.mlp.up_proj.weight"]
        save_file(tensors, weights, metadata={"format": "pt"})
        said = "model.layers.1.mlp.up_proj.weight"
    elif break_it == "truncated file":
        weights.write_bytes(weights.read_bytes()[:100_000])
        said = "cannot be loaded"
    elif break_it == "no config":
        (directory / "config.json").unlink()
        said = "config.json"
    elif break_it == "no weights":
        weights.unlink()
        said = "cannot be loaded"
    else:
        (directory / "config.json").write_text(json.dumps({"model_type": "mamba"}))
        said = "model_type='mamba'"
    with pytest.raises(InvalidModel, match=said):
        load_policy(directory)
