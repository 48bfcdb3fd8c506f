"""Makes requests for pinned host memory ordinary ones, which is what a torch without an accelerator has to offer.

SGLang's LoRA layers and backends pin small tensors on every platform. Without an accelerator torch raises instead.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch


def ignore_pin_memory(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @functools.wraps(function)
    def unpinned(*arguments: Any, pin_memory: bool = False, **options: Any) -> torch.Tensor:
        return function(*arguments, **options)

    return unpinned


def install() -> None:
    for name in ("tensor", "zeros", "empty", "arange"):
        setattr(torch, name, ignore_pin_memory(getattr(torch, name)))
    torch.Tensor.pin_memory = lambda tensor, *device: tensor
