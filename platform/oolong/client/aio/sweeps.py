"""Sweeps, as the client offers them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from oolong.client import endpoints, models
from oolong.client.aio.connection import AsyncConnection


class AsyncSweeps:
    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    def list(self) -> AsyncIterator[models.Sweep]:
        return self._connection.pages(endpoints.sweeps.page())

    async def create(
        self, name: str, spec: Mapping[str, Any], plan: Mapping[str, Any], *, max_parallel: int = 1
    ) -> models.Sweep:
        """Runs of one spec with fields varied: {"parameters": [{"pointer": "/staleness/max", "values": [0, 4]}]}"""
        return await self._connection.send(
            endpoints.sweeps.create(name, spec, plan, max_parallel=max_parallel)
        )

    async def get(self, sweep_id: str) -> models.Sweep:
        return await self._connection.send(endpoints.sweeps.get(sweep_id))

    def trials(self, sweep_id: str) -> AsyncIterator[models.Trial]:
        """Its points, with their runs and results."""
        return self._connection.pages(endpoints.sweeps.trials(sweep_id))

    async def pause(self, sweep_id: str) -> models.Sweep:
        return await self._connection.send(endpoints.sweeps.pause(sweep_id))

    async def resume(self, sweep_id: str) -> models.Sweep:
        return await self._connection.send(endpoints.sweeps.resume(sweep_id))

    async def cancel(self, sweep_id: str) -> models.Sweep:
        """No more runs, and those that it has end without a last checkpoint."""
        return await self._connection.send(endpoints.sweeps.cancel(sweep_id))
