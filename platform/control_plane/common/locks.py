"""One logical scheduler over any number of workers: a tick that runs elsewhere is left out here."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from functools import wraps

from django.db import connection

from control_plane.common import clock
from oolong.logs import about
from oolong.tracing import span

_NOTE = """
INSERT INTO common_tick AS t (name, count, failures, seconds, last_seconds, last_at)
VALUES (%(name)s, %(done)s, %(failed)s, %(seconds)s, %(seconds)s, %(at)s)
ON CONFLICT (name) DO UPDATE SET
    count = t.count + EXCLUDED.count, failures = t.failures + EXCLUDED.failures,
    seconds = t.seconds + EXCLUDED.seconds, last_seconds = EXCLUDED.seconds, last_at = EXCLUDED.last_at
"""


def only_one(name: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Run a tick only if nobody runs the same one: a PostgreSQL advisory lock, gone with its connection."""
    key = tick_key(name)

    def decorate(tick: Callable[[], None]) -> Callable[[], None]:
        @wraps(tick)
        def guarded() -> None:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_try_advisory_lock(%s)", [key])
                if not cursor.fetchone()[0]:
                    return
                try:
                    with about(tick=name), span(f"tick {name}"):
                        _timed(name, tick)
                finally:
                    cursor.execute("SELECT pg_advisory_unlock(%s)", [key])

        return guarded

    return decorate


def tick_key(name: str) -> int:
    return zlib.crc32(name.encode())


def _timed(name: str, tick: Callable[[], None]) -> None:
    began, failed = time.perf_counter(), True
    try:
        tick()
        failed = False
    finally:
        seconds = time.perf_counter() - began
        with connection.cursor() as cursor:
            cursor.execute(
                _NOTE,
                {
                    "name": name,
                    "done": int(not failed),
                    "failed": int(failed),
                    "seconds": seconds,
                    "at": clock.now(),
                },
            )
