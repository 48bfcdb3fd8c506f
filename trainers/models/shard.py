"""FSDP2: every rank keeps an equal part of each parameter, its gradient and its optimizer state."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from oolong.contracts.run_spec import TrainerSection
from trainers.models.blocks import BlockOptions, prepare_block
from trainers.models.critic import Critic
from trainers.models.policy import DTYPES, Policy

Sharded = TypeVar("Sharded", Policy, Critic)


def shard(
    policy: Sharded,
    mesh: DeviceMesh,
    *,
    compute_dtype: torch.dtype = torch.float32,
    blocks: BlockOptions = BlockOptions(),
    reshard_after_forward: bool = True,
) -> Sharded:
    """Shard in place, decoder layers first, then the root with embedding, norm and head.

    Masters stay float32 and gradients are reduced in float32, whatever the compute type.
    """
    precision = MixedPrecisionPolicy(param_dtype=compute_dtype, reduce_dtype=torch.float32)
    for layer in policy.layers:
        prepare_block(layer, blocks, device_type=mesh.device_type)
        fully_shard(layer, mesh=mesh, mp_policy=precision, reshard_after_forward=reshard_after_forward)
    fully_shard(policy, mesh=mesh, mp_policy=precision)
    return policy


def shard_as_asked(policy: Sharded, mesh: DeviceMesh, section: TrainerSection) -> Sharded:
    return shard(
        policy,
        mesh,
        compute_dtype=DTYPES[section.compute_type],
        blocks=BlockOptions(section.activation_checkpointing, section.compile),
        reshard_after_forward=section.reshard_after_forward,
    )


def sync_gradients(policy: nn.Module, wanted: bool) -> None:
    """Gradients are reduced over the ranks in the backward pass of the last microbatch only."""
    policy.set_requires_gradient_sync(wanted)
    policy.set_is_last_backward(wanted)


def reshard(policy: nn.Module) -> None:
    """Back to sharded parameters. A forward pass without a backward leaves the root's gathered."""
    for module in policy.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def full_tensors(policy: Policy, *, dtype: torch.dtype, keep: bool) -> dict[str, torch.Tensor]:
    """The whole weights by their Hugging Face names, on the CPU; a tied head appears once, as the embedding.

    Collective: every rank calls it. Ranks with keep=False take part and get an empty dict.
    """
    reshard(policy)
    gathered: dict[str, torch.Tensor] = {}
    for name, parameter in policy.causal_lm.named_parameters():  # skips the second name of a tied tensor
        local = parameter.detach()
        whole = local.full_tensor() if isinstance(local, DTensor) else local
        if keep:
            gathered[name] = whole.to(device="cpu", dtype=dtype, copy=True).contiguous()
    return gathered
