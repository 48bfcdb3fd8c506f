"""Celery tasks. A tick may be lost, delayed or run twice."""

from __future__ import annotations

from celery import shared_task

from control_plane.core.infra import clock
from control_plane.core.infra.locks import only_one
from control_plane.runs import lease_reaper, maintenance, reconciler, scheduling


@shared_task
@only_one("place-jobs")
def place_jobs() -> None:
    scheduling.schedule_runs(now=clock.now())


@shared_task
@only_one("advance-runs")
def advance_runs() -> None:
    reconciler.reconcile_runs(now=clock.now())


@shared_task
@only_one("sweep-leases")
def sweep_leases() -> None:
    lease_reaper.reap_leases(now=clock.now())


@shared_task
@only_one("clean-up")
def clean_up() -> None:
    maintenance.clean_up(now=clock.now())
