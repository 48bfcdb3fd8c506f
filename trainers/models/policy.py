"""The policy: a Hugging Face causal language model that computes log-probabilities of target tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from trainers.models import attention
from trainers.models.families import unsupported_reason
from trainers.models.logprobs import greedy_tokens, token_logprobs
from trainers.models.packed_row import PackedRow

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}  # of computation and published weights


class InvalidModel(Exception):
    """The model directory cannot be trained. The message names the file or tensor and what to do."""


class Policy(nn.Module):
    """A causal language model whose head is applied to the target positions only.

    One forward pass covers body and head: under FSDP2 the embedding, final norm and head belong to the root module and
    are gathered only during the root's forward.
    """

    reduces_every_microbatch = False  # see trainers.distributed.fsdp.set_gradient_sync

    def __init__(self, causal_lm: nn.Module) -> None:
        super().__init__()
        self.causal_lm = causal_lm

    def forward(
        self, row: PackedRow, *, temperature: float = 1.0, greedy: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (logprobs [N], entropy [N]) at temperature; with `greedy`, (greedy tokens [N], targets [N])."""
        body = self.causal_lm.model
        hidden = body(
            input_ids=row.input_ids,
            position_ids=row.position_ids,
            use_cache=False,
            **row.attention_kwargs,
        ).last_hidden_state[0]
        selected = hidden.index_select(0, row.logit_positions)
        weight = self.causal_lm.lm_head.weight
        if greedy:
            return greedy_tokens(selected, weight), row.targets
        return token_logprobs(selected, weight, row.targets, temperature=temperature)

    @property
    def config(self) -> dict[str, Any]:
        """The model's config as in its config.json."""
        return self.causal_lm.config.to_dict()

    @property
    def layers(self) -> nn.ModuleList:
        return self.causal_lm.model.layers


def load_policy(directory: Path, *, dtype: torch.dtype = torch.float32) -> Policy:
    """Load the model in `directory` on the CPU. Missing or misshapen tensors raise `InvalidModel`."""
    from transformers import AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar

    check_supported(directory)
    attention.register()
    disable_progress_bar()
    try:
        causal_lm, report = AutoModelForCausalLM.from_pretrained(
            directory,
            dtype=dtype,
            attn_implementation=attention.NAME,
            output_loading_info=True,
            local_files_only=True,
        )
    except (OSError, SafetensorError, RuntimeError, ValueError, KeyError) as error:
        raise InvalidModel(
            f"model directory {directory} cannot be loaded: {error}. Upload the model again"
        ) from error
    _check_complete(directory, causal_lm, report)
    causal_lm.config.use_cache = False
    return Policy(causal_lm)


def uninitialized_policy(directory: Path, *, dtype: torch.dtype = torch.float32) -> Policy:
    """Build the model in `directory` without its weights, to load weights into or to call with other tensors."""
    from transformers import AutoConfig, AutoModelForCausalLM

    check_supported(directory)
    attention.register()
    config = AutoConfig.from_pretrained(directory, local_files_only=True)
    config.use_cache = False
    with torch.random.fork_rng(devices=[]):  # the unused initial weights must not advance the run's RNG
        causal_lm = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=attention.NAME)
    return Policy(causal_lm).requires_grad_(False)


def weightless_policy(directory: Path, *, dtype: torch.dtype, device: torch.device) -> Policy:
    """Build the model in `directory` with parameters on the meta device, to call with other tensors only.

    It takes no memory. Buffers, which no weights file holds, are on `device`.
    """
    with torch.device("meta"):
        policy = uninitialized_policy(directory, dtype=dtype)
    body = policy.causal_lm.model
    body.rotary_emb = type(body.rotary_emb)(config=policy.causal_lm.config).to(device)
    left = [name for name, buffer in policy.named_buffers() if buffer.is_meta]
    if left:
        raise InvalidModel(f"model directory {directory}: the buffers {left} have no known values")
    return policy


def read_weights(directory: Path, policy: Policy, *, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Read the weights of a weightless policy on the CPU, by parameter name. Files in `dtype` are not copied."""
    names = {name for name, _ in policy.causal_lm.named_parameters()}
    tensors: dict[str, torch.Tensor] = {}
    for file in sorted(directory.glob("*.safetensors")):
        tensors |= {name: one.to(dtype) for name, one in load_file(file).items() if name in names}
    if missing := sorted(names - set(tensors)):
        raise InvalidModel(
            f"model directory {directory}: missing tensors {missing[:5]} ({len(missing)} in total). Upload the model "
            "again"
        )
    return tensors


def check_supported(directory: Path) -> None:
    """Raise `InvalidModel` if the model's family or a feature in its config is not supported."""
    path = directory / "config.json"
    try:
        config = json.loads(path.read_text())
        reason = unsupported_reason(config)
    except (OSError, ValueError, AttributeError) as error:
        raise InvalidModel(
            f"{path} is not a readable model config: {error!r}. Upload the model again"
        ) from error
    if reason is not None:
        raise InvalidModel(f"{path} is not supported: {reason}")


def _check_complete(directory: Path, causal_lm: nn.Module, report: dict[str, object]) -> None:
    tied = bool(getattr(causal_lm.config, "tie_word_embeddings", False))
    missing = sorted(
        str(name)
        for name in _names(report.get("missing_keys"))
        if not (tied and str(name) == "lm_head.weight")
    )
    mismatched = sorted(str(name) for name in _names(report.get("mismatched_keys")))
    if missing or mismatched:
        raise InvalidModel(
            f"model directory {directory}: missing tensors {missing[:5]}, tensors of the wrong shape {mismatched[:5]} "
            f"({len(missing)} and {len(mismatched)} in total). Upload the model again"
        )


def _names(value: object) -> list[object]:
    return list(value) if isinstance(value, list | set | tuple) else []
