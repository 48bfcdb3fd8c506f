"""Steps of a tick that do not hold one another up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from celery.exceptions import SoftTimeLimitExceeded

log = logging.getLogger(__name__)


@contextmanager
def apart(what: str, tell: Callable[[Exception], object] | None = None) -> Iterator[None]:
    """An error of this step is written to the log, whole, and told to `tell`; the tick goes on with the next step.

    That the tick's own time is over is no error of the step: it goes through.
    """
    try:
        yield
    except SoftTimeLimitExceeded:
        raise
    except Exception as error:
        log.exception("%s was broken off", what)
        if tell is not None:
            tell(error)


def unforeseen(error: Exception) -> str:
    """For the row of whoever met it."""
    return f"an error of the server: {type(error).__name__}: {error}"
