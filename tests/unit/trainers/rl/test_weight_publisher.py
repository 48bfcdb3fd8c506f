"""Published weights: content, manifest, replacement."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import safe_open

from gpu_agents.rollout.worker.manifest import ExpectedTensors, check_weights
from oolong.contracts.run_spec import LoraSection
from trainers.distributed.fsdp import gather_adapters, gather_full_tensors
from trainers.models.lora import add_adapters, engine_tensors
from trainers.models.policy import load_policy
from trainers.rl.weight_publisher import WeightPublisher


def test_published_weights_reload_bit_equal_without_a_copy_of_the_tied_head(
    tiny_model: Path, tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    policy = load_policy(tiny_model)
    tensors = gather_full_tensors(policy, dtype=torch.float32, keep=True)
    published = WeightPublisher(tmp_path / "weights", tiny_model).write(12, tensors)
    directory = Path(published.directory)
    assert directory.name == "v00000012"
    assert all(path.stat().st_mode & 0o444 == 0o444 for path in directory.iterdir())
    with safe_open(directory / "model.safetensors", "pt") as file:
        assert "lm_head.weight" not in file.keys()  # noqa: SIM118 - not a dict
        assert file.metadata() == {"format": "pt"}
    reloaded = AutoModelForCausalLM.from_pretrained(directory)
    assert reloaded.lm_head.weight.data_ptr() == reloaded.model.embed_tokens.weight.data_ptr()
    state = reloaded.state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in tensors.items())
    assert AutoTokenizer.from_pretrained(directory).eos_token == "<|end|>"


def test_manifest_lists_every_file_and_tensor(tiny_model: Path, tmp_path: Path) -> None:
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
        assert (file["bytes"], file["bucket_sha256"]) == (len(content), [hashlib.sha256(content).hexdigest()])
    assert {one["name"]: (one["shape"], one["dtype"]) for one in manifest["tensors"]} == {
        name: (list(tensor.shape), "BF16") for name, tensor in tensors.items()
    }


def test_adapter_version_has_the_tensors_that_an_engine_expects_and_is_small(
    tiny_model: Path, tmp_path: Path
) -> None:
    lora = LoraSection(rank=2, targets=["v_proj", "down_proj"])
    policy = add_adapters(load_policy(tiny_model), lora, seed=1)
    tensors = engine_tensors(policy, gather_adapters(policy, dtype=torch.float32))
    published = WeightPublisher(tmp_path, tiny_model, lora=lora).write(4, tensors)
    directory = Path(published.directory)
    check_weights(published, ExpectedTensors.of_adapter(tiny_model, lora))
    config = json.loads((directory / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"]) == (2, 32.0)
    assert config["target_modules"] == ["down_proj", "k_proj", "q_proj", "v_proj"]
    on_disk = sum(path.stat().st_size for path in directory.iterdir())
    assert on_disk < (tiny_model / "model.safetensors").stat().st_size / 5
    fused = [one for name, one in tensors.items() if ".q_proj." in name or ".k_proj." in name]
    assert fused and not any(one.any() for one in fused), "layers without an adapter of their own got one"


def test_republishing_a_version_replaces_an_earlier_attempts_directory(
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
