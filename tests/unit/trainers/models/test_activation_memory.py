"""The memory formula of activations against what autograd saves for a decoder layer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from oolong.contracts.run_spec.memory import (
    LOGITS_CHUNK_ELEMENTS,
    ModelShape,
    layer_activation_bytes,
    shape_of,
)
from trainers.models.decoder_layers import CheckpointingMode, LayerOptions, apply_layer_options
from trainers.models.logprobs import CHUNK_ELEMENTS
from trainers.models.packed_row import pack_row
from trainers.models.policy import DTYPES, uninitialized_policy

TOKENS = 512
WIDE = {
    "hidden_size": 256,
    "intermediate_size": 704,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 32,
}


def kept_bytes(
    model: Path, folder: Path, *, layers: int, dtype: str, recomputation: CheckpointingMode
) -> tuple[int, ModelShape]:
    """What the forward pass of the body keeps for its backward pass, parameters apart."""
    config = {**json.loads((model / "config.json").read_text()), **WIDE, "num_hidden_layers": layers}
    config.pop("layer_types", None)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    policy = uninitialized_policy(folder, dtype=DTYPES[dtype]).requires_grad_(True)
    for layer in policy.layers:
        apply_layer_options(layer, LayerOptions(recomputation), device_type="cpu")
    row = pack_row([[7] * TOKENS], [[TOKENS - 1]])
    storages: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        hidden = policy.causal_lm.model(
            input_ids=row.input_ids, position_ids=row.position_ids, use_cache=False, **row.attention_kwargs
        ).last_hidden_state
    assert hidden.requires_grad
    for parameter in policy.parameters():
        storages.pop(parameter.untyped_storage().data_ptr(), None)
    shape = shape_of(config)
    assert shape is not None
    return sum(storages.values()), shape


ELEMENT = {"bfloat16": 2, "float32": 4}


def of_a_layer(
    model: Path, folder: Path, dtype: str, recomputation: CheckpointingMode
) -> tuple[float, ModelShape]:
    """Bytes a token that each further layer keeps."""
    one, shape = kept_bytes(model, folder / "one", layers=1, dtype=dtype, recomputation=recomputation)
    three, _ = kept_bytes(model, folder / "three", layers=3, dtype=dtype, recomputation=recomputation)
    return (three - one) / 2 / TOKENS, shape


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_saved_activations_of_a_layer_match_the_formula(dtype: str, tiny_model: Path, tmp_path: Path) -> None:
    kept, shape = of_a_layer(tiny_model, tmp_path, dtype, "none")
    assert kept == pytest.approx(layer_activation_bytes(shape, ELEMENT[dtype]), rel=0.1)


def test_full_checkpointing_saves_only_the_input_of_a_layer(tiny_model: Path, tmp_path: Path) -> None:
    kept, shape = of_a_layer(tiny_model, tmp_path, "bfloat16", "full")
    assert kept == pytest.approx(2 * shape.hidden, rel=0.1)


def test_memory_formula_uses_the_actual_logits_chunk_size() -> None:
    assert CHUNK_ELEMENTS["cuda"] == LOGITS_CHUNK_ELEMENTS
