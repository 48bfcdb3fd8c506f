"""Names and shapes of the tensors that a config implies, as transformers and SGLang load them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Shape = tuple[int, ...]
MAX_LAYERS = 2_000
MAX_SIZE = 10_000_000


class ConfigError(ValueError):
    """A value in config.json from which no shape can be derived."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of a decoder with grouped-query attention and a gated MLP."""

    vocabulary: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    tied: bool  # the head is the embedding


def sizes_of(config: Mapping[str, Any]) -> Sizes:
    hidden, heads = read_int(config, "hidden_size"), read_int(config, "num_attention_heads")
    kv_heads = read_int(config, "num_key_value_heads", default=heads)
    if heads % kv_heads:
        raise ConfigError(
            f"num_attention_heads={heads} is no multiple of num_key_value_heads={kv_heads}: no group of heads is whole"
        )
    if config.get("head_dim") is None and config.get("model_type") != "qwen3" and hidden % heads:
        raise ConfigError(
            f"hidden_size={hidden} is no multiple of num_attention_heads={heads}, and head_dim is missing"
        )
    head_dim = 128 if config.get("model_type") == "qwen3" else max(1, hidden // heads)
    return Sizes(
        vocabulary=read_int(config, "vocab_size"), hidden=hidden, intermediate=read_int(config, "intermediate_size"),
        layers=read_int(config, "num_hidden_layers", maximum=MAX_LAYERS), heads=heads, kv_heads=kv_heads,
        head_dim=read_int(config, "head_dim", default=head_dim), tied=config.get("tie_word_embeddings") is True,
    )  # fmt: skip


def read_int(
    config: Mapping[str, Any], name: str, *, default: int | None = None, maximum: int = MAX_SIZE
) -> int:
    value = config.get(name)
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= maximum:
        said = "is missing" if value is None else f"is {str(value)[:60]!r}"
        raise ConfigError(f"config.json: {name} {said}; a whole number from 1 to {maximum}")
    return value


Tensors = Iterator[tuple[str, Shape]]


def _common(sizes: Sizes) -> Tensors:
    """Of one layer, by the name inside it."""
    queries, keys = sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
    yield "input_layernorm.weight", (sizes.hidden,)
    yield "post_attention_layernorm.weight", (sizes.hidden,)
    yield "self_attn.q_proj.weight", (queries, sizes.hidden)
    yield "self_attn.k_proj.weight", (keys, sizes.hidden)
    yield "self_attn.v_proj.weight", (keys, sizes.hidden)
    yield "self_attn.o_proj.weight", (sizes.hidden, queries)
    yield "mlp.gate_proj.weight", (sizes.intermediate, sizes.hidden)
    yield "mlp.up_proj.weight", (sizes.intermediate, sizes.hidden)
    yield "mlp.down_proj.weight", (sizes.hidden, sizes.intermediate)


def _attention_biases(sizes: Sizes, *, output: bool) -> Tensors:
    yield "self_attn.q_proj.bias", (sizes.heads * sizes.head_dim,)
    yield "self_attn.k_proj.bias", (sizes.kv_heads * sizes.head_dim,)
    yield "self_attn.v_proj.bias", (sizes.kv_heads * sizes.head_dim,)
    if output:
        yield "self_attn.o_proj.bias", (sizes.hidden,)


def _qwen2(config: Mapping[str, Any], sizes: Sizes) -> Tensors:
    yield from _common(sizes)
    yield from _attention_biases(sizes, output=False)


def _qwen3(config: Mapping[str, Any], sizes: Sizes) -> Tensors:
    yield from _common(sizes)
    yield "self_attn.q_norm.weight", (sizes.head_dim,)
    yield "self_attn.k_norm.weight", (sizes.head_dim,)
    if config.get("attention_bias") is True:
        yield from _attention_biases(sizes, output=True)


def _llama(config: Mapping[str, Any], sizes: Sizes) -> Tensors:
    yield from _common(sizes)
    if config.get("attention_bias") is True:
        yield from _attention_biases(sizes, output=True)
    if config.get("mlp_bias") is True:
        yield "mlp.gate_proj.bias", (sizes.intermediate,)
        yield "mlp.up_proj.bias", (sizes.intermediate,)
        yield "mlp.down_proj.bias", (sizes.hidden,)


# Their tensors are known one by one. To add a family: its layer, and a line here.
LAYERS: dict[str, Callable[[Mapping[str, Any], Sizes], Tensors]] = {
    "qwen2": _qwen2, "qwen3": _qwen3, "llama": _llama,
}  # fmt: skip


def required_tensors(config: Mapping[str, Any], sizes: Sizes) -> dict[str, Shape]:
    """Every tensor that a model of a known family must have. Raises KeyError for another family."""
    layer = LAYERS[str(config["model_type"])]
    tensors: dict[str, Shape] = {
        "model.embed_tokens.weight": (sizes.vocabulary, sizes.hidden),
        "model.norm.weight": (sizes.hidden,),
    }
    if not sizes.tied:
        tensors["lm_head.weight"] = (sizes.vocabulary, sizes.hidden)
    for number in range(sizes.layers):
        tensors |= {f"model.layers.{number}.{name}": shape for name, shape in layer(config, sizes)}
    return tensors


def optional_tensors(sizes: Sizes) -> dict[str, Shape]:
    """What may be there besides: the copy of a tied head, which some exports write out."""
    return {"lm_head.weight": (sizes.vocabulary, sizes.hidden)} if sizes.tied else {}
