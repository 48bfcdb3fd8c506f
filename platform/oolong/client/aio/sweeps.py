"""Sweeps, as the client offers them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from oolong.client import models
from oolong.client.aio.connection import AsyncResource
from oolong.client.request_spec import get, page, post


class AsyncSweeps(AsyncResource):
    def list(self) -> AsyncIterator[models.Sweep]:
        return self._pages(page("sweeps", models.Sweep))

    async def create(
        self, name: str, spec: Mapping[str, Any], plan: Mapping[str, Any], *, max_parallel: int = 1
    ) -> models.Sweep:
        """Runs of one spec with fields varied: {"parameters": [{"pointer": "/staleness/max", "values": [0, 4]}]}"""
        body = {"name": name, "spec": dict(spec), "plan": dict(plan), "max_parallel": max_parallel}
        return await self._send(post("sweeps", models.Sweep, body=body))

    async def get(self, sweep_id: str) -> models.Sweep:
        return await self._send(get("sweeps/{}", models.Sweep, sweep_id))

    def trials(self, sweep_id: str) -> AsyncIterator[models.Trial]:
        """Its points, with their runs and results."""
        return self._pages(page("sweeps/{}/trials", models.Trial, sweep_id))

    async def pause(self, sweep_id: str) -> models.Sweep:
        return await self._send(post("sweeps/{}/pause", models.Sweep, sweep_id))

    async def resume(self, sweep_id: str) -> models.Sweep:
        return await self._send(post("sweeps/{}/resume", models.Sweep, sweep_id))

    async def cancel(self, sweep_id: str) -> models.Sweep:
        """No more runs, and those that it has end without a last checkpoint."""
        return await self._send(post("sweeps/{}/cancel", models.Sweep, sweep_id))
