"""How the asynchronous client waits, and does what would block. `sync/waiting.py` is its twin, written by hand."""

from __future__ import annotations

import asyncio

sleep = asyncio.sleep
in_thread = asyncio.to_thread
