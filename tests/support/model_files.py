"""The files of a model that is right in every byte and as small as one can be."""

from __future__ import annotations

import io
import json
import math
import struct
import tarfile
from pathlib import Path
from typing import Any

from oolong.model_validation import families

CONFIG: dict[str, Any] = {
    "model_type": "qwen3", "vocab_size": 8, "hidden_size": 4, "intermediate_size": 6, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 2, "tie_word_embeddings": True,
}  # fmt: skip
TOKENIZER = {
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []},
    "added_tokens": [{"id": 2, "content": "x"}],
}
TEMPLATE = "{% for message in messages %}<{{ message.role }}>{{ message.content }}{% endfor %}<assistant>"
PARAMETERS = 168

Shapes = dict[str, tuple[int, ...]]


def shapes(config: dict[str, Any] = CONFIG) -> Shapes:
    return families.required_tensors(config, families.sizes_of(config))


def safetensors(tensors: Shapes | None = None, *, dtype: str = "F32", cut: int = 0) -> bytes:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in (shapes() if tensors is None else tensors).items():
        size = math.prod(shape) * {"F32": 4, "BF16": 2, "I8": 1}[dtype]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    data = with_header(header, bytes(end))
    return data[: len(data) - cut]


def with_header(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def files(**changes: bytes | None) -> dict[str, bytes]:
    """By name; in the names of `changes` two underscores are a dot, and None leaves the file out."""
    given: dict[str, bytes | None] = {
        "config.json": json.dumps(CONFIG).encode(), "tokenizer.json": json.dumps(TOKENIZER).encode(),
        "chat_template.jinja": TEMPLATE.encode(), "model.safetensors": safetensors(),
        **{name.replace("__", "."): data for name, data in changes.items()},
    }  # fmt: skip
    return {name: data for name, data in given.items() if data is not None}


def write(folder: Path) -> Path:
    """The right model, as a directory."""
    folder.mkdir(parents=True)
    for name, data in files().items():
        (folder / name).write_bytes(data)
    return folder


def config(**changes: Any) -> bytes:
    return json.dumps({**CONFIG, **changes}).encode()


def archive(contents: dict[str, bytes], *, mode: str = "w", prefix: str = "", mtime: int = 0) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as tar:  # type: ignore[call-overload]
        for name, data in contents.items():
            info = tarfile.TarInfo(prefix + name)
            info.size, info.mtime = len(data), mtime
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()
