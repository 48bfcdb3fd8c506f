"""The sample model of the quickstart is what the trainer's own tiny model is, but for its random numbers."""

from __future__ import annotations

import json
from pathlib import Path

from transformers import AutoTokenizer

from oolong.samples.tiny_model import write_tiny_model
from trainers.models.policy import load_policy
from trainers.models.tiny import make_tiny_model


def test_the_sample_model_loads_with_the_shapes_and_the_spread_of_a_tiny_qwen3(tmp_path: Path) -> None:
    sample = load_policy(write_tiny_model(tmp_path / "sample"))
    own = load_policy(make_tiny_model(tmp_path / "own"))
    found, expected = dict(sample.named_parameters()), dict(own.named_parameters())
    assert {name: one.shape for name, one in found.items()} == {
        name: one.shape for name, one in expected.items()
    }
    for name, one in found.items():
        assert abs(float(one.std()) - float(expected[name].std())) < 0.01, name


def test_the_sample_tokenizer_renders_and_splits_as_the_trainers_own(tmp_path: Path) -> None:
    write_tiny_model(tmp_path / "sample")
    make_tiny_model(tmp_path / "own")
    ours, own = (AutoTokenizer.from_pretrained(tmp_path / name) for name in ("sample", "own"))
    messages = [{"role": "user", "content": "a5 b7 ü€\n"}, {"role": "assistant", "content": "12"}]
    assert ours.apply_chat_template(messages)["input_ids"] == own.apply_chat_template(messages)["input_ids"]
    text = "any text: 数 \t é"
    assert ours.decode(ours.encode(text)) == text
    vocabularies = [
        json.loads((tmp_path / name / "tokenizer.json").read_text())["model"]["vocab"]
        for name in ("sample", "own")
    ]
    assert vocabularies[0] == vocabularies[1]
