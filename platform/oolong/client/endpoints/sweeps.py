"""Sweeps, and the table of their trials."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oolong.client.endpoints import request_spec
from oolong.client.endpoints.request_spec import RequestSpec
from oolong.client.models import Page, Sweep, Trial


def page() -> RequestSpec[Page[Sweep]]:
    return request_spec.page("sweeps", Sweep)


def create(
    name: str, spec: Mapping[str, Any], plan: Mapping[str, Any], *, max_parallel: int = 1
) -> RequestSpec[Sweep]:
    body = {"name": name, "spec": dict(spec), "plan": dict(plan), "max_parallel": max_parallel}
    return request_spec.post("sweeps", Sweep, body=body)


def get(sweep_id: str) -> RequestSpec[Sweep]:
    return request_spec.get("sweeps/{}", Sweep, sweep_id)


def trials(sweep_id: str) -> RequestSpec[Page[Trial]]:
    return request_spec.page("sweeps/{}/trials", Trial, sweep_id)


def pause(sweep_id: str) -> RequestSpec[Sweep]:
    return request_spec.post("sweeps/{}/pause", Sweep, sweep_id)


def resume(sweep_id: str) -> RequestSpec[Sweep]:
    return request_spec.post("sweeps/{}/resume", Sweep, sweep_id)


def cancel(sweep_id: str) -> RequestSpec[Sweep]:
    return request_spec.post("sweeps/{}/cancel", Sweep, sweep_id)
