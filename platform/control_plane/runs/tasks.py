"""Celery's door: one line each. A tick may be lost, late or run twice."""

from __future__ import annotations

from celery import shared_task

from control_plane.common import clock
from control_plane.common.locks import only_one
from control_plane.runs import housekeeping, placement, progress, sweep, sweeps


@shared_task
@only_one("place-jobs")
def place_jobs() -> None:
    placement.place_jobs(now=clock.now())


@shared_task
@only_one("advance-runs")
def advance_runs() -> None:
    progress.advance_runs(now=clock.now())


@shared_task
@only_one("sweep-leases")
def sweep_leases() -> None:
    sweep.sweep_leases(now=clock.now())


@shared_task
@only_one("advance-sweeps")
def advance_sweeps() -> None:
    sweeps.advance_sweeps(now=clock.now())


@shared_task
@only_one("clean-up")
def clean_up() -> None:
    housekeeping.clean_up(now=clock.now())
