"""A model directory and published weights without torch: a byte tokenizer, a template, two small tensors."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from oolong.contracts.rollout import PublishedWeights
from oolong.system.bucket_hashes import bucket_sha256

SPECIAL = ["<|pad|>", "<|end|>", "<|user|>", "<|assistant|>", "<|system|>"]
TEMPLATE = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
SHAPES = {"model.embed_tokens.weight": (4, 2), "model.norm.weight": (2,)}
ATTENTION = {f"model.layers.0.self_attn.{name}_proj.weight": (2, 2) for name in "qkvo"}


def write_safetensors(path: Path, shapes: dict[str, tuple[int, ...]], *, fill: float = 0.0) -> None:
    header, offset = {}, 0
    for name, shape in shapes.items():
        count = 1
        for size in shape:
            count *= size
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [offset, offset + 4 * count]}
        offset += 4 * count
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + struct.pack("<f", fill) * (offset // 4))


def write_model(directory: Path) -> Path:
    directory.mkdir(parents=True)
    symbols = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={symbol: i for i, symbol in enumerate(symbols)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>"}))
    (directory / "chat_template.jinja").write_text(TEMPLATE)
    config = {"vocab_size": 264, "max_position_embeddings": 1024, "tie_word_embeddings": True}
    (directory / "config.json").write_text(json.dumps(config))
    write_safetensors(directory / "model.safetensors", SHAPES)
    return directory


def publish(
    weights: Path, version: int, *, shapes: dict[str, tuple[int, ...]] | None = None
) -> PublishedWeights:
    """As the trainer leaves it: files, then manifest.json."""
    directory = weights / f"v{version:08d}"
    directory.mkdir(parents=True)
    (directory / "config.json").write_text("{}")
    shapes = SHAPES if shapes is None else shapes
    write_safetensors(directory / "model.safetensors", shapes, fill=float(version))
    return seal(directory, version, shapes)


def publish_adapter(weights: Path, version: int, shapes: dict[str, tuple[int, ...]]) -> PublishedWeights:
    directory = weights / f"v{version:08d}"
    directory.mkdir(parents=True)
    (directory / "adapter_config.json").write_text("{}")
    write_safetensors(directory / "adapter_model.safetensors", shapes, fill=float(version))
    return seal(directory, version, shapes, file="adapter_model.safetensors")


def seal(
    directory: Path, version: int, shapes: dict[str, tuple[int, ...]], *, file: str = "model.safetensors"
) -> PublishedWeights:
    files = [
        {"name": p.name, "bytes": p.stat().st_size, "bucket_sha256": bucket_sha256(p)}
        for p in sorted(directory.iterdir())
        if p.name != "manifest.json"
    ]
    tensors = [
        {"name": name, "shape": list(shape), "dtype": "float32", "file": file}
        for name, shape in shapes.items()
    ]
    content = json.dumps({"version": version, "files": files, "tensors": tensors}).encode()
    (directory / "manifest.json").write_bytes(content)
    return PublishedWeights(
        version=version, directory=str(directory), manifest_sha256=hashlib.sha256(content).hexdigest()
    )


def write_rows(path: Path, rows: int, *, split: str = "train", sources: Sequence[str] = ("",)) -> Path:
    """Rows take the sources in turn."""
    with path.open("w") as file:
        for row in range(rows):
            content = f"{chr(97 + row % 26)}{row}"
            line = {
                "row": row, "split": split, "messages": [{"role": "user", "content": content}],
                "answer": str(row), "completion": None, "source": sources[row % len(sources)],
            }  # fmt: skip
            file.write(json.dumps(line) + "\n")
    return path
