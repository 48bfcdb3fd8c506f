"""Every write of measurements: asked for, started as processes, watched, settled."""

from __future__ import annotations

import shutil
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
from django.db import transaction

from control_plane.accounts.identity.caller import Caller
from control_plane.assets.background import processes
from control_plane.assets.background.dataset_ingest.job import read_progress
from control_plane.assets.background.fair_queue import refuse_too_many_checks
from control_plane.assets.background.runner import advance
from control_plane.assets.background.token_statistics.job import JOB_FILE, MeasureJob, read_result
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
                again.update(state=MeasurementState.QUEUED, message="", pid=0, bytes_seen=0, ended_at=None)
            )
            found.refresh_from_db()
    return found, created


def advance_measurements(*, now: datetime) -> None:
    advance(
        DatasetMeasurement.objects.select_related("version", "model"), project="version__dataset__project_id",
        at_once=AT_ONCE, start=_start, look_after=_look_after, fail=_end, now=now,
    )  # fmt: skip


def _start(measurement: DatasetMeasurement, *, here: str, now: datetime) -> None:
    taken = DatasetMeasurement.objects.filter(pk=measurement.pk, state=MeasurementState.QUEUED).update(
        state=MeasurementState.RUNNING, host=here, started_at=now
    )
    if not taken:
        return
    folder = _folder(measurement)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    job = MeasureJob(
        rows=store.presign(measurement.version.sha256), model=store.presign(measurement.model.sha256)
    )
    (folder / JOB_FILE).write_bytes(msgspec.json.encode(job))
    DatasetMeasurement.objects.filter(pk=measurement.pk).update(pid=processes.start(MODULE, folder))


def _look_after(measurement: DatasetMeasurement, *, here: str, now: datetime) -> None:
    assert measurement.started_at is not None  # set with the state
    folder = _folder(measurement)
    mine = measurement.host == here and measurement.pid > 0
    alive = mine and processes.is_alive(measurement.pid, folder)
    result = read_result(folder)
    if result is not None and not result.refused:
        DatasetMeasurement.objects.filter(pk=measurement.pk, state=MeasurementState.RUNNING).update(
            state=MeasurementState.DONE, result=msgspec.to_builtins(result), ended_at=now,
            bytes_seen=measurement.version.bytes,
        )  # fmt: skip
        shutil.rmtree(folder, ignore_errors=True)
    elif result is not None:
        _end(measurement, result.refused, now=now)
    elif now - measurement.started_at > LONGEST:
        if alive:
            processes.kill(measurement.pid)
        _end(measurement, f"it took longer than {LONGEST.total_seconds():.0f} s", now=now)
    elif mine and not alive and read_result(folder) is None:
        _end(measurement, f"the process that counted died: {processes.last_words(folder)}", now=now)
    elif (progress := read_progress(folder)) is not None:
        DatasetMeasurement.objects.filter(pk=measurement.pk, state=MeasurementState.RUNNING).update(
            bytes_seen=min(progress.bytes_seen, measurement.version.bytes)
        )


def _end(measurement: DatasetMeasurement, message: str, *, now: datetime) -> None:
    unended = [MeasurementState.QUEUED, MeasurementState.RUNNING]
    DatasetMeasurement.objects.filter(pk=measurement.pk, state__in=unended).update(
        state=MeasurementState.FAILED, message=rows.presentable(message[:1000]), ended_at=now
    )
    shutil.rmtree(_folder(measurement), ignore_errors=True)


def _folder(measurement: DatasetMeasurement) -> Path:
    return store.validation_folder(measurement.pk)
