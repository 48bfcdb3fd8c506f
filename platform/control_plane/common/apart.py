"""Steps of a tick that do not hold one another up."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

log = logging.getLogger(__name__)


@contextmanager
def apart(what: str) -> Iterator[None]:
    """An error of this step is written to the log, whole; the tick goes on with the next step."""
    try:
        yield
    except Exception:
        log.exception("%s was broken off", what)
