"""FSDP2: every rank holds an equal shard of each parameter, its gradient and its optimizer state."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from oolong.contracts.run_spec import RunSpec, TrainerSection
from oolong.contracts.run_spec.memory import reduces_every_microbatch
from trainers.distributed.context import DistributedContext
from trainers.models.critic import Critic
from trainers.models.decoder_layers import LayerOptions, apply_layer_options
from trainers.models.lora import ADAPTER_PARAMETERS, adapted_layers, add_adapters
from trainers.models.policy import DTYPES, Policy, load_policy

Model = TypeVar("Model", Policy, Critic)


def shard_model(
    model: Model,
    mesh: DeviceMesh,
    *,
    compute_dtype: torch.dtype = torch.float32,
    layer_options: LayerOptions = LayerOptions(),
    reshard_after_forward: bool = True,
) -> Model:
    """Shard in place: each decoder layer, then the root with embedding, norm and head. Returns the model.

    Weights that are trained stay in float32 and gradients are reduced in float32, whatever the compute dtype.
    """
    precision = MixedPrecisionPolicy(param_dtype=compute_dtype, reduce_dtype=torch.float32)
    for layer in model.layers:
        apply_layer_options(layer, layer_options, device_type=mesh.device_type)
        fully_shard(layer, mesh=mesh, mp_policy=precision, reshard_after_forward=reshard_after_forward)
    fully_shard(model, mesh=mesh, mp_policy=precision)
    trained = sum(one.numel() for one in model.parameters() if one.requires_grad)
    model.reduces_every_microbatch = reduces_every_microbatch(trained, _device_bytes(mesh))
    return model


def _device_bytes(mesh: DeviceMesh) -> int | None:
    if mesh.device_type != "cuda":
        return None
    return int(torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory)


def apply_fsdp(model: Model, mesh: DeviceMesh, section: TrainerSection) -> Model:
    """Shard the model with the options of the RunSpec's trainer section."""
    return shard_model(
        model,
        mesh,
        compute_dtype=DTYPES[section.compute_type],
        layer_options=LayerOptions(section.activation_checkpointing, section.compile),
        reshard_after_forward=section.reshard_after_forward,
    )


def load_sharded_policy(
    model_directory: Path, spec: RunSpec, context: DistributedContext, *, seed: int
) -> Policy:
    """Load and shard the policy that the RunSpec trains: all weights in float32, or adapters on a frozen base."""
    lora = spec.model.lora
    if lora is None:
        policy = load_policy(model_directory)
    else:
        policy = add_adapters(
            load_policy(model_directory, dtype=DTYPES[spec.trainer.compute_type]), lora, seed=seed
        )
    return apply_fsdp(policy, context.mesh, spec.trainer)


def set_gradient_sync(model: Policy | Critic, *, is_last: bool) -> None:
    """Set whether the next backward pass reduces gradients over ranks, given whether its microbatch is the last one.

    Reducing once per minibatch saves communication. A model with `reduces_every_microbatch` saves memory instead.
    """
    enabled = is_last or model.reduces_every_microbatch
    model.set_requires_gradient_sync(enabled)
    model.set_is_last_backward(enabled)


def reshard(model: nn.Module) -> None:
    """Free gathered parameters. Needed after a forward pass without backward, which leaves the root's gathered."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def gather_full_tensors(
    policy: Policy, *, dtype: torch.dtype, keep: bool, into: dict[str, torch.Tensor] | None = None
) -> dict[str, torch.Tensor]:
    """Gather the full weights on the CPU, by Hugging Face name; a tied head appears once, as the embedding.

    Adapters are merged into the weights of their layers. Other shards are cast to `dtype` before they are gathered, so
    bfloat16 halves what the ranks exchange. `into` are the tensors of an earlier call, which are overwritten and
    returned: the first write to fresh host memory costs several times the copy. On a GPU the tensors are pinned.

    Collective. Ranks with keep=False participate and return an empty dict.
    """
    reshard(policy)
    gathered = {} if into is None else into
    adapted = adapted_layers(policy.causal_lm)
    for name, parameter in policy.causal_lm.named_parameters():  # yields a tied tensor once
        if name.endswith(ADAPTER_PARAMETERS):
            continue
        if name in adapted:
            whole = adapted[name].merge(_full_tensor(parameter.detach(), parameter.dtype))
        else:
            whole = _full_tensor(parameter.detach(), dtype)
        if not keep:
            continue
        if name not in gathered:
            gathered[name] = torch.empty(whole.shape, dtype=dtype, pin_memory=whole.is_cuda)
        gathered[name].copy_(whole, non_blocking=True)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return gathered


def gather_adapters(policy: Policy, *, dtype: torch.dtype, keep: bool = True) -> dict[str, torch.Tensor]:
    """Copy all adapters to the CPU in `dtype`, by parameter name.

    Collective. Ranks with keep=False participate and return an empty dict.
    """
    reshard(policy)
    gathered = {}
    for name, parameter in policy.causal_lm.named_parameters():
        if name.endswith(ADAPTER_PARAMETERS):
            whole = _full_tensor(parameter.detach(), dtype)
            if keep:
                gathered[name] = whole.to("cpu", dtype, copy=True)
    return gathered


def _full_tensor(parameter: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The whole parameter; in `dtype` if it had to be gathered."""
    if not isinstance(parameter, DTensor):
        return parameter
    if parameter.device_mesh.size() == 1:
        return parameter.to_local()
    return parameter.to(dtype).full_tensor()
