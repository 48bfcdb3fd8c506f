"""Runs: what they are told and what became of them. What they measured and wrote: `telemetry`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oolong.client.endpoints import request_spec
from oolong.client.endpoints.request_spec import RequestSpec, drop_none
from oolong.client.models import (
    Alert,
    Attempt,
    Job,
    Page,
    Plan,
    Preset,
    Run,
    RunEvent,
    Validation,
    WaitExplanation,
)


def page(
    *,
    status: str | None = None,
    kind: str | None = None,
    name: str | None = None,
    tag: str | None = None,
    view: str | None = None,
    filters: Mapping[str, Sequence[str]] | None = None,
) -> RequestSpec[Page[Run]]:
    named = {"status": status, "kind": kind, "name": name, "tag": tag, "view": view}
    return request_spec.page("runs", Run, **{**(filters or {}), **drop_none(named)})


def presets() -> RequestSpec[Page[Preset]]:
    return request_spec.get("presets", Page[Preset])


def validate(spec: Mapping[str, Any], *, template: str | None = None) -> RequestSpec[Validation]:
    body = {"spec": dict(spec), **drop_none({"template": template})}
    return request_spec.post("runs/validate", Validation, body=body)


def plan(spec: Mapping[str, Any], *, template: str | None = None) -> RequestSpec[Plan]:
    return request_spec.post(
        "runs/plan", Plan, body={"spec": dict(spec), **drop_none({"template": template})}
    )


def wait(run_id: str) -> RequestSpec[WaitExplanation]:
    return request_spec.get("runs/{}/wait", WaitExplanation, run_id)


def create(
    spec: Mapping[str, Any],
    *,
    template: str | None = None,
    draft: bool = False,
    dedupe_key: str | None = None,
) -> RequestSpec[Run]:
    named = drop_none({"template": template, "dedupe_key": dedupe_key, "draft": draft or None})
    return request_spec.post("runs", Run, body={"spec": dict(spec), **named})


def submit(run_id: str) -> RequestSpec[Run]:
    return request_spec.post("runs/{}/submit", Run, run_id)


def delete(run_id: str) -> RequestSpec[None]:
    return request_spec.delete("runs/{}", run_id)


def get(run_id: str, *, wait: int | None = None, seen: str | None = None) -> RequestSpec[Run]:
    """With `wait` the answer comes when the status is another than `seen`, or after so many seconds."""
    return request_spec.get("runs/{}", Run, run_id, wait=wait, seen=seen)


def stop(run_id: str) -> RequestSpec[Run]:
    return request_spec.post("runs/{}/stop", Run, run_id)


def force_stop(run_id: str) -> RequestSpec[Run]:
    return request_spec.post("runs/{}/force-stop", Run, run_id)


def cancel(run_id: str) -> RequestSpec[Run]:
    return request_spec.post("runs/{}/cancel", Run, run_id)


def pause(run_id: str) -> RequestSpec[Run]:
    return request_spec.post("runs/{}/pause", Run, run_id)


def resume(run_id: str) -> RequestSpec[Run]:
    return request_spec.post("runs/{}/resume", Run, run_id)


def retry(run_id: str) -> RequestSpec[Run]:
    return request_spec.post("runs/{}/retry", Run, run_id)


def clone(run_id: str, changes: Mapping[str, Any], checkpoint: str | None) -> RequestSpec[Run]:
    body = {"changes": dict(changes), **drop_none({"checkpoint": checkpoint})}
    return request_spec.post("runs/{}/clone", Run, run_id, body=body)


def change(
    run_id: str, changes: Mapping[str, Any], *, checkpoint: bool, evaluate: bool, fields: Mapping[str, Any]
) -> RequestSpec[Run]:
    body = {"changes": dict(changes), "checkpoint": checkpoint, "evaluate": evaluate, **fields}
    return request_spec.post("runs/{}/runtime", Run, run_id, body=body)


def update(run_id: str, fields: Mapping[str, Any]) -> RequestSpec[Run]:
    return request_spec.patch("runs/{}", Run, run_id, body=dict(fields))


def events(run_id: str) -> RequestSpec[Page[RunEvent]]:
    return request_spec.page("runs/{}/events", RunEvent, run_id)


def alerts(run_id: str, *, open: bool | None = None) -> RequestSpec[Page[Alert]]:
    return request_spec.page(
        "runs/{}/alerts", Alert, run_id, open=None if open is None else str(open).lower()
    )


def attempts(run_id: str) -> RequestSpec[Page[Attempt]]:
    return request_spec.get("runs/{}/attempts", Page[Attempt], run_id)


def jobs(run_id: str) -> RequestSpec[Page[Job]]:
    return request_spec.get("runs/{}/jobs", Page[Job], run_id)
