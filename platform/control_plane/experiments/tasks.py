"""Celery tasks, one line each. A tick may be lost, late or run twice."""

from __future__ import annotations

from celery import shared_task

from control_plane.core.infra import clock
from control_plane.core.infra.locks import single_instance
from control_plane.experiments import sweeps


@shared_task
@single_instance("advance-sweeps")
def advance_sweeps() -> None:
    sweeps.reconcile_sweeps(now=clock.now())
