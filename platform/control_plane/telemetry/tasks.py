from __future__ import annotations

from celery import shared_task

from control_plane.core.infra import clock
from control_plane.core.infra.locks import single_instance
from control_plane.core.stream import event_stream
from control_plane.telemetry.alerts import alerts
from control_plane.telemetry.compaction import point_chunks, retention, rollups, trajectory_files


@shared_task(ignore_result=True)
def prune_stream() -> None:
    event_stream.prune()


@shared_task
@single_instance("watch-runs")
def watch_runs() -> None:
    alerts.watch_runs(now=clock.now())


@shared_task
@single_instance("roll-up-series")
def roll_up_series() -> None:
    rollups.roll_up_runs(now=clock.now())


@shared_task
@single_instance("compact-series")
def compact_series() -> None:
    point_chunks.compact_ended_runs(now=clock.now())


@shared_task
@single_instance("write-trajectory-files")
def write_trajectory_files() -> None:
    trajectory_files.write_pending_files(now=clock.now())


@shared_task
@single_instance("remove-old-telemetry")
def remove_old_telemetry() -> None:
    retention.remove_old_telemetry(now=clock.now())
