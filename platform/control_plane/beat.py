"""Celery beat that skips most ticks while there is no work.

Once a second it checks for work: one query, and a flag that web processes set with each change. An idle stack costs
next to nothing, and the first tick after a change comes as soon as on a busy one.
"""

from __future__ import annotations

import logging
import math
import time
from datetime import timedelta
from functools import cache
from typing import Any

from celery.beat import PersistentScheduler
from django.conf import settings
from django.db import DatabaseError, connection
from django.db.models import F, QuerySet
from django.db.models.functions import Now

from control_plane.accounts.models import AuditEntry
from control_plane.assets.models import (
    CheckState,
    DatasetMeasurement,
    DatasetValidation,
    ImportState,
    MeasurementState,
    ModelCheck,
    ModelImport,
    ValidationState,
)
from control_plane.core.infra.activity import changed_lately
from control_plane.experiments.models import Sweep
from control_plane.experiments.sweeps import SweepStatus
from control_plane.fleet.models import Liveness, Node
from control_plane.runs.models import Attempt, Run
from control_plane.webhooks.models import Delivery, DeliveryState
from oolong.contracts.lifecycle import ENDED, AttemptStatus, RunStatus

log = logging.getLogger(__name__)

CHECK_SECONDS = 1.0
IDLE_SECONDS = 30.0
# A gap of 15 s between two sweeps is taken for an outage of ours (fleet.liveness.MAX_CHECK_GAP).
IDLE_SECONDS_OF = {"sweep-leases": 10.0}


class Scheduler(PersistentScheduler):  # type: ignore[misc]
    """While there is no work, send each tick only every `IDLE_SECONDS`. Longer periods do not change."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._busy = True
        self._check_again_at = -math.inf
        self._sent_at: dict[str, float] = {}
        super().__init__(*arguments, **options)

    def adjust(self, n: float, drift: float = 0.0) -> float:
        """Wake up when an entry is due. Celery wakes up 10 ms before, and then computes in a loop until it is."""
        return n + drift

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        now = time.monotonic()
        if now >= self._check_again_at:
            self._busy = is_busy()
            self._check_again_at = now + CHECK_SECONDS
        pause = 0.0 if self._busy else IDLE_SECONDS_OF.get(entry.name, IDLE_SECONDS)
        if now - self._sent_at.get(entry.name, -math.inf) < pause:
            return
        self._sent_at[entry.name] = now
        super().apply_entry(entry, producer=producer)


def is_busy() -> bool:
    """Whether a tick may find work: something changed recently, or is in progress. True if the check fails."""
    try:
        return changed_lately(settings.ENVIRONMENT.redis_url) or work_is_under_way()
    except DatabaseError as error:
        log.warning("cannot look for work, so every tick is sent: %s", error)
        connection.close()
        return True


def work_is_under_way() -> bool:
    sql, parameters = _question()
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return bool(cursor.fetchone()[0])


@cache
def _question() -> tuple[str, list[Any]]:
    """One SELECT over everything that the frequent ticks work on."""
    silence = timedelta(seconds=settings.ENVIRONMENT.node_lease_seconds * 0.6)
    resting = [*ENDED, RunStatus.DRAFT, RunStatus.PAUSED]
    work: list[QuerySet[Any]] = [
        Attempt.objects.exclude(status=AttemptStatus.ENDED),
        Run.objects.exclude(status__in=resting),
        Sweep.objects.filter(status=SweepStatus.RUNNING),
        DatasetValidation.objects.filter(state__in=[ValidationState.QUEUED, ValidationState.RUNNING]),
        DatasetMeasurement.objects.filter(state__in=[MeasurementState.QUEUED, MeasurementState.RUNNING]),
        ModelCheck.objects.exclude(state=CheckState.ENDED),
        ModelImport.objects.filter(state__in=[ImportState.QUEUED, ImportState.RUNNING, ImportState.CHECKING]),
        AuditEntry.objects.filter(number=None),
        Delivery.objects.filter(state=DeliveryState.PENDING, next_at__lte=Now()),
        Node.objects.filter(liveness=Liveness.READY, last_seen_at__lt=Now() - silence),
        Node.objects.filter(liveness=Liveness.UNRESPONSIVE, last_seen_at__gt=Now() - silence),
    ]
    parts = [rows.order_by().values(one=F("pk")).query.sql_with_params() for rows in work]
    sql = " OR ".join(f"EXISTS({part})" for part, _ in parts)
    return f"SELECT {sql}", [parameter for _, given in parts for parameter in given]
