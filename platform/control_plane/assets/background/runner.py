"""The tick that all background jobs share: processes of this machine that read what users uploaded."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Protocol, TypeVar

from django.db.models import QuerySet

from control_plane.assets.background.fair_queue import next_job
from control_plane.assets.models import DatasetMeasurement, DatasetValidation, ModelCheck
from control_plane.assets.storage import store
from control_plane.core.infra.isolate_errors import format_internal_error, isolate_errors

log = logging.getLogger(__name__)

QUEUED, RUNNING = "QUEUED", "RUNNING"  # in the states of all three kinds of job

Job = TypeVar("Job", DatasetValidation, DatasetMeasurement, ModelCheck)
AnyJob = TypeVar("AnyJob", DatasetValidation, DatasetMeasurement, ModelCheck, contravariant=True)


class Step(Protocol[AnyJob]):
    def __call__(self, job: AnyJob, /, *, here: str, now: datetime) -> None: ...


class Fail(Protocol[AnyJob]):
    def __call__(self, job: AnyJob, message: str, /, *, now: datetime) -> None: ...


def advance(
    jobs: QuerySet[Job],
    *,
    project: str,
    at_once: int,
    start: Step[Job],
    look_after: Step[Job],
    fail: Fail[Job],
    now: datetime,
) -> None:
    """One tick: look after what runs, then start what waits, at most `at_once` processes on this machine.

    `project` is the way from a row to its project. Safe to lose and to repeat.
    """
    here = socket.gethostname()
    running, queued = jobs.filter(state=RUNNING), jobs.filter(state=QUEUED)
    for job in running:
        with _isolated(job, fail, now=now):
            look_after(job, here=here, now=now)
    for _ in range(max(0, at_once - running.filter(host=here).count())):
        turn = next_job(queued, running, project=project)
        if turn is None:
            return
        job = jobs.get(pk=turn)
        with _isolated(job, fail, now=now):
            start(job, here=here, now=now)


@contextmanager
def _isolated(job: Job, fail: Fail[Job], *, now: datetime) -> Iterator[None]:
    """Pass the message of an error to `fail`, and continue with the next job.

    While the storage does not answer, a job that this step took and whose process did not start waits again.
    """
    what = f"{type(job).__name__} {job.pk}"
    with isolate_errors(what, lambda error: fail(job, format_internal_error(error), now=now)):
        try:
            yield
        except store.StorageUnavailable as error:
            log.warning("%s waits: %s", what, error)
            taken = type(job).objects.filter(pk=job.pk, state=RUNNING, pid=0, started_at=now)
            taken.update(state=QUEUED, started_at=None)
