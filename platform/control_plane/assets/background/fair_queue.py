"""What of the machine a project may use while others wait: a bound on what it asks for, and whose turn is next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Count, Min, QuerySet

from control_plane.accounts.models import Project
from control_plane.assets.models import (
    CheckState,
    DatasetMeasurement,
    DatasetValidation,
    FetchUnderWay,
    MeasurementState,
    ModelCheck,
    ValidationState,
)
from control_plane.core.api.errors import Problem, conflict
from control_plane.core.infra import clock
from control_plane.core.infra.database import give_back_connection
from control_plane.core.infra.locks import LockClass, transaction_lock

STORING = timedelta(minutes=5)  # after the last byte came


@dataclass(frozen=True)
class QueueEntry:
    """The oldest of a project that waits."""

    id: str
    project: str


def next_project(waiting: Sequence[QueueEntry], under_way: Mapping[str, int]) -> QueueEntry | None:
    """The oldest of the project that has the fewest under way, so that nobody waits behind another's hundred."""
    return min(waiting, key=lambda first: (under_way.get(first.project, 0), first.id), default=None)


def next_job(
    queued: QuerySet[DatasetValidation] | QuerySet[DatasetMeasurement] | QuerySet[ModelCheck],
    running: QuerySet[DatasetValidation] | QuerySet[DatasetMeasurement] | QuerySet[ModelCheck],
    *,
    project: str,
) -> str | None:
    """Id of the row that is to be started next; `project` is the way from a row to its project."""
    oldest = queued.order_by().values(project).annotate(first=Min("pk")).values_list(project, "first")
    counts = dict(running.order_by().values(project).annotate(n=Count("pk")).values_list(project, "n"))
    turn = next_project([QueueEntry(first, owner) for owner, first in oldest], counts)
    return turn.id if turn else None


def refuse_too_many_checks(project: Project) -> None:
    """409 when it has as many validations, measurements and checks of models open as it may.

    In the transaction of the new one.
    """
    transaction_lock(LockClass.QUOTA, f"checks {project.pk}")
    most = settings.ENVIRONMENT.project_checks
    open_validations = DatasetValidation.objects.filter(
        project=project, state__in=[ValidationState.QUEUED, ValidationState.RUNNING]
    )
    open_measurements = DatasetMeasurement.objects.filter(
        version__dataset__project=project, state__in=[MeasurementState.QUEUED, MeasurementState.RUNNING]
    )
    open_models = ModelCheck.objects.filter(model__project=project).exclude(state=CheckState.ENDED)
    if open_validations.count() + open_measurements.count() + open_models.count() >= most:
        raise conflict(
            "too_many",
            f"{most} checks of datasets and models of this project wait or run; wait for one to end",
        )


@contextmanager
def fetching(project: Project, *, seconds: float) -> Iterator[None]:
    """A place among the project's imports by URL, without holding a database connection. 429 else."""
    mine = _take_place(project, until=clock.now() + timedelta(seconds=seconds) + STORING)
    try:
        give_back_connection()
        yield
    finally:
        FetchUnderWay.objects.filter(pk=mine.pk).delete()


def _take_place(project: Project, *, until: datetime) -> FetchUnderWay:
    most = settings.ENVIRONMENT.project_fetches
    with transaction.atomic():
        transaction_lock(LockClass.QUOTA, f"fetches {project.pk}")
        own = FetchUnderWay.objects.filter(project=project)
        own.filter(until__lt=clock.now()).delete()
        if own.count() >= most:
            raise Problem(
                429, "too_many_fetches",
                f"{most} imports by URL of this project are under way; wait for one to end",
                headers={"Retry-After": "5"},
            )  # fmt: skip
        return FetchUnderWay.objects.create(project=project, until=until)
