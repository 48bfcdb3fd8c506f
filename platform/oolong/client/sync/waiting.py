"""How the synchronous client waits; nothing it does needs a thread. `aio/waiting.py` is its twin."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    return work(*args, **kwargs)
