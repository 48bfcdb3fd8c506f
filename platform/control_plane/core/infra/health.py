"""Liveness and readiness. Open to everybody, so an answer names what fails and nothing of how it is reached."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import cache

import psycopg
import redis
from django.conf import settings
from django.db.migrations.loader import MigrationLoader
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from control_plane.core.infra.database import connect_parameters

log = logging.getLogger(__name__)
SECONDS = 3
KEPT_SECONDS = 1.0


class NotReady(Exception):
    """A part that requests need does not work; the message is shown to anybody."""


@never_cache
@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """This process answers. It asks nobody: an outage of the database must not have it restarted."""
    return JsonResponse({"status": "ok"})


@never_cache
@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """Whether requests can be served: 200, or 503 with the parts that fail."""
    found = readiness.found()
    ready = all(word == "ok" for word in found.values())
    return JsonResponse({"ready": ready, "checks": found}, status=200 if ready else 503)


class Readiness:
    """What the checks of this process say, asked once a second at most: the address is open to everybody."""

    def __init__(self) -> None:
        self._one_asks = threading.Lock()
        self._found: dict[str, str] = {}
        self._until = 0.0  # of time.monotonic()

    def found(self) -> dict[str, str]:
        with self._one_asks:
            if time.monotonic() >= self._until:
                self._found = {name: _said(name, check) for name, check in CHECKS.items()}
                self._until = time.monotonic() + KEPT_SECONDS
            return self._found

    def forget(self) -> None:
        self._until = 0.0


readiness = Readiness()


def _said(name: str, check: Callable[[], None]) -> str:
    try:
        check()
    except NotReady as failure:
        log.warning("not ready: %s: %s", name, failure, exc_info=failure.__cause__)
        return str(failure)
    return "ok"


def check_database() -> None:
    """The database answers and knows every migration of this code."""
    try:
        with psycopg.connect(**connect_parameters(), connect_timeout=SECONDS, autocommit=True) as connection:
            rows = connection.execute("SELECT app, name FROM django_migrations").fetchall()
    except psycopg.errors.UndefinedTable as error:
        raise NotReady("no migration is applied: run `manage.py migrate`") from error
    except psycopg.Error as error:
        raise NotReady(f"does not answer ({type(error).__name__})") from error
    missing = sorted(f"{app}.{name}" for app, name in known_migrations() - set(rows))
    if missing:
        raise NotReady(f"{len(missing)} migration(s) are not applied: run `manage.py migrate`")


@cache
def known_migrations() -> frozenset[tuple[str, str]]:
    """Every migration of this code."""
    return frozenset(MigrationLoader(None, ignore_no_migrations=True).disk_migrations or {})


def check_broker() -> None:
    broker = redis.Redis.from_url(
        settings.ENVIRONMENT.redis_url, socket_timeout=SECONDS, socket_connect_timeout=SECONDS
    )
    try:
        broker.ping()
    except redis.RedisError as error:
        raise NotReady(f"does not answer ({type(error).__name__})") from error
    finally:
        broker.close()


# The catalog adds "store".
CHECKS: dict[str, Callable[[], None]] = {"database": check_database, "broker": check_broker}
