"""Run by the node Python: write a tiny random Qwen3 with a byte-level tokenizer, and versions of it to publish.

`make_models.py BASE` writes the Hugging Face directory BASE.
`make_models.py BASE --weights DIRECTORY --versions 0 1 2` publishes versions: v0 is BASE, later ones differ.
With `--lora SECTION` it also publishes as many adapters for BASE, as the trainer does.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

from oolong.contracts.run_spec import LoraSection
from oolong.system.bucket_hashes import bucket_sha256

TEMPLATE = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def write_base(directory: Path, seed: int = 0, scale: float = 1.0) -> None:
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    symbols = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={symbol: i for i, symbol in enumerate(symbols)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|pad|>", "<|end|>", "<|user|>", "<|assistant|>", "<|system|>"]
    tokenizer.add_special_tokens(special)
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<|pad|>", eos_token="<|end|>", chat_template=TEMPLATE
    )
    wrapped.save_pretrained(directory)
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=264, hidden_size=64, intermediate_size=192, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=32, max_position_embeddings=1024, tie_word_embeddings=True,
        eos_token_id=257, pad_token_id=256, bos_token_id=None,
    )  # fmt: skip
    model = Qwen3ForCausalLM(config).float()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(scale)
    model.save_pretrained(directory)


def publish(base: Path, weights: Path, version: int) -> None:
    """One published-weights directory, as the trainer writes it: files, then manifest.json, then the rename."""
    import torch
    from safetensors.torch import load_file, save_file

    final = weights / f"v{version:08d}"
    temporary = weights / f".tmp-{version}"
    shutil.copytree(base, temporary)
    tensors = load_file(base / "model.safetensors")
    generator = torch.Generator().manual_seed(version)
    if version:
        tensors = {
            name: value + 0.3 * value.std() * torch.randn(value.shape, generator=generator)
            if value.ndim == 2
            else value
            for name, value in tensors.items()
        }
    save_file(tensors, temporary / "model.safetensors", metadata={"format": "pt"})
    files = [
        {"name": p.name, "bytes": p.stat().st_size, "bucket_sha256": bucket_sha256(p)}
        for p in sorted(temporary.iterdir())
    ]
    manifest = {
        "version": version,
        "files": files,
        "tensors": [
            {"name": n, "shape": list(t.shape), "dtype": "float32", "file": "model.safetensors"}
            for n, t in sorted(tensors.items())
        ],
    }
    (temporary / "manifest.json").write_text(json.dumps(manifest))
    temporary.rename(final)


def publish_adapters(
    base: Path, weights: Path, versions: list[int], lora: LoraSection, *, merged: Path | None
) -> None:
    """In `weights/adapters`; with `merged`, also as whole models there."""
    import torch

    from trainers.distributed.fsdp import gather_adapters, gather_full_tensors
    from trainers.models.hf_export import WEIGHTS_FILE, write_weights
    from trainers.models.lora import add_adapters, engine_tensors
    from trainers.models.policy import load_policy
    from trainers.rl.weight_publisher import WeightPublisher

    policy = add_adapters(load_policy(base), lora, seed=1)
    publisher = WeightPublisher(weights / "adapters", base, lora=lora)
    for version in versions:
        generator = torch.Generator().manual_seed(version)
        for name, parameter in policy.causal_lm.named_parameters():
            if name.endswith("lora_b") and version:
                with torch.no_grad():
                    parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
        publisher.write(version, engine_tensors(policy, gather_adapters(policy, dtype=torch.float32)))
        if merged is not None:
            directory = merged / f"v{version:08d}"
            shutil.copytree(base, directory)
            write_weights(
                gather_full_tensors(policy, dtype=torch.float32, keep=True), directory / WEIGHTS_FILE
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("base", type=Path)
    parser.add_argument(
        "--scale", type=float, default=8.0, help="of the matrices: how far from uniform it samples"
    )
    parser.add_argument("--family", help="of the model; default: the Qwen3 above")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--versions", type=int, nargs="*", default=[])
    parser.add_argument("--adapters", type=int, nargs="*", default=[], help="default: as many as versions")
    parser.add_argument("--merged", type=Path)
    parser.add_argument("--lora", type=LoraSection.model_validate_json)
    arguments = parser.parse_args()
    if arguments.family:
        from trainers.models.tiny import make_tiny_model

        make_tiny_model(arguments.base, family=arguments.family)
    elif not arguments.base.exists():
        write_base(arguments.base, scale=arguments.scale)
    for number in arguments.versions:
        arguments.weights.mkdir(parents=True, exist_ok=True)
        publish(arguments.base, arguments.weights, number)
    if arguments.lora is not None:
        publish_adapters(
            arguments.base,
            arguments.weights,
            arguments.adapters or arguments.versions,
            arguments.lora,
            merged=arguments.merged,
        )
