"""What the asynchronous client waits with. `sync_primitives` has the same names for the synchronous one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import httpx

PendingResponse = Awaitable[httpx.Response]
sleep = asyncio.sleep
in_thread = asyncio.to_thread
