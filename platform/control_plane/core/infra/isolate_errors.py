"""Isolate the steps of a periodic task from each other's errors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from celery.exceptions import SoftTimeLimitExceeded

log = logging.getLogger(__name__)


@contextmanager
def isolate_errors(what: str, report: Callable[[Exception], object] | None = None) -> Iterator[None]:
    """Log an error of this step with its traceback, pass it to `report`, and continue with the next step.

    The time limit of the task itself is not an error of the step: SoftTimeLimitExceeded propagates.
    """
    try:
        yield
    except SoftTimeLimitExceeded:
        raise
    except Exception as error:
        log.exception("%s failed", what)
        if report is not None:
            report(error)


def format_internal_error(error: Exception) -> str:
    """The message for the row of the object that failed."""
    return f"an error of the server: {type(error).__name__}: {error}"
