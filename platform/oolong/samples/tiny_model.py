"""A base model of 116 thousand random parameters: a Qwen3 directory with a tokenizer of single bytes.

Written by the standard library alone, so that whoever has only the command line can make one.
"""

from __future__ import annotations

import array
import json
import math
import random
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROLES = ("user", "assistant", "system")
SPECIAL_TOKENS = ("<|pad|>", "<|end|>", *(f"<|{role}|>" for role in ROLES))
FIRST_SPECIAL_ID = 256  # after the single bytes
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ '<|end|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
# Decides everything about the model; the shapes below follow from it.
CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "dtype": "float32", "vocab_size": 264,
    "hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 32, "hidden_act": "silu", "rms_norm_eps": 1e-6, "attention_bias": False,
    "attention_dropout": 0.0, "max_position_embeddings": 1024, "initializer_range": 0.1, "tie_word_embeddings": True,
    "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}, "pad_token_id": 256, "eos_token_id": 257,
    "bos_token_id": None,
}  # fmt: skip


def write_tiny_model(directory: Path, *, seed: int = 1) -> Path:
    """Write config, tokenizer and weights into `directory`. The same seed gives the same bytes."""
    directory.mkdir(parents=True, exist_ok=True)
    documents = {
        "config.json": CONFIG,
        "tokenizer.json": _tokenizer(),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<|pad|>", "eos_token": "<|end|>",
            "chat_template": CHAT_TEMPLATE, "clean_up_tokenization_spaces": False, "model_max_length": 1024,
        },
    }  # fmt: skip
    for name, document in documents.items():
        (directory / name).write_text(
            json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
        )
    _write_weights(directory / "model.safetensors", random.Random(f"tiny-model/{seed}"))
    return directory


def _shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name and shape of every tensor; the head is tied to the embedding."""
    hidden, inner, head = CONFIG["hidden_size"], CONFIG["intermediate_size"], CONFIG["head_dim"]
    queries, keys = CONFIG["num_attention_heads"] * head, CONFIG["num_key_value_heads"] * head
    yield "model.embed_tokens.weight", (CONFIG["vocab_size"], hidden)
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm": (hidden,), "post_attention_layernorm": (hidden,),
        "self_attn.q_proj": (queries, hidden), "self_attn.k_proj": (keys, hidden), "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries), "self_attn.q_norm": (head,), "self_attn.k_norm": (head,),
        "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden), "mlp.down_proj": (hidden, inner),
    }  # fmt: skip
    for number in range(CONFIG["num_hidden_layers"]):
        for name, shape in layer.items():
            yield f"model.layers.{number}.{name}.weight", shape
    yield "model.norm.weight", (hidden,)


def _write_weights(path: Path, rng: random.Random) -> None:
    """safetensors: length of the header, the header, the tensors one after the other."""
    header: dict[str, Any] = {}
    values = array.array("f")
    for name, shape in _shapes():
        began, count = len(values), math.prod(shape)
        is_norm = len(shape) == 1
        values.extend(1.0 if is_norm else rng.gauss(0, CONFIG["initializer_range"]) for _ in range(count))
        header[name] = {
            "dtype": "F32", "shape": shape, "data_offsets": [began * values.itemsize, len(values) * values.itemsize]
        }  # fmt: skip
    if sys.byteorder == "big":
        values.byteswap()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + values.tobytes())


def _tokenizer() -> dict[str, Any]:
    """256 bytes without merges, then the special tokens: any text survives a round trip."""
    return {
        "version": "1.0",
        "added_tokens": [
            {
                "id": FIRST_SPECIAL_ID + number, "content": content, "single_word": False, "lstrip": False,
                "rstrip": False, "normalized": False, "special": True,
            }
            for number, content in enumerate(SPECIAL_TOKENS)
        ],
        "normalizer": None,
        "pre_tokenizer": _byte_level(use_regex=False),
        "post_processor": None,
        "decoder": _byte_level(use_regex=True),
        "model": {
            "type": "BPE",
            "vocab": {symbol: number for number, symbol in enumerate(sorted(_byte_symbols()))},
            "merges": [],
        },
    }  # fmt: skip


def _byte_level(*, use_regex: bool) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def _byte_symbols() -> list[str]:
    """The printable character that stands for each byte in byte-level tokenizers: itself, or one from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) for byte in printable] + [chr(0x100 + number) for number in range(len(others))]
