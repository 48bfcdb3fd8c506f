"""Permits of the engine: who holds one, and how many are free for new groups."""

from __future__ import annotations

import asyncio


class Permits:
    def __init__(self, total: int) -> None:
        self._total = total
        self._held = 0
        self._room = asyncio.Event()

    @property
    def free(self) -> int:
        return self._total - self._held

    @property
    def held(self) -> int:
        return self._held

    def resize(self, total: int) -> None:
        """Those who hold a place keep it; a smaller number takes effect as they leave."""
        self._total = total
        self._room.set()

    async def wait_for_room(self) -> None:
        """Until a place was given up."""
        self._room.clear()
        await self._room.wait()

    def change(self, by: int) -> None:
        self._held += by
        if by < 0:
            self._room.set()


class Permit:
    """One member's: held from its claim until its first turn is sampled, then while a further turn is.

    A member that comes back with another turn does not wait for a free place: it holds its group up, and the engine
    queues what is too many.
    """

    def __init__(self, places: Permits) -> None:
        self._places = places
        self._held = False

    def take(self) -> None:
        if not self._held:
            self._held = True
            self._places.change(1)

    def leave(self) -> None:
        if self._held:
            self._held = False
            self._places.change(-1)
