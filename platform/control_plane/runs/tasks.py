"""Celery tasks. A tick may be lost, delayed or run twice."""

from __future__ import annotations

from celery import shared_task

from control_plane.core.infra import clock
from control_plane.core.infra.locks import single_instance
from control_plane.runs import budgets, forecasts, lease_reaper, maintenance, reconciler, scheduling


@shared_task
@single_instance("place-jobs")
def place_jobs() -> None:
    scheduling.schedule_runs(now=clock.now())


@shared_task
@single_instance("advance-runs")
def advance_runs() -> None:
    reconciler.reconcile_runs(now=clock.now())


@shared_task
@single_instance("forecast-runs")
def forecast_runs() -> None:
    forecasts.update_forecasts(now=clock.now())


@shared_task
@single_instance("check-budgets")
def check_budgets() -> None:
    budgets.check_budgets(now=clock.now())


@shared_task
@single_instance("sweep-leases")
def sweep_leases() -> None:
    lease_reaper.reap_leases(now=clock.now())


@shared_task
@single_instance("clean-up")
def clean_up() -> None:
    maintenance.clean_up(now=clock.now())
