"""Forecasts of starts and ends: computed for all runs by a periodic task, and for one request on demand."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings

from control_plane.fleet.forecast import Duration, Occupant, Start, forecast
from control_plane.fleet.models import Lease, Pool
from control_plane.fleet.snapshot import Snapshot
from control_plane.runs.durations import Prediction, Predictor, progress_of
from control_plane.runs.eta import REPLAY, Eta, forecasts_of
from control_plane.runs.models import Attempt, Run, RunForecast
from control_plane.runs.pace import add_sample
from control_plane.runs.scheduling import snapshot_of
from control_plane.runs.selectors import RELATED, queue
from control_plane.runs.slot_requests import request_of
from oolong.contracts.lifecycle import ENDED, AttemptStatus, RunStatus

_FIELDS = (
    "made_at", "measure", "samples", "duration_p90", "start_p50_at", "start_p90_at", "start_message", "end_p50_at",
    "end_p90_at", "end_source", "end_message",
)  # fmt: skip


def start_eta(start: Start, *, now: datetime) -> Eta:
    return Eta(_at(now, start.p50), _at(now, start.p90), REPLAY, start.reason)


def update_forecasts(*, now: datetime) -> None:
    """Sample the progress of active runs and forecast every pool. Writes only rows of its own."""
    RunForecast.objects.filter(run__status__in=[*ENDED, RunStatus.DRAFT, RunStatus.PAUSED]).delete()
    waiting, active = queue(), _active_runs()
    if not waiting and not active:
        return
    rows = forecasts_of([*waiting, *active])
    for run in active:
        rows[run.pk] = _with_sample(run, rows.get(run.pk), now=now)
    predictor = Predictor(now)
    made = []
    for run in active:
        made.append(_active_row(rows[run.pk], predictor.of_active(run, rows[run.pk]), now=now))
    for pool in Pool.objects.order_by("name").values_list("name", flat=True):
        queued = [run for run in waiting if run.pool == pool]
        if queued:
            made += _queued_rows(pool, queued, rows, predictor)
    RunForecast.objects.bulk_create(
        made, update_conflicts=True, unique_fields=["run"], update_fields=list(_FIELDS)
    )


def forecast_pool(
    snapshot: Snapshot, queued: Sequence[Run], predictor: Predictor, *, watch: Iterable[str] | None = None
) -> dict[str, Start]:
    """When these runs of the snapshot's queue start, or only those of `watch`."""
    return forecast(
        snapshot,
        occupants(snapshot.pool, predictor),
        {run.pk: predictor.of_queued(run).duration for run in queued},
        watch=None if watch is None else set(watch),
        min_runtime=settings.ENVIRONMENT.min_runtime_seconds,
    )


def occupants(pool: str, predictor: Predictor) -> list[Occupant]:
    """The runs that hold slots of the pool, with the time that they still need."""
    leases = Lease.objects.filter(released_at=None, slot__node__pool=pool)
    slots: defaultdict[str, defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for run, node, name in leases.order_by("slot__name").values_list("run", "slot__node", "slot__name"):
        slots[run][node].append(name)
    homes = dict(
        Attempt.objects.exclude(status=AttemptStatus.ENDED).filter(run__in=slots).values_list("run", "node")
    )
    runs = {run.pk: run for run in Run.objects.filter(pk__in=slots).select_related(*RELATED)}
    rows = forecasts_of(runs.values())
    found = []
    for run, of_nodes in slots.items():
        if run in runs:
            home = homes.get(run) if homes.get(run) in of_nodes else next(iter(of_nodes))
            (node, names), *others = sorted(of_nodes.items(), key=lambda one: (one[0] != home, one[0]))
            duration = predictor.of_active(runs[run], rows.get(run)).duration
            parts = tuple((other, tuple(slots_there)) for other, slots_there in others)
            found.append(Occupant(request_of(runs[run]), node, tuple(names), duration, parts))
    return found


def _active_runs() -> list[Run]:
    resting = [*ENDED, RunStatus.DRAFT, RunStatus.QUEUED, RunStatus.PAUSED]
    return list(Run.objects.exclude(status__in=resting).select_related(*RELATED).order_by("pk"))


def _with_sample(run: Run, row: RunForecast | None, *, now: datetime) -> RunForecast:
    row = row or RunForecast(run=run)
    work = progress_of(run)
    if work is None:
        row.measure, row.samples = "", []
        return row
    known = [(at, done) for at, done in row.samples] if row.measure == work.measure else []
    row.measure, row.samples = work.measure, add_sample(known, now.timestamp(), work.done)
    return row


def _active_row(row: RunForecast, prediction: Prediction, *, now: datetime) -> RunForecast:
    row.made_at = now
    row.start_p50_at = row.start_p90_at = None
    row.start_message = ""
    return _with_end(row, prediction, Duration(0.0, 0.0), now=now)


def _queued_rows(
    pool: str, queued: list[Run], rows: dict[str, RunForecast], predictor: Predictor
) -> list[RunForecast]:
    now = predictor.now
    starts = forecast_pool(snapshot_of(pool, queued, now=now), queued, predictor)
    made = []
    for run in queued:
        start, row = starts[run.pk], rows.get(run.pk) or RunForecast(run=run)
        row.made_at, row.measure, row.samples = now, "", []
        row.start_p50_at, row.start_p90_at = _at(now, start.p50), _at(now, start.p90)
        row.start_message = start.reason
        made.append(_with_end(row, predictor.of_queued(run), Duration(start.p50, start.p90), now=now))
    return made


def _with_end(row: RunForecast, prediction: Prediction, start: Duration, *, now: datetime) -> RunForecast:
    row.end_p50_at = _at(now, _sum(start.p50, prediction.duration.p50))
    row.end_p90_at = _at(now, _sum(start.p90, prediction.duration.p90))
    row.duration_p90 = prediction.duration.p90
    row.end_source, row.end_message = prediction.source, prediction.message
    return row


def _sum(*seconds: float | None) -> float | None:
    known = [one for one in seconds if one is not None]
    return sum(known) if len(known) == len(seconds) else None


def _at(now: datetime, seconds: float | None) -> Any:
    return None if seconds is None else now + timedelta(seconds=seconds)
