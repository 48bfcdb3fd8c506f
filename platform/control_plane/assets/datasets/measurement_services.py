"""Every write of measurements: requested, settled, failed. `background.runner` starts and watches their processes."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import msgspec
from django.db import transaction
from django.db.models import QuerySet

from control_plane.accounts.identity.caller import Caller
from control_plane.assets.background.dataset_ingest.job import read_progress
from control_plane.assets.background.fair_queue import refuse_too_many_checks
from control_plane.assets.background.runner import Kind, advance
from control_plane.assets.background.token_statistics.job import Measured, MeasureJob, read_result
from control_plane.assets.datasets import rows
from control_plane.assets.models import (
    BaseModel,
    DatasetMeasurement,
    DatasetVersion,
    MeasurementState,
    ModelState,
)
from control_plane.assets.storage import store
from control_plane.core.api.errors import FieldError, conflict, unprocessable

MODULE = "control_plane.assets.background.token_statistics"
AT_ONCE = 1  # processes on this machine
LONGEST = timedelta(minutes=20)


def request_measurement(
    caller: Caller, version: DatasetVersion, model: BaseModel
) -> tuple[DatasetMeasurement, bool]:
    """The measurement of this version under this model's tokenizer, queued if there is none or it failed.

    422 for a model whose tokenizer lies on the nodes only, 409 when too many wait already.
    """
    if model.state != ModelState.READY:
        raise conflict("not_validated", f"model {model.pk} is {model.state}; take one that is READY")
    if not model.sha256:
        message = (
            f"{model.name!r} is a path on the nodes, and its tokenizer lies only there; name a stored model"
        )
        raise unprocessable("no_tokenizer", message, [FieldError("/model", "no_tokenizer", message)])
    with transaction.atomic():
        known = DatasetMeasurement.objects.filter(version=version, model=model)
        if not known.exclude(state=MeasurementState.FAILED).exists():
            refuse_too_many_checks(caller.project)
        found, created = DatasetMeasurement.objects.get_or_create(
            version=version, model=model, defaults={"created_by": caller.user}
        )
        if not created and found.state == MeasurementState.FAILED:
            again = DatasetMeasurement.objects.filter(pk=found.pk, state=MeasurementState.FAILED)
            created = bool(
                again.update(state=MeasurementState.QUEUED, message="", tries=0, bytes_seen=0, ended_at=None)
            )
            found.refresh_from_db()
    return found, created


def advance_measurements(*, now: datetime) -> None:
    kind = Kind(
        jobs=DatasetMeasurement.objects.select_related("version", "model"), project="version__dataset__project_id",
        module=MODULE, activity="counted", at_once=AT_ONCE, longest=LONGEST, job_file=_measure_job,
        read_result=read_result, settle=_settle, fail=_fail, record_progress=_record_progress,
    )  # fmt: skip
    advance(kind, now=now)


def _measure_job(measurement: DatasetMeasurement) -> MeasureJob:
    return MeasureJob(
        rows=store.presign(measurement.version.sha256), model=store.presign(measurement.model.sha256)
    )


def _settle(measurement: DatasetMeasurement, result: Measured, folder: Path, now: datetime) -> None:
    if result.refused:
        _fail(measurement, "refused", result.refused, now)
        return
    _running(measurement).update(
        state=MeasurementState.DONE, result=msgspec.to_builtins(result), ended_at=now,
        bytes_seen=measurement.version.bytes,
    )  # fmt: skip


def _record_progress(measurement: DatasetMeasurement, folder: Path) -> None:
    if (progress := read_progress(folder)) is not None:
        _running(measurement).update(bytes_seen=min(progress.bytes_seen, measurement.version.bytes))


def _fail(measurement: DatasetMeasurement, code: str, message: str, now: datetime) -> None:
    _running(measurement).update(
        state=MeasurementState.FAILED, message=rows.presentable(message[:1000]), ended_at=now
    )


def _running(measurement: DatasetMeasurement) -> QuerySet[DatasetMeasurement]:
    return DatasetMeasurement.objects.filter(pk=measurement.pk, state=MeasurementState.RUNNING)
