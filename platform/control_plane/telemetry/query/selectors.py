"""Every read of telemetry."""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Any

from django.db.models import OuterRef, QuerySet, Subquery
from django.db.models.functions import Greatest

from control_plane.core.api.errors import or_not_found
from control_plane.fleet.models import Node
from control_plane.runs.models import Job, Run, jobs_on
from control_plane.telemetry.ingest.chunks import LOG_PREFIX
from control_plane.telemetry.ingest.outbox import log_file_name
from control_plane.telemetry.models import (
    Histogram,
    LogChunk,
    MetricChunk,
    MetricPoint,
    MetricSeries,
    OutboxFile,
    StateSnapshot,
)
from oolong.contracts.lifecycle import JobState
from oolong.contracts.metrics import Metric, find_metric

MAX_LOG_BYTES = 1024 * 1024


def jobs_of_node(node: Node, job_ids: Set[str]) -> set[str]:
    """Those that were placed on this node, ended or not."""
    return set(jobs_on(node).filter(pk__in=job_ids).values_list("pk", flat=True))


# --- metrics ----------------------------------------------------------------------------------------------


def metric_names(run: Run) -> list[dict[str, Any]]:
    """What a run has measured so far, by name and axis."""
    last_row = MetricPoint.objects.filter(series=OuterRef("pk")).order_by("-x").values("x")[:1]
    last_chunk = MetricChunk.objects.filter(series=OuterRef("pk")).order_by("-first_x").values("last_x")[:1]
    series = (
        MetricSeries.objects.filter(run=run)
        .annotate(last_x=Greatest(Subquery(last_row), Subquery(last_chunk)))
        .order_by("name", "axis", "source")
    )
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for one in series:
        metric = find_metric(one.name) or Metric(one.name, "", "")
        entry = found.setdefault(
            (one.name, one.axis),
            {
                "name": one.name, "unit": metric.unit, "help": metric.help, "axis": one.axis,
                "sources": [], "last_x": None, "conflicts": 0,
            },
        )  # fmt: skip
        if one.source not in entry["sources"]:
            entry["sources"].append(one.source)
        if one.last_x is not None:
            entry["last_x"] = max(one.last_x, entry["last_x"] or one.last_x)
        entry["conflicts"] += one.conflicts
    return list(found.values())


def histograms(run: Run, *, name: str, after_x: int | None, limit: int) -> list[Histogram]:
    """The newest `limit` histograms of a name after `after_x`, ascending in x."""
    rows = Histogram.objects.filter(run=run, name=name).select_related("attempt")
    if after_x is not None:
        rows = rows.filter(x__gt=after_x)
    return list(rows.order_by("-x", "-attempt__number", "source")[:limit])[::-1]


def state_snapshots(run: Run, *, name: str | None = None) -> QuerySet[StateSnapshot]:
    """What the jobs of the run keep overwriting, by name; with `name` only that one, or none."""
    rows = StateSnapshot.objects.filter(run=run).order_by("name")
    return rows if name is None else rows.filter(name=name)


def state_snapshot(run: Run, name: str) -> StateSnapshot:
    return or_not_found(state_snapshots(run, name=name).first(), "document of this run", name)


# --- logs -------------------------------------------------------------------------------------------------


def logs(run: Run) -> QuerySet[OutboxFile]:
    """The logs of a run, jobs in the order of their attempts."""
    return (
        OutboxFile.objects.filter(job__attempt__run=run, name__startswith=LOG_PREFIX)
        .select_related("job__attempt")
        .order_by("job__attempt__number", "job__name", "pk")
    )


def log(run: Run, job_id: str, *, incarnation: int | None, offset: int, limit: int) -> dict[str, Any]:
    """A piece of a job's log: `limit` bytes from `offset`, or the last -offset bytes when it is negative.

    Without an incarnation the newest one that has a log. The piece ends at a whole character where it can;
    go on from `next_offset`. `end` says that nothing will follow: the job has exited and all was read.
    """
    job = or_not_found(Job.objects.filter(attempt__run=run, pk=job_id).first(), "job of this run", job_id)
    files = {row.incarnation: row for row in OutboxFile.objects.filter(job=job, name__startswith=LOG_PREFIX)}
    if incarnation is None:
        incarnation = max(files, default=0)
    file = files.get(incarnation)
    size = file.size if file else 0
    offset = max(0, size + offset) if offset < 0 else offset
    data = _log_bytes(job, incarnation, offset, limit)
    if offset + len(data) < size:
        data = _trim_partial_character(data)
    next_offset = offset + len(data)
    announced = job.outbox.get(log_file_name(incarnation), 0)
    return {
        "job": job.pk,
        "incarnation": incarnation,
        "offset": offset,
        "next_offset": next_offset,
        "text": data.decode(errors="replace"),
        "dropped_bytes": file.dropped if file else 0,
        "removed_at": file.removed_at if file else None,
        "end": job.state == JobState.EXITED
        and next_offset >= size
        and (file.offset if file else 0) >= announced,
    }


def log_chunks(run: Run, job_id: str, *, incarnation: int | None) -> tuple[str, Iterator[bytes]]:
    """A whole log: a name for the file, and its bytes piece by piece."""
    job = or_not_found(
        Job.objects.select_related("attempt").filter(attempt__run=run, pk=job_id).first(),
        "job of this run",
        job_id,
    )
    chunks = LogChunk.objects.filter(job=job)
    if incarnation is None:
        incarnation = chunks.order_by("-incarnation").values_list("incarnation", flat=True).first() or 0
    pieces = chunks.filter(incarnation=incarnation).order_by("offset").values_list("pk", flat=True)
    name = f"{run.pk}-{job.attempt.number}-{job.name}-{incarnation}.log"
    return name, (bytes(LogChunk.objects.values_list("data", flat=True).get(pk=pk)) for pk in list(pieces))


def _log_bytes(job: Job, incarnation: int, offset: int, limit: int) -> bytes:
    chunks = LogChunk.objects.filter(job=job, incarnation=incarnation)
    first = chunks.filter(offset__lte=offset).order_by("-offset").values_list("offset", flat=True).first()
    if first is None:
        return b""
    data = bytearray()
    wanted = offset - first + limit
    for piece in (
        chunks.filter(offset__gte=first)
        .order_by("offset")
        .values_list("data", flat=True)
        .iterator(chunk_size=64)
    ):
        data += piece
        if len(data) >= wanted:
            break
    return bytes(data[offset - first : wanted])


def _trim_partial_character(data: bytes) -> bytes:
    """Without a UTF-8 character that is cut at the end; at most three bytes shorter."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0b1100_0000 == 0b1000_0000:
            continue
        length = 1 if byte < 0x80 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
        return data[:-back] if length > back else data
    return data
