"""Explains why a run waits, or whether a spec would start, from a plan of the scheduler. Writes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from control_plane.accounts.identity.caller import Caller
from control_plane.core.api.errors import conflict
from control_plane.fleet.scheduler import plan
from control_plane.fleet.snapshot import Request, WaitCode
from control_plane.runs.durations import Predictor
from control_plane.runs.eta import Eta
from control_plane.runs.forecasts import forecast_pool, start_eta
from control_plane.runs.models import Run
from control_plane.runs.scheduling import snapshot_of
from control_plane.runs.selectors import queue
from control_plane.runs.serializers import MAX_AHEAD
from control_plane.runs.slot_requests import request_of, request_of_spec
from oolong.contracts.lifecycle import RunStatus
from oolong.contracts.run_spec import RunSpec


@dataclass(frozen=True)
class WaitExplanation:
    """Why a run waits. When it starts at the scheduler's next tick, `starts_now` is set and the rest is empty."""

    starts_now: bool
    code: WaitCode | None
    message: str
    position: int | None
    queue_length: int
    ahead: list[dict[str, Any]]
    start: Eta


def explain(caller: Caller, run: Run, *, now: datetime) -> WaitExplanation:
    """Why a queued run waits. 409 for a run that is not queued."""
    require_queued(run)
    return _wait_of(caller, request_of(run), pool=run.pool, now=now)


def require_queued(run: Run) -> None:
    if run.status != RunStatus.QUEUED:
        message = f"the run is {run.status}; only a QUEUED run waits for slots"
        raise conflict("not_waiting", message, current_status=run.status)


def preview(caller: Caller, spec: RunSpec, *, model_path: str = "", now: datetime) -> WaitExplanation:
    """Whether a run of this spec would start now, and why not."""
    request = request_of_spec(spec, project=caller.project, submitted_at=now, model_path=model_path)
    return _wait_of(caller, request, pool=spec.placement.pool, now=now)


def _wait_of(caller: Caller, request: Request, *, pool: str, now: datetime) -> WaitExplanation:
    others = {run.pk: run for run in queue() if run.pool == pool and run.pk != request.id}
    snapshot = snapshot_of(pool, others.values(), request, now=now)
    decisions = plan(snapshot)
    starts = forecast_pool(snapshot, list(others.values()), Predictor(now), watch=[request.id])
    wait = decisions.waiting.get(request.id)
    position = decisions.positions.get(request.id)
    ahead = list(decisions.waiting)[: position - 1] if position is not None else []
    return WaitExplanation(
        starts_now=wait is None,
        code=wait.code if wait is not None else None,
        message=wait.message if wait is not None else "",
        position=position,
        queue_length=len(decisions.waiting),
        ahead=[_ahead(caller, others[run_id]) for run_id in ahead[:MAX_AHEAD]],
        start=start_eta(starts[request.id], now=now),
    )


def _ahead(caller: Caller, run: Run) -> dict[str, Any]:
    own = run.project.team_id == caller.project.team_id
    return {
        "run_id": run.pk if own else "",
        "name": run.name if own else "another team's run",
        "slots_needed": run.slots_needed,
        "priority": run.priority,
    }
