"""Celery tasks, one line each. A tick may be lost, late or run twice."""

from __future__ import annotations

from celery import shared_task

from control_plane.core.infra import clock
from control_plane.core.infra.locks import only_one
from control_plane.experiments import sweeps


@shared_task
@only_one("advance-sweeps")
def advance_sweeps() -> None:
    sweeps.reconcile_sweeps(now=clock.now())
