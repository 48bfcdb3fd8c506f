"""One step of a background job: its errors end in its own row."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime

from control_plane.assets.models import DatasetMeasurement, DatasetValidation, ModelCheck
from control_plane.assets.storage import store
from control_plane.core.infra.isolate_errors import format_internal_error, isolate_errors

log = logging.getLogger(__name__)

QUEUED, RUNNING = "QUEUED", "RUNNING"  # in the states of all three kinds of job


@contextmanager
def isolated_step(
    job: DatasetValidation | DatasetMeasurement | ModelCheck,
    what: str,
    fail: Callable[[str], object],
    *,
    now: datetime,
) -> Iterator[None]:
    """Pass the message of an error to `fail`, and continue with the next job.

    While the storage does not answer, a job that this step took and whose process did not start waits again.
    """
    with isolate_errors(what, lambda error: fail(format_internal_error(error))):
        try:
            yield
        except store.StorageUnavailable as error:
            log.warning("%s waits: %s", what, error)
            taken = type(job).objects.filter(pk=job.pk, state=RUNNING, pid=0, started_at=now)
            taken.update(state=QUEUED, started_at=None)
