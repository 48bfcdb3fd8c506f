"""What the doctor collects. Each part is independent: without a database the rest is still reported."""

from __future__ import annotations

import platform
import shutil
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import DatabaseError, connection
from django.db.models import Count
from redis.exceptions import RedisError

import oolong
from control_plane.core.infra.health import known_migrations
from control_plane.core.models import Tick
from control_plane.core.security.forwarded import untrusted_sender
from control_plane.fleet.metrics import slot_states
from control_plane.fleet.models import Node
from control_plane.ops.dependency_checks import check_dependencies
from control_plane.ops.redacted_settings import redacted_settings
from control_plane.runs.models import Attempt, Job, Run, RunEvent
from oolong.contracts.lifecycle import AttemptStatus, EndReason, RunStatus
from oolong.sandbox.kernel import namespace_error

PACKAGES = (
    "Django",
    "djangorestframework",
    "channels",
    "celery",
    "psycopg",
    "redis",
    "uvicorn",
    "msgspec",
    "pydantic",
)
LOG_LINES = 200
ERRORS = 100
REQUESTED = (EndReason.COMPLETED, EndReason.STOPPED_BY_USER, EndReason.PAUSED_BY_USER)


def collect(*, now: datetime, logs: Path | None) -> dict[str, Any]:
    """Plain data by section. A section that cannot be read says why in the place of its data."""
    found: dict[str, Any] = {
        "made_at": now.isoformat(),
        "versions": _versions(),
        "settings": redacted_settings(),
        "services": [vars(service) for service in check_dependencies()],
        "disk": list(_disk()),
        "dashboard": _dashboard(),
        "untrusted_proxy": _untrusted_proxy(),
        "sandbox": namespace_error(),
        "logs": _logs(logs),
    }
    empty: dict[str, Any] = {
        "migrations": {},
        "ticks": [],
        "runs": {},
        "slots": {},
        "nodes": [],
        "errors": [],
    }
    parts: dict[str, Callable[[], Any]] = {
        "migrations": _migrations,
        "ticks": lambda: _ticks(now),
        "runs": lambda: _runs(now),
        "slots": slot_states,
        "nodes": lambda: _nodes(now),
        "errors": _errors,
    }
    unreadable = {}
    for name, read in parts.items():
        try:
            found[name] = read()
        except DatabaseError as error:
            found[name], unreadable[name] = empty[name], f"{type(error).__name__}: {error}"
    found["unreadable"] = unreadable
    return found


def _versions() -> dict[str, str]:
    found = {"oolong": oolong.__version__, "python": sys.version.split()[0], "system": platform.platform()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def _disk() -> Iterator[dict[str, Any]]:
    for what, path in (
        ("the data folder", settings.ENVIRONMENT.data_dir),
        ("the temporary folder", Path(tempfile.gettempdir())),
    ):
        if path.is_dir():
            usage = shutil.disk_usage(path)
            yield {"what": what, "path": str(path), "free_bytes": usage.free, "total_bytes": usage.total}


def _dashboard() -> dict[str, Any]:
    folder = settings.ENVIRONMENT.webui_dist
    return {"path": str(folder), "built": (folder / "index.html").is_file()}


def _untrusted_proxy() -> str:
    try:
        return untrusted_sender(settings.ENVIRONMENT.redis_url)
    except (RedisError, ValueError):
        return ""  # that Valkey does not answer stands among the services


def _migrations() -> dict[str, Any]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT app, name FROM django_migrations")
        applied = set(cursor.fetchall())
        cursor.execute("SELECT pg_database_size(current_database()), current_setting('server_version')")
        size, server = cursor.fetchone()
    known = known_migrations()
    return {
        "not_applied": sorted(f"{app}.{name}" for app, name in known - applied),
        "of_a_newer_version": sorted(
            f"{app}.{name}" for app, name in applied - known if app in {app for app, _ in known}
        ),
        "database_bytes": size,
        "server": server,
    }


def _ticks(now: datetime) -> list[dict[str, Any]]:
    return [
        {
            "name": tick.name, "count": tick.count, "failures": tick.failures, "last_seconds": tick.last_seconds,
            "mean_seconds": tick.seconds / max(1, tick.count + tick.failures),
            "age_seconds": (now - tick.last_at).total_seconds(),
        }
        for tick in Tick.objects.order_by("name")
    ]  # fmt: skip


def _runs(now: datetime) -> dict[str, Any]:
    oldest = Run.objects.filter(status=RunStatus.QUEUED).order_by("status_at").first()
    return {
        "by_status": dict(Run.objects.values_list("status").annotate(count=Count("pk"))),
        "attempts_live": Attempt.objects.exclude(status=AttemptStatus.ENDED).count(),
        "oldest_queued_seconds": (now - oldest.status_at).total_seconds() if oldest else 0.0,
        "oldest_queued_reason": oldest.pending_reason if oldest else "",
    }


def _nodes(now: datetime) -> list[dict[str, Any]]:
    return [
        {
            "id": node.pk, "name": node.name, "status": node.status, "agent_version": node.agent_version,
            "silent_seconds": (now - node.last_seen_at).total_seconds(), "disk_free_bytes": node.disk_free_bytes,
            "slots": node.slots.filter(present=True).count(),
            "unhealthy": node.slots.filter(present=True, healthy=False).count(),
        }
        for node in Node.objects.exclude(pool=None).order_by("name")
    ]  # fmt: skip


def _errors() -> list[dict[str, Any]]:
    """Runs and jobs that ended without a request. Messages may quote what users wrote: the caller redacts."""
    jobs = (
        Job.objects.exclude(reason="")
        .exclude(reason__in=REQUESTED)
        .order_by("-pk")
        .values("pk", "name", "reason", "message", "exit_code", "attempt_id")[:ERRORS]
    )
    runs = (
        Run.objects.exclude(fault__in=("", "user"))
        .order_by("-pk")
        .values("pk", "status", "status_at", "fault", "reason", "reason_message")[:ERRORS]
    )
    events = (
        RunEvent.objects.filter(kind__in=("bad_outbox_line", "metric_conflict"))
        .order_by("-pk")
        .values("run_id", "at", "kind", "message")[:ERRORS]
    )
    return [dict(row) for rows in (jobs, runs, events) for row in rows]


def _logs(folder: Path | None) -> dict[str, list[str]]:
    """The last lines of each log file."""
    found = {}
    for file in sorted(folder.glob("*.log")) if folder is not None and folder.is_dir() else ():
        with file.open(errors="replace") as stream:
            found[file.name] = [line.rstrip("\n")[:2000] for line in deque(stream, maxlen=LOG_LINES)]
    return found
