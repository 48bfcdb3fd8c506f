"""Classify an error while storing: a rejected line, a lock that is held for long, or a failure of the database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import DataError, IntegrityError, InterfaceError, OperationalError
from psycopg.errors import DeadlockDetected, LockNotAvailable

from control_plane.core.api.errors import Problem

# The database or a rule of runs refuses a line. Foreign keys are checked at the commit, so no error of theirs is here.
# What was read at the limit of nesting may be beyond it when it is written.
REJECTED = (DataError, IntegrityError, Problem, RecursionError)


def busy(why: str) -> Problem:
    """Nothing was stored; the agent ships it again after some seconds."""
    return Problem(503, "busy", f"{why}; ship it again")


@contextmanager
def busy_if_locked() -> Iterator[None]:
    """Raises Problem 503 if another transaction holds the rows."""
    try:
        yield
    except OperationalError as error:
        if not _is_lock_error(error):
            raise
        raise busy(str(error).partition("\n")[0]) from error


def reraise_database_error(error: Exception) -> None:
    """A failure of the database concerns every chunk: the whole request fails, and its sender backs off."""
    if isinstance(error, InterfaceError | OperationalError) and not _is_lock_error(error):
        raise error


def _is_lock_error(error: Exception) -> bool:
    return isinstance(error.__cause__, DeadlockDetected | LockNotAvailable)
