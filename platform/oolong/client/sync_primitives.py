"""What the synchronous client waits with. `async_primitives` has the same names for the asynchronous one."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import httpx

P = ParamSpec("P")
T = TypeVar("T")

PendingResponse = httpx.Response
sleep = time.sleep


def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    return work(*args, **kwargs)
