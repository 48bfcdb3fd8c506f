"""Celery's door: one line each. A tick may be lost, late or run twice."""

from __future__ import annotations

from celery import shared_task

from control_plane.catalog import validation_services
from control_plane.common import clock
from control_plane.common.locks import only_one


@shared_task
@only_one("advance-validations")
def advance_validations() -> None:
    validation_services.advance_validations(now=clock.now())
