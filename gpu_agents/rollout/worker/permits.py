"""Permits for rollouts in the engine: how many are held, and how many are free for new groups."""

from __future__ import annotations

import asyncio


class Permits:
    def __init__(self, total: int) -> None:
        self._total = total
        self._held = 0
        self._changed = asyncio.Event()

    @property
    def free(self) -> int:
        return self._total - self._held

    @property
    def held(self) -> int:
        return self._held

    def resize(self, total: int) -> None:
        """Change the total. Held permits stay valid: a smaller total takes effect as they are released."""
        self._total = total
        self._changed.set()

    async def wait_for_change(self) -> None:
        """Wait until a permit is released or the total changes."""
        self._changed.clear()
        await self._changed.wait()

    def adjust(self, by: int) -> None:
        self._held += by
        if by < 0:
            self._changed.set()


class Permit:
    """One rollout's permit: held from the claim until its first turn is sampled, then while it samples a later turn.

    A rollout that starts a later turn does not wait for a free permit, because its group waits for it. The engine
    queues the excess.
    """

    def __init__(self, permits: Permits) -> None:
        self._permits = permits
        self._held = False

    def acquire(self) -> None:
        if not self._held:
            self._held = True
            self._permits.adjust(1)

    def release(self) -> None:
        if self._held:
            self._held = False
            self._permits.adjust(-1)
