"""Detects whether a user's loss has monkey-patched functions of torch, the trainer or the standard library.

A user's loss runs with the trainer's privileges, so this is no protection against malicious code. It finds accidental
patches that would make the run train something else than its RunSpec says.
"""

from __future__ import annotations

import builtins
import math
import sys
from collections.abc import Iterator, Mapping

import torch

_OWNERS: tuple[tuple[str, object], ...] = (
    ("builtins", builtins),
    ("math", math),
    ("torch", torch),
    ("torch.Tensor", torch.Tensor),
    ("torch.nn.functional", torch.nn.functional),
    ("torch.nn.Module", torch.nn.Module),
    ("torch.linalg", torch.linalg),
    ("torch.special", torch.special),
    ("torch.autograd", torch.autograd),
    ("torch.autograd.Function", torch.autograd.Function),
    ("torch.distributed", torch.distributed),
)
_PACKAGES = ("trainers", "oolong")

CallableSnapshot = Mapping[str, object]  # dotted name -> function or class


def snapshot_callables() -> CallableSnapshot:
    """Return the present functions and classes of torch, the trainer and built-in modules by dotted name."""
    found: dict[str, object] = {}
    for owner, value in _owners():
        for name, target in vars(value).items():
            if callable(target):
                found[f"{owner}.{name}"] = target
    return found


def find_replaced(before: CallableSnapshot) -> list[str]:
    """Return the names that were rebound or deleted since the snapshot. New names are fine: torch imports lazily."""
    now = snapshot_callables()
    return sorted(name for name, target in before.items() if now.get(name) is not target)


def _owners() -> Iterator[tuple[str, object]]:
    yield from _OWNERS
    for name, module in list(sys.modules.items()):
        if module is not None and name.partition(".")[0] in _PACKAGES:
            yield name, module
            for inner, value in list(vars(module).items()):
                if isinstance(value, type) and value.__module__ == name:
                    yield f"{name}.{inner}", value
