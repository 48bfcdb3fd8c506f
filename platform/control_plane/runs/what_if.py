"""What-if: when would a run start with fewer engines, in another pool, on another device? Writes nothing."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from control_plane.accounts.identity.caller import Caller
from control_plane.fleet.access import pools_of
from control_plane.fleet.models import Slot
from control_plane.fleet.scheduler import plan
from control_plane.fleet.snapshot import Request, Snapshot, Wait
from control_plane.runs.cloning import merge_patch
from control_plane.runs.durations import Predictor
from control_plane.runs.eta import REPLAY, Eta
from control_plane.runs.forecasts import forecast_pool, start_eta
from control_plane.runs.models import Run
from control_plane.runs.scheduling import snapshot_of
from control_plane.runs.selectors import queue
from control_plane.runs.slot_requests import request_of, request_of_spec
from control_plane.runs.spec_resolution import Resolved, resolve_spec
from control_plane.runs.variants import Kind, Variant, variants
from control_plane.runs.waiting import require_queued
from oolong.contracts.run_spec import RunSpec

SOONER_SECONDS = 60.0  # by which the median start has to be earlier to be called sooner


@dataclass(frozen=True)
class Outcome:
    """When the run starts, as it is or as a variant."""

    starts_now: bool
    start: Eta
    message: str  # one sentence
    kind: Kind | None = None  # None: the run as it is
    changes: dict[str, Any] = field(default_factory=dict)
    sooner: bool = False  # than the run as it is


@dataclass(frozen=True)
class WhatIf:
    as_is: Outcome
    variants: list[Outcome]  # those first that start first


def what_if_queued(caller: Caller, run: Run, *, now: datetime) -> WhatIf:
    """409 for a run that is not queued."""
    require_queued(run)
    spec = RunSpec.model_validate(run.spec)
    return _what_if(caller, spec, _Comparison(now), own=request_of(run))


def what_if_spec(caller: Caller, resolved: Resolved, *, now: datetime) -> WhatIf:
    """For a spec without errors."""
    assert resolved.spec is not None
    own = request_of_spec(
        resolved.spec, project=caller.project, submitted_at=now,
        model_path=resolved.model_path,
    )  # fmt: skip
    return _what_if(caller, resolved.spec, _Comparison(now), own=own)


def _what_if(caller: Caller, spec: RunSpec, comparison: _Comparison, *, own: Request) -> WhatIf:
    pool = spec.placement.pool
    as_is = comparison.outcome(own, pool)
    devices = Slot.objects.filter(node__pool=pool, present=True).values_list("device", flat=True)
    found: list[Outcome] = []
    started: set[Kind] = set()  # sizes of which a larger one starts now: a smaller one gains nothing
    every = variants(
        spec,
        pools=list(pools_of(caller.project.team_id).values_list("name", flat=True)),
        devices=sorted(set(devices)),
    )
    for variant in every if not as_is.starts_now else []:
        if variant.kind in started:
            continue
        request = _request(caller, spec, variant, own)
        if request is None:  # the spec would be invalid
            continue
        there = variant.changes.get("placement", {}).get("pool", pool)
        outcome = comparison.outcome(request, there, variant=variant, as_is=as_is)
        found.append(outcome)
        if outcome.starts_now and variant.kind in ("engines", "ranks"):
            started.add(variant.kind)
    return WhatIf(as_is, sorted(found, key=_sort_key))


def _sort_key(outcome: Outcome) -> tuple[bool, bool, str]:
    at = outcome.start.p50 or outcome.start.p90
    return not outcome.starts_now, at is None, at.isoformat() if at is not None else ""


def _request(caller: Caller, spec: RunSpec, variant: Variant, own: Request) -> Request | None:
    """The scheduler's request of the variant; None when its spec has errors."""
    resolved = resolve_spec(caller, merge_patch(spec.model_dump(mode="json"), variant.changes))
    if resolved.errors or resolved.spec is None:
        return None
    return request_of_spec(
        resolved.spec, project=caller.project, submitted_at=own.submitted_at, id=own.id, priority=own.priority,
        model_path=resolved.model_path,
    )  # fmt: skip


@dataclass
class _Comparison:
    """Places requests at one moment. Each pool is read once."""

    now: datetime
    _pools: dict[str, tuple[Snapshot, list[Run]]] = field(default_factory=dict)
    _queue: list[Run] | None = None

    def __post_init__(self) -> None:
        self.predictor = Predictor(self.now)

    def outcome(
        self, request: Request, pool: str, *, variant: Variant | None = None, as_is: Outcome | None = None
    ) -> Outcome:
        snapshot, others = self._pool(pool)
        snapshot = replace(
            snapshot, queue=[*(one for one in snapshot.queue if one.id != request.id), request]
        )
        wait = plan(snapshot).waiting.get(request.id)
        if wait is None:
            start = Eta(self.now, self.now, REPLAY, "")
        else:
            starts = forecast_pool(snapshot, others, self.predictor, watch=[request.id])
            start = start_eta(starts[request.id], now=self.now)
        return Outcome(
            starts_now=wait is None,
            start=start,
            message=_sentence(variant, wait, start),
            kind=variant.kind if variant else None,
            changes=variant.changes if variant else {},
            sooner=as_is is not None and _is_sooner(start, as_is.start),
        )

    def _pool(self, name: str) -> tuple[Snapshot, list[Run]]:
        if self._queue is None:
            self._queue = queue()
        if name not in self._pools:
            runs = [run for run in self._queue if run.pool == name]
            self._pools[name] = snapshot_of(name, runs, now=self.now), runs
        return self._pools[name]


def _is_sooner(start: Eta, other: Eta) -> bool:
    if start.p50 is None:
        return False
    return other.p50 is None or (other.p50 - start.p50).total_seconds() >= SOONER_SECONDS


def _sentence(variant: Variant | None, wait: Wait | None, start: Eta) -> str:
    words = variant.words if variant else "as it is"
    if wait is None:
        return f"{words} it starts now"
    if start.p50 is not None:
        return f"{words} it starts at about {start.p50:%Y-%m-%d %H:%M} UTC"
    if start.p90 is not None:
        return f"{words} it starts by {start.p90:%Y-%m-%d %H:%M} UTC"
    return f"{words} it waits as well, and its start is unknown: {wait.message}" if variant else wait.message
