"""Compares the tensors in the files of a model with its config."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from oolong.contracts.model_report import Fault
from oolong.model_validation import families
from oolong.model_validation.errors import file_fault, tensor_fault
from oolong.model_validation.families import ConfigError, Shape, read_int
from oolong.model_validation.safetensors_header import Tensor

WEIGHTS = frozenset({"F64", "F32", "F16", "BF16"})
IGNORED = "rotary_emb.inv_freq"  # old exports wrote these frequencies out; every loader computes them
EMBEDDINGS = ("embed_tokens", "wte", "word_embeddings", "embed_in", "tok_embeddings")
LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks|block)\.(\d{1,6})\.")
# What the libraries call the same number, in the order in which they are looked for.
HIDDEN, LAYER_COUNT = (
    ("hidden_size", "n_embd", "d_model"),
    ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
)


def find_faults(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> list[Fault]:
    """Check every tensor of a known family; of others, the embedding and the number of layers."""
    try:
        if config.get("model_type") in families.LAYERS:
            return list(_exact(config, tensors))
        return list(_generic(config, tensors))
    except ConfigError as fault:
        return [file_fault("config.json", "bad_config", str(fault))]


def _exact(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Iterator[Fault]:
    sizes = families.sizes_of(config)
    wanted = families.required_tensors(config, sizes)
    known = wanted | families.optional_tensors(sizes)
    for name, shape in wanted.items():
        if name not in tensors:
            yield tensor_fault(name, "missing_tensor", f"{name} of shape {_shown(shape)} is in no file")
    for name, tensor in tensors.items():
        if name in known:
            yield from _shape_fault(tensor, known[name])
            yield from _dtype_fault(tensor)
        elif not name.endswith(IGNORED):
            family = config["model_type"]
            message = f"{name} of shape {_shown(tensor.shape)} is no tensor of a {family} with this config"
            yield tensor_fault(name, "extra_tensor", message)


def _generic(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Iterator[Fault]:
    text = config.get("text_config")
    config = text if isinstance(text, dict) else config
    hidden = _first(config, HIDDEN)
    embedding = next((one for name, one in tensors.items() if _is_embedding(name)), None)
    if embedding is None:
        names = ", ".join(f"….{name}.weight" for name in EMBEDDINGS)
        yield tensor_fault("embedding", "missing_tensor", f"no file has a token embedding: {names}")
    else:
        yield from _shape_fault(embedding, (read_int(config, "vocab_size"), hidden))
        yield from _dtype_fault(embedding)
    layers = _first(config, LAYER_COUNT, maximum=families.MAX_LAYERS)
    found = {int(match[1]) for name in tensors if (match := LAYER.search(name))}
    if missing := sorted(set(range(layers)) - found):
        message = f"the config has {layers} layers, and no file has a tensor of layer {missing[0]}"
        yield tensor_fault(f"layers.{missing[0]}", "missing_tensor", message)
    drafting = read_int(config, "num_nextn_predict_layers") if config.get("num_nextn_predict_layers") else 0
    if extra := sorted(number for number in found if number >= layers + drafting):
        message = f"the config has {layers} layers, and the files have tensors of layer {extra[0]}"
        yield tensor_fault(f"layers.{extra[0]}", "extra_tensor", message)


def _first(config: Mapping[str, Any], names: tuple[str, ...], *, maximum: int = families.MAX_SIZE) -> int:
    name = next((name for name in names if config.get(name) is not None), names[0])
    return read_int(config, name, maximum=maximum)


def _is_embedding(name: str) -> bool:
    *_, layer, last = ("", *name.split("."))
    return last == "weight" and layer in EMBEDDINGS


def _shape_fault(tensor: Tensor, wanted: Shape) -> Iterator[Fault]:
    if tensor.shape != wanted:
        message = f"{tensor.name} has shape {_shown(tensor.shape)}, by config.json it has {_shown(wanted)}"
        yield tensor_fault(tensor.name, "wrong_shape", message)


def _dtype_fault(tensor: Tensor) -> Iterator[Fault]:
    if tensor.dtype not in WEIGHTS:
        message = (
            f"{tensor.name} is {tensor.dtype}; weights are BF16, F16, F32 or F64: take the model unquantised"
        )
        yield tensor_fault(tensor.name, "wrong_dtype", message)


def _shown(shape: Shape) -> str:
    return f"[{', '.join(map(str, shape))}]"
