"""Celery tasks, one line each. A tick may be lost, late or run twice."""

from __future__ import annotations

from celery import shared_task

from control_plane.core.infra import clock
from control_plane.core.infra.locks import only_one
from control_plane.runs import lease_reaper, maintenance, reconciler, scheduling


@shared_task
@only_one("place-jobs")
def place_jobs() -> None:
    scheduling.place_jobs(now=clock.now())


@shared_task
@only_one("advance-runs")
def advance_runs() -> None:
    reconciler.advance_runs(now=clock.now())


@shared_task
@only_one("sweep-leases")
def sweep_leases() -> None:
    lease_reaper.sweep_leases(now=clock.now())


@shared_task
@only_one("clean-up")
def clean_up() -> None:
    maintenance.clean_up(now=clock.now())
