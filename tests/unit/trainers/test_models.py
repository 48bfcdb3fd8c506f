"""Loading, exporting and the chat template."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from trainers.distributed.fsdp import gather_full_tensors
from trainers.models.policy import InvalidModel, load_policy
from trainers.rl.weight_publisher import WeightPublisher


def test_the_tiny_model_has_the_size_it_claims(tiny_model: Path) -> None:
    policy = load_policy(tiny_model)
    assert sum(parameter.numel() for parameter in policy.parameters()) == 115_648


def test_a_published_version_reloads_bit_equal_without_a_copy_of_the_tied_head(
    tiny_model: Path, tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    policy = load_policy(tiny_model)
    tensors = gather_full_tensors(policy, dtype=torch.float32, keep=True)
    published = WeightPublisher(tmp_path / "weights", tiny_model).write(12, tensors)
    directory = Path(published.directory)
    assert directory.name == "v00000012"
    with safe_open(directory / "model.safetensors", "pt") as file:
        assert "lm_head.weight" not in file.keys()  # noqa: SIM118 - not a dict
        assert file.metadata() == {"format": "pt"}
    reloaded = AutoModelForCausalLM.from_pretrained(directory)
    assert reloaded.lm_head.weight.data_ptr() == reloaded.model.embed_tokens.weight.data_ptr()
    state = reloaded.state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in tensors.items())
    assert AutoTokenizer.from_pretrained(directory).eos_token == "<|end|>"


def test_the_manifest_lists_every_file_and_every_tensor(tiny_model: Path, tmp_path: Path) -> None:
    import hashlib

    tensors = gather_full_tensors(load_policy(tiny_model), dtype=torch.bfloat16, keep=True)
    published = WeightPublisher(tmp_path / "weights", tiny_model).write(0, tensors)
    directory = Path(published.directory)
    data = (directory / "manifest.json").read_bytes()
    assert hashlib.sha256(data).hexdigest() == published.manifest_sha256
    manifest = json.loads(data)
    on_disk = {path.name for path in directory.iterdir()} - {"manifest.json"}
    assert {file["name"] for file in manifest["files"]} == on_disk >= {"config.json", "tokenizer.json"}
    for file in manifest["files"]:
        content = (directory / file["name"]).read_bytes()
        assert (file["bytes"], file["sha256"]) == (len(content), hashlib.sha256(content).hexdigest())
    assert {one["name"]: (one["shape"], one["dtype"]) for one in manifest["tensors"]} == {
        name: (list(tensor.shape), "BF16") for name, tensor in tensors.items()
    }


def test_a_version_published_again_replaces_what_an_earlier_attempt_left(
    tiny_model: Path, tmp_path: Path
) -> None:
    tensors = gather_full_tensors(load_policy(tiny_model), dtype=torch.float32, keep=True)
    (tmp_path / ".tmp-v00000003").mkdir(parents=True)
    publisher = WeightPublisher(tmp_path, tiny_model)
    first = publisher.write(3, tensors)
    tensors["model.norm.weight"] = tensors["model.norm.weight"] + 1
    second = publisher.write(3, tensors)
    assert first.directory == second.directory and first.manifest_sha256 != second.manifest_sha256
    assert not list(tmp_path.glob(".tmp-*"))


def test_a_rank_that_keeps_nothing_gathers_all_the_same_and_holds_nothing(tiny_model: Path) -> None:
    assert gather_full_tensors(load_policy(tiny_model), dtype=torch.float32, keep=False) == {}


def test_an_untied_head_is_exported(tmp_path: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=64, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2,
        intermediate_size=16, tie_word_embeddings=False,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    assert "lm_head.weight" in gather_full_tensors(load_policy(tmp_path), dtype=torch.float32, keep=True)


@pytest.mark.parametrize(
    "break_it", ["missing tensor", "truncated file", "no config", "other family", "no weights"]
)
def test_an_unusable_model_is_refused_by_name(tiny_model: Path, tmp_path: Path, break_it: str) -> None:
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


def test_the_chat_template_has_one_token_per_role(tiny_model: Path) -> None:
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


def test_any_text_survives_the_byte_tokenizer(tiny_model: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    text = "  héllo 世界 🫖\n\t\\boxed{21} a b"
    assert tokenizer.decode(tokenizer.encode(text)) == text
