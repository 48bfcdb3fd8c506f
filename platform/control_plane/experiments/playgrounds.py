"""Playgrounds: chats with one or two models, each on an idle slot until it has been idle for some time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from control_plane.accounts.identity.caller import Caller
from control_plane.assets.storage import store
from control_plane.assets.storage.blob_columns import EMPTY_LINE
from control_plane.core.api.errors import FieldError, Problem, or_not_found, unprocessable
from control_plane.experiments.models import Playground, PlaygroundSide
from control_plane.runs.spec_resolution import Resolved, resolve_spec
from control_plane.runs.submission import queue_resolved, stop_run

LOWEST_PRIORITY = 0


def open_playground(
    caller: Caller,
    *,
    models: Sequence[Mapping[str, Any]],
    idle_seconds: int,
    reward: Mapping[str, Any] | None,
    max_total_tokens: int,
    now: datetime,
) -> Playground:
    """Queue a run for each model, with the lowest priority. 422 with pointers into the body; then none is queued."""
    sides: list[Resolved] = []
    errors: list[FieldError] = []
    for index, model in enumerate(models):
        found = resolve_spec(
            caller,
            _spec(model, idle_seconds=idle_seconds, reward=reward, max_total_tokens=max_total_tokens),
            internal=True,
        )
        sides.append(found)
        errors += [
            FieldError(_body_pointer(error.pointer, index), error.code, error.message)
            for error in found.errors
        ]
    if errors:
        raise unprocessable("invalid", f"{errors[0].pointer}: {errors[0].message}", errors)
    store.put([EMPTY_LINE])
    with transaction.atomic():
        playground = Playground.objects.create(project=caller.project, created_by=caller.user, created_at=now)
        for index, resolved in enumerate(sides):
            run = queue_resolved(caller, resolved, now=now)
            PlaygroundSide.objects.create(playground=playground, index=index, run=run)
    return playground


def close_playground(playground: Playground, *, now: datetime) -> None:
    """Stop its runs. Idempotent."""
    for side in playground.sides.select_related("run").order_by("index"):
        if not side.run.has_ended:
            _stop_side(side.run_id, now=now)


def _stop_side(run_id: str, *, now: datetime) -> None:
    """Stop the run, unless it has ended."""
    try:
        stop_run(run_id, now=now)
    except Problem as problem:
        if problem.code != "has_ended":
            raise


def playgrounds(caller: Caller) -> QuerySet[Playground]:
    return (
        Playground.objects.filter(project=caller.project)
        .select_related("created_by")
        .prefetch_related("sides__run__base_model", "sides__run__initial_checkpoint")
    )


def playground_for(caller: Caller, playground_id: str) -> Playground:
    return or_not_found(playgrounds(caller).filter(pk=playground_id).first(), "playground", playground_id)


def _spec(
    model: Mapping[str, Any], *, idle_seconds: int, reward: Mapping[str, Any] | None, max_total_tokens: int
) -> dict[str, Any]:
    named = str(model.get("checkpoint") or model.get("base_model") or "")
    document: dict[str, Any] = {
        "kind": "playground", "name": f"chat with {named}"[:120], "model": dict(model),
        "dataset": {"version": ""}, "placement": {"priority": LOWEST_PRIORITY},
        "playground": {"idle_seconds": idle_seconds, "scores": reward is not None},
        "rollout": {"engine_max_total_tokens": max_total_tokens, "engine_max_running_requests": 8},
    }  # fmt: skip
    # A failing reward must not end the chat.
    return document if reward is None else {**document, "reward": {**reward, "max_error_rate": 1.0}}


def _body_pointer(pointer: str, index: int) -> str:
    if pointer.startswith("/model"):
        return f"/models/{index}{pointer.removeprefix('/model')}"
    return {"/playground/idle_seconds": "/idle_seconds"}.get(pointer, pointer)
