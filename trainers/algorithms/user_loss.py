"""A policy loss from a user's file: `def loss(inputs, settings, *, option=1.0) -> LossOutputs`.

It has the interface of the built-in losses (`trainers.algorithms.losses`). It runs in the trainer, with the trainer's
privileges, so only runs in pools with `trainer_code` may use one. The control plane parses the upload without running
it; the trainer imports it. A file that replaces functions of torch or of the trainer, when it is imported or in its
first call, is rejected.
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
from trainers.algorithms.losses import LossInputs, LossOutputs, Objective
from trainers.algorithms.monkeypatch_guard import CallableSnapshot, find_replaced, snapshot_callables

MODULE = "user_loss"


class InvalidLoss(Exception):
    """The user's loss cannot be imported, raises, or returns something else than LossOutputs of the right shapes."""


def load_user_loss(file: Path, options: Mapping[str, float]) -> Objective:
    """Return the file's function `loss` with its options bound. Its exceptions are raised as `InvalidLoss`."""
    spec = importlib.util.spec_from_file_location(MODULE, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = snapshot_callables()
    sys.modules[MODULE] = module  # dataclasses in the file look up their annotations here
    try:
        spec.loader.exec_module(module)
        loss = module.loss
    except Exception as error:
        raise InvalidLoss(f"{file.name} cannot be imported: {_describe(error, file)}") from error
    _reject_replaced(file, before)
    called = False

    def objective(inputs: LossInputs, settings: AlgorithmSection) -> LossOutputs:
        if not inputs.logprobs.numel():
            return LossOutputs(
                loss=inputs.logprobs
            )  # a dummy microbatch, which the user's code need not handle
        nonlocal called
        before = None if called else snapshot_callables()
        try:
            outputs = loss(inputs, settings, **options)
        except Exception as error:
            raise InvalidLoss(f"{file.name} raised {_describe(error, file)}") from error
        if before is not None:
            _reject_replaced(file, before)
            called = True
        return validate_outputs(outputs, inputs)

    return objective


def _reject_replaced(file: Path, before: CallableSnapshot) -> None:
    if names := find_replaced(before):
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        raise InvalidLoss(
            f"{file.name} replaced {', '.join(names[:3])}{more}: a loss must not modify what the trainer "
            "uses; define your own function instead"
        )


def validate_outputs(outputs: object, inputs: LossInputs) -> LossOutputs:
    """Check that each field has one number per token and that the loss has a gradient; return the outputs."""
    if not isinstance(outputs, LossOutputs):
        raise InvalidLoss(f"loss returned {type(outputs).__name__}; it must return LossOutputs")
    for field in fields(LossOutputs):
        value = getattr(outputs, field.name)
        if value is None and field.name != "loss":
            continue
        found = (
            f"shape {tuple(value.shape)}"
            if isinstance(value, torch.Tensor)
            else f"type {type(value).__name__}"
        )
        expected = f"shape {tuple(inputs.logprobs.shape)}"
        if found != expected:
            raise InvalidLoss(
                f"loss returned LossOutputs whose {field.name} has {found}; it must have one number per "
                f"token, {expected} like inputs.logprobs: the trainer sums and divides"
            )
    if not outputs.loss.requires_grad and inputs.logprobs.requires_grad:
        raise InvalidLoss(
            "loss returned LossOutputs without a gradient; its loss must depend on inputs.logprobs"
        )
    return outputs


def _describe(error: Exception, file: Path) -> str:
    """The exception and the innermost line of the user's file in its traceback."""
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)
    ]
    line = f", line {lines[-1]}" if lines else ""
    return f"{type(error).__name__}: {error}{line}"
