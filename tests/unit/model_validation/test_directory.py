"""The check of a model directory: what is right passes, and each fault names its file or tensor."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oolong.model_validation import InvalidModel, ModelFacts, check_directory, directory, safetensors_header
from oolong.model_validation.errors import MAX_MESSAGE, MAX_NAME
from tests.support.model_files import CONFIG, PARAMETERS, config, files, safetensors, shapes, with_header

Check = Callable[[dict[str, bytes]], ModelFacts]


@pytest.fixture
def check(tmp_path: Path) -> Check:
    def write_and_check(contents: dict[str, bytes]) -> ModelFacts:
        for name, data in contents.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_bytes(data)
        return check_directory(tmp_path)

    return write_and_check


def of_family(family: str, **changes: Any) -> dict[str, bytes]:
    changed = {**CONFIG, "model_type": family, **changes}
    return files(config__json=json.dumps(changed).encode(), model__safetensors=safetensors(shapes(changed)))


def test_valid_model_passes_with_its_facts(check: Check) -> None:
    facts = check(files())
    assert (facts.family, facts.parameters, facts.tensors, facts.tokens) == ("qwen3", PARAMETERS, 13, 3)
    assert facts.dtypes == {"F32": PARAMETERS}
    assert facts.chat is not None and facts.chat.file == "chat_template.jinja"


@pytest.mark.parametrize(
    ("contents", "tensors"),
    [
        (of_family("qwen2", head_dim=None), 14),
        (of_family("qwen2", tie_word_embeddings=False), 15),
        (of_family("llama", tie_word_embeddings=False), 12),
        (of_family("llama", attention_bias=True, mlp_bias=True), 18),
        (of_family("qwen3", attention_bias=True, num_hidden_layers=2), 32),
        (files(model__safetensors=safetensors({**shapes(), "lm_head.weight": (8, 4)})), 14),
        (files(model__safetensors=safetensors({**shapes(), "model.layers.0.self_attn.rotary_emb.inv_freq": (1,)})), 14),
        (files(model__safetensors=safetensors(dtype="BF16")), 13),
    ],
)  # fmt: skip
def test_every_family_passes_with_its_own_tensors(
    check: Check, contents: dict[str, bytes], tensors: int
) -> None:
    assert check(contents).tensors == tensors


def without(name: str) -> bytes:
    return safetensors({key: shape for key, shape in shapes().items() if key != name})


def header(**entry: Any) -> dict[str, bytes]:
    return files(model__safetensors=with_header({"w": entry}, bytes(4)))


@pytest.mark.parametrize(
    ("contents", "pointer", "code", "said"),
    [
        (files(model__safetensors=without("model.norm.weight")), "/tensors/model.norm.weight", "missing_tensor", "[4]"),
        (files(model__safetensors=safetensors({**shapes(), "value_head.weight": (1, 4)})),
         "/tensors/value_head.weight", "extra_tensor", "[1, 4] is no tensor of a qwen3"),
        (files(model__safetensors=safetensors({**shapes(), "model.embed_tokens.weight": (9, 4)})),
         "/tensors/model.embed_tokens.weight", "wrong_shape", "has shape [9, 4], by config.json it has [8, 4]"),
        (files(model__safetensors=safetensors({**shapes(), "lm_head.weight": (8, 5)})),
         "/tensors/lm_head.weight", "wrong_shape", "[8, 5]"),
        (files(model__safetensors=safetensors(dtype="I8")), "/tensors/model.norm.weight", "wrong_dtype", "I8"),
        (files(config__json=config(tie_word_embeddings=False)), "/tensors/lm_head.weight", "missing_tensor", "[8, 4]"),
        (files(config__json=config(num_hidden_layers=2)), "/tensors/model.layers.1.mlp.up_proj.weight",
         "missing_tensor", "in no file"),
        (files(config__json=config(head_dim=4)), "/tensors/model.layers.0.self_attn.q_norm.weight",
         "wrong_shape", "[4]"),
        (files(config__json=config(num_key_value_heads=2)), "/tensors/model.layers.0.self_attn.k_proj.weight",
         "wrong_shape", "[2, 4]"),
        (files(config__json=config(num_attention_heads=3, num_key_value_heads=2)), "/files/config.json", "bad_config",
         "no multiple of"),
        (files(config__json=config(hidden_size=True)), "/files/config.json", "bad_config", "hidden_size is 'True'"),
        (files(config__json=config(num_hidden_layers=10**9)), "/files/config.json", "bad_config", "num_hidden_layers"),
        (files(config__json=config(vocab_size=2)), "/files/tokenizer.json", "too_many_tokens", "up to 2"),
        (files(tokenizer__json=b"{}"), "/files/tokenizer.json", "bad_tokenizer", "fast tokenizer"),
        (files(tokenizer__json=b'{"model": {"vocab": {"a": "0"}}}'), "/files/tokenizer.json", "bad_tokenizer", ""),
        (files(tokenizer__json=b'{"model": {"vocab": {"a": 1.5}}}'), "/files/tokenizer.json", "bad_tokenizer", "1.5"),
        (files(tokenizer__json=b'{"model": {"vocab": {"a": NaN}}}'), "/files/tokenizer.json", "bad_tokenizer", "nan"),
        (files(tokenizer__json=b'{"model": {"vocab": {"a": true}}}'), "/files/tokenizer.json", "bad_tokenizer", "True"),
        (files(tokenizer__json=b'{"model": {"vocab": {"a": -1}}}'), "/files/tokenizer.json", "bad_tokenizer", "-1"),
        (files(tokenizer__json=b'{"model": {"vocab": "abc"}}'), "/files/tokenizer.json", "bad_tokenizer", "no list"),
        (files(tokenizer__json=b'{"model": {"vocab": {}}, "added_tokens": [{"id": 1e3}]}'), "/files/tokenizer.json",
         "bad_tokenizer", "1000.0"),
        (files(config__json=config(model_type=["qwen3"])), "/files/config.json", "no_model_type", "a text"),
        (files(config__json=config(note="x" * 1024**2)), "/files/config.json", "too_large", "at most 1048576"),
        (files(chat_template__jinja=None, tokenizer_config__json=b'{"chat_template": [{"name": [], "template": ""}]}'),
         "/files/chat_template.jinja", "no_chat_template", "add chat_"),
        (files(model__safetensors=(25_000_001).to_bytes(8, "little")), "/files/model.safetensors", "bad_header",
         "at most 25000000"),
        (files(chat_template__jinja=None), "/files/chat_template.jinja", "no_chat_template", "add chat_"),
        (header(dtype="F32", shape=[1], data_offsets=["0", "4"]), "/files/model.safetensors", "bad_header", "malf"),
        (header(dtype="F32", shape=[True], data_offsets=[0, 4]), "/files/model.safetensors", "bad_header", "malf"),
        (header(dtype="F32", shape=[-1], data_offsets=[0, -4]), "/files/model.safetensors", "bad_header", "malf"),
        (header(dtype="X9", shape=[1], data_offsets=[0, 4]), "/files/model.safetensors", "bad_header", "malf"),
        (header(dtype="F32", shape=[1] * 9, data_offsets=[0, 4]), "/files/model.safetensors", "bad_header", "dimens"),
        (header(dtype="F32", shape=[2], data_offsets=[0, 8]), "/files/model.safetensors", "truncated", "8 bytes"),
        (header(dtype="F32", shape=[1], data_offsets=[4, 8]), "/files/model.safetensors", "bad_header", "to nobody"),
        (files(model__safetensors=with_header(b'{"a": {}, "a": {}}')), "/files/model.safetensors", "bad_header",
         "'a' is there twice"),
        (files(model__safetensors=with_header(
            {name: {"dtype": "F32", "shape": [2], "data_offsets": at} for name, at in (("a", [0, 8]), ("b", [4, 12]))},
            bytes(12))), "/files/model.safetensors", "bad_header", "overlaps"),
        ({**files(), "other.safetensors": safetensors({"w": (1,)})}, "/files/model.safetensors.index.json",
         "missing_file", "2 files of weights"),
        ({**files(), "model.safetensors.index.json": b'{"weight_map": ["w"]}'}, "/files/model.safetensors.index.json",
         "bad_index", "weight_map"),
        ({**files(), "model.safetensors.index.json": b'{"weight_map": {"model.norm.weight": "b.safetensors"}}',
          "b.safetensors": safetensors({"w": (1,)})}, "/files/model.safetensors", "unnamed_weights", "remove it"),
    ],
)  # fmt: skip
def test_fault_names_its_file_or_tensor(
    check: Check, contents: dict[str, bytes], pointer: str, code: str, said: str
) -> None:
    with pytest.raises(InvalidModel) as caught:
        check(contents)
    told = {(fault.pointer, fault.code): fault.message for fault in caught.value.faults}
    assert (pointer, code) in told, told
    assert said in told[pointer, code]


def test_shards_are_one_model_and_each_tensor_lies_where_the_index_says(check: Check) -> None:
    whole = shapes()
    parts = [dict(list(whole.items())[:5]), dict(list(whole.items())[5:])]
    names = ["model-1.safetensors", "model-2.safetensors"]
    index = {tensor: name for name, part in zip(names, parts, strict=True) for tensor in part}
    contents = files(model__safetensors=None) | {
        name: safetensors(part) for name, part in zip(names, parts, strict=True)
    }
    contents["model.safetensors.index.json"] = json.dumps({"weight_map": index}).encode()
    assert check(contents).parameters == PARAMETERS
    index["model.norm.weight"] = names[1]
    with pytest.raises(InvalidModel, match=r"looks for tensor model[.]norm[.]weight in model-2"):
        check({"model.safetensors.index.json": json.dumps({"weight_map": index}).encode()})


OTHER: dict[str, tuple[int, ...]] = {"transformer.wte.weight": (8, 4), "transformer.h.0.ln_1.weight": (4,)}
GPT2 = {"model_type": "gpt2", "vocab_size": 8, "n_embd": 4, "n_layer": 1}


@pytest.mark.parametrize(
    ("changes", "tensors", "code"),
    [
        ({}, OTHER, ""),
        ({"text_config": dict(GPT2)}, OTHER, ""),
        ({"num_nextn_predict_layers": 1}, {**OTHER, "transformer.h.1.ln_1.weight": (4,)}, ""),
        ({"n_layer": 2}, OTHER, "missing_tensor"),
        ({}, {**OTHER, "transformer.h.1.ln_1.weight": (4,)}, "extra_tensor"),
        ({"vocab_size": 9}, OTHER, "wrong_shape"),
        ({"n_embd": None}, OTHER, "bad_config"),
        ({}, {"transformer.h.0.ln_1.weight": (4,)}, "missing_tensor"),
    ],
)
def test_of_another_family_the_embedding_and_the_layers_are_checked(
    check: Check, changes: dict[str, Any], tensors: dict[str, tuple[int, ...]], code: str
) -> None:
    contents = files(
        config__json=json.dumps({**GPT2, **changes}).encode(), model__safetensors=safetensors(tensors)
    )
    if not code:
        assert check(contents).family == "gpt2"
        return
    with pytest.raises(InvalidModel) as caught:
        check(contents)
    assert code in {fault.code for fault in caught.value.faults}


def test_a_link_may_lead_within_the_bounds_and_nowhere_else(check: Check, tmp_path: Path) -> None:
    model, blobs = tmp_path / "root" / "model", tmp_path / "root" / "blobs"
    blobs.mkdir(parents=True)
    model.mkdir()
    for name, data in files().items():
        (blobs / name).write_bytes(data)
        (model / name).symlink_to(blobs / name)
    assert check_directory(model, within=tmp_path / "root").parameters == PARAMETERS
    (tmp_path / "secret").write_text("{}")
    (model / "generation_config.json").symlink_to(tmp_path / "secret")
    (model / "gone").symlink_to(blobs / "nowhere")
    with pytest.raises(InvalidModel) as caught:
        check_directory(model, within=tmp_path / "root")
    assert {fault.pointer: fault.code for fault in caught.value.faults} == {
        "/files/generation_config.json": "link_outside", "/files/gone": "not_a_file",
    }  # fmt: skip


def test_long_fault_lists_are_truncated_with_a_count(check: Check) -> None:
    with pytest.raises(InvalidModel) as caught:
        check(files(config__json=config(num_hidden_layers=1000)))
    assert len(caught.value.faults) == 51
    assert "more faults are not listed" in caught.value.faults[-1].message


@pytest.mark.parametrize(
    "contents",
    [
        header(dtype="F32", shape=["x" * 10_000], data_offsets=[0, 4]),
        header(dtype="F32", shape=[1], data_offsets=["x" * 10_000, 4]),
        header(dtype="x" * 10_000, shape=[1], data_offsets=[0, 4]),
        {
            **files(),
            "model.safetensors.index.json": json.dumps({"weight_map": {"w": "x" * 10_000}}).encode(),
        },
    ],
)
def test_quoted_values_in_faults_are_truncated(check: Check, contents: dict[str, bytes]) -> None:
    with pytest.raises(InvalidModel) as caught:
        check(contents)
    for fault in caught.value.faults:
        assert len(fault.message) <= MAX_MESSAGE and len(fault.pointer) <= MAX_NAME + len("/tensors/")


def test_more_tensors_than_any_model_has_are_refused_in_one_file_and_in_all(
    check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(safetensors_header, "MAX_TENSORS", 12)
    with pytest.raises(InvalidModel, match="names 13 tensors, at most 12"):
        check(files())
    monkeypatch.setattr(safetensors_header, "MAX_TENSORS", 13)
    monkeypatch.setattr(directory, "MAX_TENSORS", 13)
    with pytest.raises(InvalidModel, match="more than 13 tensors"):
        check({**files(), "other.safetensors": safetensors({"w": (1,)})})
