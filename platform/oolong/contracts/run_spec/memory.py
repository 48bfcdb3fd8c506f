"""What a slot has to hold, in bytes. Fragmentation and the CUDA context are left out: a floor, not a promise.

Read from the code as it is (docs/concepts/microbatches.md, "Memory of a rank"); the activations of a layer are checked
against what autograd keeps (tests/unit/trainers/models/test_activation_memory.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from oolong.contracts.run_spec.inputs import LoraSection
from oolong.contracts.run_spec.spec import RunSpec

LOGITS_CHUNK_ELEMENTS = 1 << 27  # of trainers.models.logprobs on a GPU
CHUNK_COPIES = 3.5  # logits, their softmax, its slope in float32, and one in 16 bits


@dataclass(frozen=True)
class ModelShape:
    """What activations depend on, from a Hugging Face config.json."""

    layers: int
    hidden: int
    intermediate: int
    query: int  # width of all query heads
    key_value: int  # width of the key heads, and of the value heads
    vocabulary: int
    tied: bool  # one tensor is embedding and head
    query_key_norm: bool  # Qwen3 normalizes queries and keys


@dataclass(frozen=True)
class TrainerMemory:
    """Of the first rank, which holds most."""

    state: int  # master weights, gradients, moments; of critic and reference too; with LoRA, of base and adapters
    gathered: int  # the layers that FSDP2 has whole at a time, in the compute type
    probes: int  # the published weights that engines are compared with
    activations: int  # 0 where the model's shape is not known
    head: int  # the logits of a chunk, and the head's gradient

    @property
    def total(self) -> int:
        return self.state + self.gathered + self.probes + self.activations + self.head


def reduces_every_microbatch(in_training: int, device_bytes: int | None) -> bool:
    """Whether ranks reduce gradients in every microbatch, and not only in the last one of a minibatch.

    Until they do, FSDP2 keeps float32 gradients whole on every rank. That saves communication, and is given up where
    these gradients would take more than an eighth of a GPU's memory. `device_bytes` is None on a CPU.
    """
    return device_bytes is not None and 4 * in_training > device_bytes // 8


def trainer_memory(
    spec: RunSpec, parameters: int, shape: ModelShape | None = None, *, device_bytes: int | None = None
) -> TrainerMemory:
    element = _element(spec)
    moments = 0 if spec.trainer.offload_optimizer else 8
    # Sharded: float32 masters, gradients and two moments. Whole on every rank: the gradients that FSDP2 adds up in
    # float32 until they are reduced (trainers.distributed.fsdp.set_gradient_sync).
    lora = spec.model.lora
    in_training = parameters if lora is None else adapter_parameters(lora, shape)
    trained = in_training * (4 + 4 + moments) // spec.trainer.num_ranks
    if not reduces_every_microbatch(in_training, device_bytes):
        trained += in_training * 4
    state = trained
    if lora is not None:  # the frozen base, which is the reference too
        state += parameters * element // spec.trainer.num_ranks
    if spec.algorithm.critic is not None:
        state += trained
    if spec.algorithm.kl is not None and lora is None:
        state += parameters * 4 // spec.trainer.num_ranks
    probes = element * parameters if spec.kind == "rl" else 0
    if shape is None:
        return TrainerMemory(state, element * parameters // 8, probes, activations=0, head=0)
    root = shape.vocabulary * shape.hidden * (1 if shape.tied else 2)
    layer = max(0, parameters - root) // shape.layers
    # A layer and the next one, which is prefetched; embedding, norm and head stay whole through the forward pass.
    gathered = root + 2 * layer if spec.trainer.reshard_after_forward else parameters
    tokens = row_tokens(spec)
    chunk = min(LOGITS_CHUNK_ELEMENTS, tokens * shape.vocabulary)
    return TrainerMemory(
        state=state,
        gathered=element * gathered,
        probes=probes,
        activations=tokens * activation_bytes_per_token(spec, shape),
        head=int(CHUNK_COPIES * chunk) * 4 + (shape.vocabulary * shape.hidden * 4 if lora is None else 0),
    )


def adapter_parameters(lora: LoraSection, shape: ModelShape | None) -> int:
    """Of the adapters of all layers; 0 where the model's shape is not known."""
    if shape is None:
        return 0
    widths = {
        "q_proj": (shape.hidden, shape.query),
        "k_proj": (shape.hidden, shape.key_value),
        "v_proj": (shape.hidden, shape.key_value),
        "o_proj": (shape.query, shape.hidden),
        "gate_proj": (shape.hidden, shape.intermediate),
        "up_proj": (shape.hidden, shape.intermediate),
        "down_proj": (shape.intermediate, shape.hidden),
    }
    return shape.layers * lora.rank * sum(sum(widths[name]) for name in lora.targets)


def row_tokens(spec: RunSpec) -> int:
    """Tokens of the largest microbatch: its budget, or one trajectory that is longer."""
    if spec.kind != "rl":
        return spec.trainer.microbatch_tokens
    return max(spec.trainer.microbatch_tokens, longest_trajectory(spec))


def longest_trajectory(spec: RunSpec) -> int:
    """Prompt and completion of one turn, or of as many as the workflow allows, where it names a bound."""
    completion = spec.workflow.max_trajectory_tokens or spec.rollout.max_new_tokens
    return spec.rollout.max_prompt_tokens + completion


def activation_bytes_per_token(spec: RunSpec, shape: ModelShape) -> int:
    """What the forward pass of all layers keeps for the backward pass, and the layer that is worked on."""
    element = _element(spec)
    kept = {
        "none": layer_activation_bytes(shape, element),
        # The layer's input, and the results of matrix products and attention: q, k, v, attended, o, gate, up, down.
        "selective": element
        * (3 * shape.hidden + 2 * shape.query + 2 * shape.key_value + 2 * shape.intermediate),
        "full": element * shape.hidden,  # the layer's input
    }[spec.trainer.activation_checkpointing]
    recomputed = (
        0 if spec.trainer.activation_checkpointing == "none" else layer_activation_bytes(shape, element)
    )
    ends = element * 3 * shape.hidden + 4 * shape.hidden  # embeddings, final norm, hidden states of the head
    gradients = element * (2 * shape.hidden + 2 * shape.intermediate)  # of the layer that is worked on
    return shape.layers * kept + recomputed + ends + gradients


def layer_activation_bytes(shape: ModelShape, element: int) -> int:
    """Of one decoder layer and token, with attention that keeps no matrix of scores.

    Each of two norms keeps its input in float32 and, in the compute type, the normalized and the scaled values, of
    which the latter are the next product's input. Attention keeps q, k, v and its result, a gated MLP the gate, its
    SiLU, the other branch and their product.
    """
    norms = 2 * (4 + 2 * element) * shape.hidden
    attention = element * (2 * shape.query + 2 * shape.key_value)
    mlp = element * 4 * shape.intermediate
    if shape.query_key_norm:
        norms += (4 + element) * (shape.query + shape.key_value)
    return norms + attention + mlp


def engine_bytes(spec: RunSpec, parameters: int, kv_bytes_per_token: int) -> int:
    """One engine: a whole copy of the weights, and the cache that it is configured to have."""
    return parameters * _element(spec) + kv_bytes_per_token * spec.rollout.engine_max_total_tokens


def kv_bytes_per_token(config: dict[str, Any]) -> int | None:
    """Of a Hugging Face config.json: keys and values of every layer in 2-byte numbers; None when it does not say."""
    layers, heads = config.get("num_hidden_layers"), config.get("num_attention_heads")
    hidden = config.get("hidden_size")
    if not (isinstance(layers, int) and isinstance(heads, int) and isinstance(hidden, int) and heads > 0):
        return None
    kv_heads = config.get("num_key_value_heads") or heads
    head = config.get("head_dim") or hidden // heads
    if not (isinstance(kv_heads, int) and isinstance(head, int)):
        return None
    return 2 * layers * kv_heads * head * 2


def shape_of(config: dict[str, Any]) -> ModelShape | None:
    """Of a Hugging Face config.json; None when it does not say."""
    names = ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "vocab_size")
    values = [config.get(name) for name in names]
    if not all(isinstance(value, int) and value > 0 for value in values):
        return None
    layers, hidden, intermediate, heads, vocabulary = (int(value or 0) for value in values)
    head = config.get("head_dim") or hidden // heads
    key_value_heads = config.get("num_key_value_heads") or heads
    if not (isinstance(head, int) and isinstance(key_value_heads, int)):
        return None
    return ModelShape(
        layers=layers,
        hidden=hidden,
        intermediate=intermediate,
        query=heads * head,
        key_value=key_value_heads * head,
        vocabulary=vocabulary,
        tied=bool(config.get("tie_word_embeddings", False)),
        query_key_norm=config.get("model_type") == "qwen3",
    )


def _element(spec: RunSpec) -> int:
    return 2 if spec.trainer.compute_type == "bfloat16" else 4
