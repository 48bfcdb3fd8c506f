"""Sweeps, and the table of their trials."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oolong.client.endpoints import call
from oolong.client.endpoints.call import Call
from oolong.client.models import Page, Sweep, Trial


def page() -> Call[Page[Sweep]]:
    return call.page("sweeps", Sweep)


def create(
    name: str, spec: Mapping[str, Any], plan: Mapping[str, Any], *, max_parallel: int = 1
) -> Call[Sweep]:
    body = {"name": name, "spec": dict(spec), "plan": dict(plan), "max_parallel": max_parallel}
    return call.post("sweeps", Sweep, body=body)


def get(sweep_id: str) -> Call[Sweep]:
    return call.get("sweeps/{}", Sweep, sweep_id)


def trials(sweep_id: str) -> Call[Page[Trial]]:
    return call.page("sweeps/{}/trials", Trial, sweep_id)


def pause(sweep_id: str) -> Call[Sweep]:
    return call.post("sweeps/{}/pause", Sweep, sweep_id)


def resume(sweep_id: str) -> Call[Sweep]:
    return call.post("sweeps/{}/resume", Sweep, sweep_id)


def cancel(sweep_id: str) -> Call[Sweep]:
    return call.post("sweeps/{}/cancel", Sweep, sweep_id)
