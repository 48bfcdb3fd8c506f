"""What a user's loss shares with the trainer, and whether it has replaced some of it.

A loss runs with the trainer's rights, so this is no defense against one that means harm: it finds the patched function
that would train something else than the spec says, and names it.
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
_OURS = ("trainers", "oolong")

SharedNames = Mapping[str, object]  # dotted name -> the function or class that it means


def shared_names() -> SharedNames:
    """What torch, the trainer and the built-in modules call by name, as it is now."""
    found: dict[str, object] = {}
    for owner, value in _owners():
        for name, meant in vars(value).items():
            if callable(meant):
                found[f"{owner}.{name}"] = meant
    return found


def replaced(before: SharedNames) -> list[str]:
    """The names that mean something else now, or nothing any more; new ones are fine, torch imports parts late."""
    now = shared_names()
    return sorted(name for name, meant in before.items() if now.get(name) is not meant)


def _owners() -> Iterator[tuple[str, object]]:
    yield from _OWNERS
    for name, module in list(sys.modules.items()):
        if module is not None and name.partition(".")[0] in _OURS:
            yield name, module
            for inner, value in list(vars(module).items()):
                if isinstance(value, type) and value.__module__ == name:
                    yield f"{name}.{inner}", value
