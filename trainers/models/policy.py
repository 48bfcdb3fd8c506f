"""A causal language model of the Hugging Face kind as a policy: tokens in, log-probabilities of some of them out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn

from trainers.models import attention
from trainers.models.families import refusal
from trainers.models.logprobs import first_choices, token_logprobs
from trainers.models.packing import PackedRow

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}  # of computing and publishing


class ModelUnusable(Exception):
    """The model directory cannot be trained; the message names the file or tensor and what to do."""


class Policy(nn.Module):
    """The model with its head applied to the wanted positions only.

    One forward covers body and head, because under FSDP2 embedding, final norm and head belong to the root and
    are gathered for the root's own forward only.
    """

    def __init__(self, causal_lm: nn.Module) -> None:
        super().__init__()
        self.causal_lm = causal_lm

    def forward(
        self, row: PackedRow, *, temperature: float = 1.0, greedy: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(logprobs [N], entropy [N]) at temperature; with `greedy`, (first choices [N], targets [N])."""
        body = self.causal_lm.model
        hidden = body(
            input_ids=row.input_ids,
            position_ids=row.position_ids,
            use_cache=False,
            **row.boundaries,
        ).last_hidden_state[0]
        wanted = hidden.index_select(0, row.predict_at)
        weight = self.causal_lm.lm_head.weight
        if greedy:
            return first_choices(wanted, weight), row.targets
        return token_logprobs(wanted, weight, row.targets, temperature=temperature)

    @property
    def config(self) -> dict[str, Any]:
        """The model's config as in its config.json."""
        return self.causal_lm.config.to_dict()

    @property
    def layers(self) -> nn.ModuleList:
        return self.causal_lm.model.layers


def load_policy(directory: Path, *, dtype: torch.dtype = torch.float32) -> Policy:
    """The model in `directory`, on the CPU, complete: a missing or misshapen tensor is `ModelUnusable`."""
    from transformers import AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar

    check_family(directory)
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
        raise ModelUnusable(
            f"model directory {directory} does not load: {error}. Upload the model again"
        ) from error
    _refuse_incomplete(directory, causal_lm, report)
    causal_lm.config.use_cache = False
    return Policy(causal_lm)


def empty_policy(directory: Path, *, dtype: torch.dtype = torch.float32) -> Policy:
    """The architecture in `directory` with uninitialised weights: to be filled, or called with other tensors."""
    from transformers import AutoConfig, AutoModelForCausalLM

    check_family(directory)
    attention.register()
    config = AutoConfig.from_pretrained(directory, local_files_only=True)
    config.use_cache = False
    with torch.random.fork_rng(
        devices=[]
    ):  # weights nobody asked for shall not use up the run's random numbers
        causal_lm = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=attention.NAME)
    return Policy(causal_lm).requires_grad_(False)


def check_family(directory: Path) -> None:
    path = directory / "config.json"
    try:
        config = json.loads(path.read_text())
        reason = refusal(config)
    except (OSError, ValueError, AttributeError) as error:
        raise ModelUnusable(
            f"{path} is not a readable model config: {error!r}. Upload the model again"
        ) from error
    if reason is not None:
        raise ModelUnusable(f"{path} says {reason}")


def _refuse_incomplete(directory: Path, causal_lm: nn.Module, report: dict[str, object]) -> None:
    tied = bool(getattr(causal_lm.config, "tie_word_embeddings", False))
    missing = sorted(
        str(name)
        for name in _names(report.get("missing_keys"))
        if not (tied and str(name) == "lm_head.weight")
    )
    mismatched = sorted(str(name) for name in _names(report.get("mismatched_keys")))
    if missing or mismatched:
        raise ModelUnusable(
            f"model directory {directory}: tensors missing {missing[:5]}, of another shape {mismatched[:5]} "
            f"({len(missing)} and {len(mismatched)} in all). Upload the model again"
        )


def _names(value: object) -> list[object]:
    return list(value) if isinstance(value, list | set | tuple) else []
