"""The tiny model and its tokenizer; the sample model of the quickstart has the same shapes and tokenizer."""

from __future__ import annotations

import json
from pathlib import Path

from transformers import AutoTokenizer

from oolong.samples.tiny_model import write_tiny_model
from trainers.models.policy import load_policy
from trainers.models.tiny import make_tiny_model


def test_sample_model_has_shapes_and_std_of_the_tiny_qwen3(tmp_path: Path) -> None:
    sample = load_policy(write_tiny_model(tmp_path / "sample"))
    own = load_policy(make_tiny_model(tmp_path / "own"))
    found, expected = dict(sample.named_parameters()), dict(own.named_parameters())
    assert {name: one.shape for name, one in found.items()} == {
        name: one.shape for name, one in expected.items()
    }
    for name, one in found.items():
        assert abs(float(one.std()) - float(expected[name].std())) < 0.01, name


def test_sample_tokenizer_matches_the_tiny_models(tmp_path: Path) -> None:
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


def test_tiny_model_has_the_documented_size(tiny_model: Path) -> None:
    policy = load_policy(tiny_model)
    assert sum(parameter.numel() for parameter in policy.parameters()) == 115_648


def test_chat_template_has_one_token_per_role(tiny_model: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    messages = [
        {"role": "system", "content": "add"},
        {"role": "user", "content": "a5 b7"},
        {"role": "assistant", "content": "12"},
        {"role": "user", "content": "c9"},
    ]
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert text == "<|system|>add<|user|>a5 b7<|assistant|>12<|end|><|user|>c9<|assistant|>"
    ids = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, tokenize=True, return_dict=False
    )
    assert len(ids) == 5 + len("add" + "a5 b7" + "12" + "c9") + 1
    assert max(ids) < 261


def test_byte_tokenizer_round_trips_any_text(tiny_model: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    text = "  héllo 世界 🫖\n\t\\boxed{21} a b"
    assert tokenizer.decode(tokenizer.encode(text)) == text
