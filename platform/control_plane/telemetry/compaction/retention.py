"""Delete the logs, trajectories and timelines of runs that ended long ago, if the installation is configured to."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef

from control_plane.assets.storage import store
from control_plane.runs.models import Run
from control_plane.telemetry.ingest.chunks import LOG_PREFIX
from control_plane.telemetry.models import LogChunk, OutboxFile, RunSpan, TrajectoryFile, TrajectorySample
from oolong.contracts.lifecycle import ENDED

RUNS_PER_TICK = 100


def remove_old_telemetry(*, now: datetime) -> int:
    """Returns how many runs lost theirs. Metrics, histograms, events and alerts stay with the run."""
    days: int = settings.ENVIRONMENT.telemetry_days
    if days <= 0:
        return 0
    old = Run.objects.filter(status__in=ENDED, ended_at__lt=now - timedelta(days=days))
    with_logs = old.filter(attempts__jobs__log_chunks__isnull=False)
    with_trajectories = old.filter(trajectories__isnull=False)
    with_spans = old.filter(Exists(RunSpan.objects.filter(run=OuterRef("pk"))))
    ids = sorted({*_some(with_logs), *_some(with_trajectories), *_some(with_spans)})[:RUNS_PER_TICK]
    for run_id in ids:
        _remove(run_id, now=now)
    return len(ids)


def _some(runs: object) -> list[str]:
    return list(runs.values_list("pk", flat=True).distinct()[:RUNS_PER_TICK])  # type: ignore[attr-defined]


def _remove(run_id: str, *, now: datetime) -> None:
    with transaction.atomic():
        Run.objects.select_for_update(no_key=True).get(pk=run_id)
        LogChunk.objects.filter(job__attempt__run=run_id).delete()
        OutboxFile.objects.filter(job__attempt__run=run_id, name__startswith=LOG_PREFIX).update(
            removed_at=now
        )
        RunSpan.objects.filter(run=run_id).delete()
        TrajectorySample.objects.filter(run=run_id).delete()
        files = TrajectoryFile.objects.filter(run=run_id)
        hashes = set(files.values_list("sha256", flat=True))
        files.delete()
        for sha256 in hashes:
            store.delete_on_commit(sha256)
