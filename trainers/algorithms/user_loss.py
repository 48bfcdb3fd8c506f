"""A policy loss from a file of the user: `def loss(tokens, settings, *, option=1.0) -> TokenLoss`.

It gets what the built-in ones get (`trainers.algorithms.losses`). Only runs in pools with `trainer_code` may name one,
because it runs inside the trainer with the trainer's rights. The upload was parsed, never run; here it is imported. A
file that replaces functions of torch or of the trainer, at its import or in its first call, is refused.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

import torch

from oolong.contracts.run_spec import AlgorithmSection
from trainers.algorithms.losses import LossTokens, Objective, TokenLoss
from trainers.algorithms.shared_names import SharedNames, replaced, shared_names

MODULE = "user_loss"


class LossUnusable(Exception):
    """A user's loss cannot be loaded, raises, or returns something else than its signature says."""


def load_user_loss(file: Path, options: Mapping[str, float]) -> Objective:
    """The function `loss` of the file as an objective, with its options bound. What it raises is `LossUnusable`."""
    spec = importlib.util.spec_from_file_location(MODULE, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = shared_names()
    sys.modules[MODULE] = module  # where a dataclass of the file looks up its annotations
    try:
        spec.loader.exec_module(module)
        loss = module.loss
    except Exception as error:
        raise LossUnusable(f"{file.name} cannot be imported: {_where(error, file)}") from error
    _refuse_replaced(file, before)
    asked = False

    def objective(tokens: LossTokens, settings: AlgorithmSection) -> TokenLoss:
        if not tokens.logprobs.numel():
            return TokenLoss(loss=tokens.logprobs)  # a rank without work keeps in step; the file is not asked
        nonlocal asked
        before = None if asked else shared_names()
        try:
            result = loss(tokens, settings, **options)
        except Exception as error:
            raise LossUnusable(f"{file.name} raised {_where(error, file)}") from error
        if before is not None:
            _refuse_replaced(file, before)
            asked = True
        return checked(result, tokens)

    return objective


def _refuse_replaced(file: Path, before: SharedNames) -> None:
    if names := replaced(before):
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        raise LossUnusable(
            f"{file.name} replaced {', '.join(names[:3])}{more}: a loss may not change what the whole trainer uses; "
            "write a function of your own in its place"
        )


def checked(result: object, tokens: LossTokens) -> TokenLoss:
    """The result, if it is what an objective promises: of each field one number per token, the loss with a gradient."""
    if not isinstance(result, TokenLoss):
        raise LossUnusable(f"loss returned {type(result).__name__}; it must return a TokenLoss")
    for field in fields(TokenLoss):
        value = getattr(result, field.name)
        if value is None and field.name != "loss":
            continue
        found = (
            f"shape {tuple(value.shape)}"
            if isinstance(value, torch.Tensor)
            else f"type {type(value).__name__}"
        )
        wanted = f"shape {tuple(tokens.logprobs.shape)}"
        if found != wanted:
            raise LossUnusable(
                f"loss returned a TokenLoss whose {field.name} has {found}; it must be one number per token, {wanted} "
                "as tokens.logprobs: the trainer does the summing and dividing"
            )
    if not result.loss.requires_grad and tokens.logprobs.requires_grad:
        raise LossUnusable("loss returned a TokenLoss without a gradient; it must depend on tokens.logprobs")
    return result


def _where(error: Exception, file: Path) -> str:
    """What was raised, and the last line of the user's own file that led to it."""
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)
    ]
    place = f", line {lines[-1]}" if lines else ""
    return f"{type(error).__name__}: {error}{place}"
