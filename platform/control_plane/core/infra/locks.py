"""Advisory locks of PostgreSQL, all of them, and the one logical scheduler over any number of workers.

PostgreSQL knows one space of 64-bit numbers for all locks of a database, so a lock's number is a hash of its class and
its name together: a resource lock never blocks a tick, whatever its name.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import wraps

import psycopg
from django.db import connection, transaction

from control_plane.core.infra import clock
from control_plane.core.infra.database import connect_parameters
from oolong.logs import about
from oolong.tracing import span

_NOTE = """
INSERT INTO core_tick AS t (name, count, failures, seconds, last_seconds, last_at)
VALUES (%(name)s, %(done)s, %(failed)s, %(seconds)s, %(seconds)s, %(at)s)
ON CONFLICT (name) DO UPDATE SET
    count = t.count + EXCLUDED.count, failures = t.failures + EXCLUDED.failures,
    seconds = t.seconds + EXCLUDED.seconds, last_seconds = EXCLUDED.seconds, last_at = EXCLUDED.last_at
"""


class LockClass(StrEnum):
    """The purpose of a lock. Two purposes never share a class."""

    TICK = "tick"
    AUDIT_SEAL = "audit seal"
    BLOB = "blob"  # its SHA-256
    DEDUPE = "dedupe"  # project and key of a pipeline
    IDENTITY = "identity"  # provider and subject
    COMPLETION = "completion"  # id of an upload in parts
    RESOURCE = "resource"  # path of the API, while it is changed with If-Match
    QUOTA = "quota"  # what is counted, and of whom


def lock_key(of: LockClass, name: str) -> int:
    digest = hashlib.sha256(f"{of.value}\0{name}".encode()).digest()
    return int.from_bytes(digest[:8], signed=True)


def transaction_lock(of: LockClass, name: str = "") -> None:
    """Take the lock, waiting if needed, and hold it until the caller's transaction ends."""
    if not connection.in_atomic_block:
        raise transaction.TransactionManagementError(f"{of.value} {name!r} is held within a transaction")
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [lock_key(of, name)])


@contextmanager
def session_lock(of: LockClass, name: str) -> Iterator[bool]:
    """Try to take the lock for the block, across transactions, on a connection outside the pool. Yields success."""
    with psycopg.connect(**connect_parameters(), autocommit=True) as own:
        row = own.execute("SELECT pg_try_advisory_lock(%s)", [lock_key(of, name)]).fetchone()
        yield bool(row and row[0])


def single_instance(name: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Skip a periodic task while another worker runs it: an advisory lock that ends with its connection."""
    key = tick_key(name)

    def decorate(tick: Callable[[], None]) -> Callable[[], None]:
        @wraps(tick)
        def guarded() -> None:
            drop_broken_connection()
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


def drop_broken_connection() -> None:
    """Close a connection that the server ended since the previous tick."""
    if connection.connection is not None and not connection.is_usable():
        connection.close()
        connection.close_pool()  # type: ignore[attr-defined]


def tick_key(name: str) -> int:
    return lock_key(LockClass.TICK, name)


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
