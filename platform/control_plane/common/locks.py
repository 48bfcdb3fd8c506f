from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import wraps

from django.db import connection


def only_one(name: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Run a tick only if nobody runs the same one: a PostgreSQL advisory lock, gone with its connection."""
    key = zlib.crc32(name.encode())

    def decorate(tick: Callable[[], None]) -> Callable[[], None]:
        @wraps(tick)
        def guarded() -> None:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_try_advisory_lock(%s)", [key])
                if not cursor.fetchone()[0]:
                    return
                try:
                    tick()
                finally:
                    cursor.execute("SELECT pg_advisory_unlock(%s)", [key])

        return guarded

    return decorate
