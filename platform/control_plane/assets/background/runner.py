"""The tick that all background jobs share: processes of this machine that read what users uploaded.

A job that loses its machine, or whose process is killed without a word, waits again, at most `MOST_TRIES` times.
"""

from __future__ import annotations

import logging
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
from django.db.models import F, QuerySet

from control_plane.assets.background import JOB_FILE, processes
from control_plane.assets.background.fair_queue import next_job
from control_plane.assets.models import DatasetMeasurement, DatasetValidation, ModelCheck
from control_plane.assets.storage import store
from control_plane.core.infra.isolate_errors import format_internal_error, isolate_errors

log = logging.getLogger(__name__)

QUEUED, RUNNING = "QUEUED", "RUNNING"  # in the states of all three kinds of job
SILENCE = timedelta(minutes=5)  # of a machine, after which another one may have the job
TOUCH_INTERVAL = timedelta(seconds=30)  # between two records that the process is alive
MOST_TRIES = 3

Job = TypeVar("Job", DatasetValidation, DatasetMeasurement, ModelCheck)
Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class Kind(Generic[Job, Result]):
    """What one kind of background job has of its own. Every call may be lost and repeated."""

    jobs: QuerySet[Job]
    project: str  # the way from a row to its project
    module: str  # its process is `python -m module FOLDER`
    activity: str  # of its process, in error messages: "the process that {activity} died"
    at_once: int  # processes on this machine
    longest: timedelta  # of a process; as much again for storing what it leaves
    job_file: Callable[[Job], msgspec.Struct]  # what the process reads first
    read_result: Callable[[Path], Result | None]  # None until the process has written all
    settle: Callable[[Job, Result, Path, datetime], None]  # adopt the result; ends the job
    fail: Callable[[Job, str, str, datetime], None]  # code, message; ends the job
    record_progress: Callable[[Job, Path], None] = lambda job, folder: None


def advance(kind: Kind[Job, Any], *, now: datetime) -> None:
    """One tick: look after what runs, then start what waits, at most `kind.at_once` processes on this machine.

    Safe to lose and to repeat.
    """
    here = socket.gethostname()
    running, queued = kind.jobs.filter(state=RUNNING), kind.jobs.filter(state=QUEUED)
    for job in running:
        with _isolated(kind, job, now=now):
            _look_after(kind, job, here=here, now=now)
    for _ in range(max(0, kind.at_once - running.filter(host=here).count())):
        turn = next_job(queued, running, project=kind.project)
        if turn is None:
            return
        job = kind.jobs.get(pk=turn)
        with _isolated(kind, job, now=now):
            _start(kind, job, here=here, now=now)


def job_folder(job: Job) -> Path:
    """Where the process of this try works; what an earlier one still writes elsewhere is not read."""
    return _folder_of(job.pk, job.tries)


def _folder_of(job_id: str, tries: int) -> Path:
    return store.validation_folder(f"{job_id}-{tries}")


def _start(kind: Kind[Job, Any], job: Job, *, here: str, now: datetime) -> None:
    taken = kind.jobs.filter(pk=job.pk, state=QUEUED).update(
        state=RUNNING, host=here, pid=0, tries=F("tries") + 1, started_at=now, touched_at=now
    )
    if not taken:
        return
    job.refresh_from_db(fields=["tries"])
    folder = job_folder(job)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / JOB_FILE).write_bytes(msgspec.json.encode(kind.job_file(job)))
    kind.jobs.filter(pk=job.pk).update(pid=processes.start(kind.module, folder))


def _look_after(kind: Kind[Job, Any], job: Job, *, here: str, now: datetime) -> None:
    assert job.started_at is not None and job.touched_at is not None  # set with the state
    folder = job_folder(job)
    mine = job.host == here and job.pid > 0
    alive = mine and processes.is_alive(job.pid, folder)
    result = kind.read_result(folder)  # after the look at the process: it may have ended between the two
    if now - job.started_at > (kind.longest if result is None else 2 * kind.longest):
        if alive:
            processes.kill(job.pid)
        what = "it" if result is None else "storing its result"
        _fail(
            kind, job, "took_too_long", f"{what} took longer than {kind.longest.total_seconds():.0f} s", now
        )
    elif result is not None:
        kind.settle(job, result, folder, now)
        _remove_folders(job)
    elif mine and not alive and (words := processes.last_words(folder)):
        _fail(kind, job, "check_died", f"the process that {kind.activity} died: {words}", now)
    elif not alive and (mine or now - job.touched_at > SILENCE):
        _begin_again(kind, job, now=now)
    else:
        if alive and now - job.touched_at > TOUCH_INTERVAL:
            kind.jobs.filter(pk=job.pk, state=RUNNING).update(touched_at=now)
        kind.record_progress(job, folder)


def _begin_again(kind: Kind[Job, Any], job: Job, *, now: datetime) -> None:
    """Its machine is gone or was restarted, or something outside killed its process."""
    if job.tries >= MOST_TRIES:
        message = f"{job.tries} tries ended without a result: its machine was lost, or its process was killed"
        _fail(kind, job, "check_died", message, now)
        return
    log.warning("%s %s begins again after try %d on %s", type(job).__name__, job.pk, job.tries, job.host)
    kind.jobs.filter(pk=job.pk, state=RUNNING, tries=job.tries).update(state=QUEUED)


def _fail(kind: Kind[Job, Any], job: Job, code: str, message: str, now: datetime) -> None:
    log.warning("%s %s failed: %s", type(job).__name__, job.pk, message)
    kind.fail(job, code, message, now)
    _remove_folders(job)


def _remove_folders(job: Job) -> None:
    """Of every try: the last one has ended, and nothing reads what an earlier one left."""
    for tries in range(1, job.tries + 1):
        shutil.rmtree(_folder_of(job.pk, tries), ignore_errors=True)


@contextmanager
def _isolated(kind: Kind[Job, Any], job: Job, *, now: datetime) -> Iterator[None]:
    """Fail the job by an error of this step, and continue with the next job.

    While the storage does not answer, a job that this step took and whose process did not start waits again.
    """
    what = f"{type(job).__name__} {job.pk}"
    with isolate_errors(
        what, lambda error: _fail(kind, job, "server_error", format_internal_error(error), now)
    ):
        try:
            yield
        except store.StorageUnavailable as error:
            log.warning("%s waits: %s", what, error)
            taken = type(job).objects.filter(pk=job.pk, state=RUNNING, pid=0, started_at=now)
            taken.update(state=QUEUED, started_at=None, tries=F("tries") - 1)
