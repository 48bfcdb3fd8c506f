"""Celery tasks, one line each. A tick may be lost, late or run twice."""

from __future__ import annotations

from celery import shared_task

from control_plane.assets.base_models import import_services, model_check_services
from control_plane.assets.datasets import measurement_services, validation_services
from control_plane.core.infra import clock
from control_plane.core.infra.locks import single_instance


@shared_task
@single_instance("advance-validations")
def advance_validations() -> None:
    validation_services.advance_validations(now=clock.now())


@shared_task
@single_instance("advance-measurements")
def advance_measurements() -> None:
    measurement_services.advance_measurements(now=clock.now())


@shared_task
@single_instance("advance-imports")
def advance_imports() -> None:
    import_services.advance_imports(now=clock.now())


@shared_task
@single_instance("advance-model-checks")
def advance_model_checks() -> None:
    model_check_services.advance_model_checks(now=clock.now())
