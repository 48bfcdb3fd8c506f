"""Every write of validations: requested, settled, failed. `background.runner` starts and watches their processes."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from django.db import transaction
from django.db.models import Max

from control_plane.accounts.identity.caller import Caller
from control_plane.assets.background.dataset_ingest.job import (
    CANONICAL_FILE,
    FILE_POINTER,
    FORMATS,
    REPORT_FILE,
    ParseJob,
    ParseResult,
    format_of,
    read_progress,
    read_result,
)
from control_plane.assets.background.fair_queue import refuse_too_many_checks
from control_plane.assets.background.runner import Kind, advance
from control_plane.assets.datasets import rows
from control_plane.assets.models import Dataset, DatasetValidation, DatasetVersion, Upload, ValidationState
from control_plane.assets.storage import store
from control_plane.core.api.errors import FieldError, conflict, unprocessable

AT_ONCE = 2  # processes on this machine
LONGEST = timedelta(minutes=20)
MODULE = "control_plane.assets.background.dataset_ingest"


def request_validation(
    caller: Caller,
    upload: Upload,
    mapping: dict[str, Any] | None,
    *,
    format: str = "",
    config: str = "",
    stop_after: int | None = None,
) -> DatasetValidation:
    """Queue the check of an uploaded file. 422 when the mapping cannot be meant, 409 when too many wait already."""
    if mapping is not None and (faults := rows.mapping_faults(rows.Mapping(**mapping))):
        raise unprocessable("mapping_invalid", faults[0].message, faults)
    guessed, compression = format_of(upload.filename)
    if format and format not in FORMATS:
        message = f"format={format!r}: one of {', '.join(FORMATS)}"
        raise unprocessable("invalid", message, [FieldError("/format", "unknown", message)])
    with transaction.atomic():
        refuse_too_many_checks(caller.project)
        return DatasetValidation.objects.create(
            project=caller.project, created_by=caller.user, upload=upload, mapping=mapping,
            format=format or guessed, compression=compression, stop_after=stop_after, config=config,
        )  # fmt: skip


def advance_validations(*, now: datetime) -> None:
    kind = Kind(
        jobs=DatasetValidation.objects.select_related("upload"), project="project_id", module=MODULE,
        activity="read the file", at_once=AT_ONCE, longest=LONGEST, job_file=_parse_job, read_result=read_result,
        settle=_settle, fail=_fail, record_progress=_record_progress,
    )  # fmt: skip
    advance(kind, now=now)


def create_version_of(
    caller: Caller, dataset: Dataset, validation: DatasetValidation
) -> tuple[DatasetVersion, bool]:
    """The rows that a validation found good, as the next version, or the version that has them. 409 or 422 else."""
    if validation.state in (ValidationState.QUEUED, ValidationState.RUNNING):
        raise conflict("not_validated", f"validation {validation.pk} is {validation.state}; wait for its end")
    if validation.mapping is None or validation.stop_after is not None:
        raise unprocessable(
            "rows_invalid",
            "this validation looked at columns or first rows only; validate the whole file with a mapping",
        )
    if validation.state != ValidationState.VALID or not validation.canonical_sha256:
        raise unprocessable(
            "rows_invalid", validation.message or "the validation did not find rows that can be kept",
            [FieldError(**error) for error in validation.result.get("errors", [])],
        )  # fmt: skip
    result = validation.result
    with transaction.atomic():
        store.lock_blob(validation.canonical_sha256)
        Dataset.objects.select_for_update().get(pk=dataset.pk)
        same = DatasetVersion.objects.filter(dataset=dataset, sha256=validation.canonical_sha256)
        existing = same.select_related("dataset").first()
        if existing is not None:
            return existing, False
        newest = dataset.versions.aggregate(newest=Max("number"))["newest"] or 0
        version = DatasetVersion.objects.create(
            dataset=dataset, number=newest + 1, sha256=validation.canonical_sha256,
            bytes=result["canonical_bytes"], rows=sum(result["splits"].values()), splits=result["splits"],
            with_completion=result["with_completion"], with_pair=result.get("with_pair", {}),
            sources=result["sources"], offsets=result["offsets"],
            mapping=rows.Mapping(**(validation.mapping or {})).as_json(), created_by=caller.user,
        )  # fmt: skip
    return version, True


def _parse_job(validation: DatasetValidation) -> ParseJob:
    return ParseJob(
        source=store.presign(validation.upload.sha256), format=validation.format,
        compression=validation.compression, mapping=validation.mapping, stop_after=validation.stop_after,
        config=validation.config, filename=validation.upload.filename,
    )  # fmt: skip


def _record_progress(validation: DatasetValidation, folder: Path) -> None:
    if (progress := read_progress(folder)) is not None:
        DatasetValidation.objects.filter(pk=validation.pk, state=ValidationState.RUNNING).update(
            bytes_seen=min(progress.bytes_seen, validation.upload.bytes), rows_seen=progress.rows_seen
        )


def _settle(validation: DatasetValidation, result: ParseResult, folder: Path, now: datetime) -> None:
    """Adopt what the process left: the canonical rows and the report become blobs, the numbers a row."""
    # What it quotes of the file may hold what no database takes, and then no later tick would get past it.
    document = rows.presentable(msgspec.to_builtins(result), depth=40)
    kept: dict[str, Any] = {
        "result": document, "ended_at": now, "bytes_seen": validation.upload.bytes, "rows_seen": result.rows,
    }  # fmt: skip
    if result.canonical_sha256:
        _adopt_once(folder / CANONICAL_FILE, store.Blob(result.canonical_sha256, result.canonical_bytes))
        kept["canonical_sha256"] = result.canonical_sha256
    report = folder / REPORT_FILE
    if report.is_file():
        with report.open("rb") as file:
            kept["report_sha256"] = store.put(store.read_chunks(file)).sha256
    if result.refused is not None:
        kept |= {"state": ValidationState.INVALID, "message": document["refused"]["message"]}
        kept["result"]["errors"] = [{"pointer": FILE_POINTER, **document["refused"]}]
    elif result.faults:
        many = f"{result.faults}{' or more' if result.faults_cut else ''} rows are"
        kept["state"] = ValidationState.INVALID
        kept["message"] = (
            f"{many if result.faults > 1 else 'a row is'} faulty; first: {document['errors'][0]['message']}"
        )
    else:
        kept["state"] = ValidationState.VALID
    with transaction.atomic():
        for sha256 in (kept.get("canonical_sha256"), kept.get("report_sha256")):
            if sha256:
                store.lock_blob(sha256)
        DatasetValidation.objects.filter(pk=validation.pk, state=ValidationState.RUNNING).update(**kept)


def _adopt_once(path: Path, blob: store.Blob) -> None:
    """A tick that was killed after this has taken the file away already; the blob is there then."""
    if path.exists() or not store.has_blob(blob.sha256):
        store.move_in(path, blob)  # where neither is there, it says so


def _fail(validation: DatasetValidation, code: str, message: str, now: datetime) -> None:
    DatasetValidation.objects.filter(pk=validation.pk, state=ValidationState.RUNNING).update(
        state=ValidationState.FAILED, message=rows.presentable(message[:1000]), ended_at=now
    )
