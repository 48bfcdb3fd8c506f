"""Runs: what they are told and what became of them. What they measured and wrote: `telemetry`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oolong.client.endpoints import call
from oolong.client.endpoints.call import Call, given
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
) -> Call[Page[Run]]:
    named = {"status": status, "kind": kind, "name": name, "tag": tag, "view": view}
    return call.page("runs", Run, **{**(filters or {}), **given(named)})


def presets() -> Call[Page[Preset]]:
    return call.get("presets", Page[Preset])


def validate(spec: Mapping[str, Any], *, template: str | None = None) -> Call[Validation]:
    body = {"spec": dict(spec), **given({"template": template})}
    return call.post("runs/validate", Validation, body=body)


def plan(spec: Mapping[str, Any], *, template: str | None = None) -> Call[Plan]:
    return call.post("runs/plan", Plan, body={"spec": dict(spec), **given({"template": template})})


def wait(run_id: str) -> Call[WaitExplanation]:
    return call.get("runs/{}/wait", WaitExplanation, run_id)


def create(
    spec: Mapping[str, Any],
    *,
    template: str | None = None,
    draft: bool = False,
    dedupe_key: str | None = None,
) -> Call[Run]:
    named = given({"template": template, "dedupe_key": dedupe_key, "draft": draft or None})
    return call.post("runs", Run, body={"spec": dict(spec), **named})


def submit(run_id: str) -> Call[Run]:
    return call.post("runs/{}/submit", Run, run_id)


def delete(run_id: str) -> Call[None]:
    return call.delete("runs/{}", run_id)


def get(run_id: str, *, wait: int | None = None, seen: str | None = None) -> Call[Run]:
    """With `wait` the answer comes when the status is another than `seen`, or after so many seconds."""
    return call.get("runs/{}", Run, run_id, wait=wait, seen=seen)


def stop(run_id: str) -> Call[Run]:
    return call.post("runs/{}/stop", Run, run_id)


def force_stop(run_id: str) -> Call[Run]:
    return call.post("runs/{}/force-stop", Run, run_id)


def cancel(run_id: str) -> Call[Run]:
    return call.post("runs/{}/cancel", Run, run_id)


def pause(run_id: str) -> Call[Run]:
    return call.post("runs/{}/pause", Run, run_id)


def resume(run_id: str) -> Call[Run]:
    return call.post("runs/{}/resume", Run, run_id)


def retry(run_id: str) -> Call[Run]:
    return call.post("runs/{}/retry", Run, run_id)


def clone(run_id: str, changes: Mapping[str, Any], checkpoint: str | None) -> Call[Run]:
    body = {"changes": dict(changes), **given({"checkpoint": checkpoint})}
    return call.post("runs/{}/clone", Run, run_id, body=body)


def change(
    run_id: str, changes: Mapping[str, Any], *, checkpoint: bool, evaluate: bool, fields: Mapping[str, Any]
) -> Call[Run]:
    body = {"changes": dict(changes), "checkpoint": checkpoint, "evaluate": evaluate, **fields}
    return call.post("runs/{}/runtime", Run, run_id, body=body)


def update(run_id: str, fields: Mapping[str, Any]) -> Call[Run]:
    return call.patch("runs/{}", Run, run_id, body=dict(fields))


def events(run_id: str) -> Call[Page[RunEvent]]:
    return call.page("runs/{}/events", RunEvent, run_id)


def alerts(run_id: str, *, open: bool | None = None) -> Call[Page[Alert]]:
    return call.page("runs/{}/alerts", Alert, run_id, open=None if open is None else str(open).lower())


def attempts(run_id: str) -> Call[Page[Attempt]]:
    return call.get("runs/{}/attempts", Page[Attempt], run_id)


def jobs(run_id: str) -> Call[Page[Job]]:
    return call.get("runs/{}/jobs", Page[Job], run_id)
