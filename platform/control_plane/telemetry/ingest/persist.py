"""Persist the lines of outbox files as rows, and how far each file was read. Runs in the caller's transaction, which
holds the runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from django.db import connection, transaction

from control_plane.core.infra import metrics
from control_plane.runs import telemetry_hooks
from control_plane.runs.models import Job
from control_plane.telemetry.ingest import bulk_insert
from control_plane.telemetry.ingest.lines import BadLine, ParsedChunk, ParsedLine
from control_plane.telemetry.models import OutboxFile
from oolong.contracts import telemetry as contract

Kind = TypeVar("Kind", bound=contract.Line)

_SAVE_OFFSETS = """
UPDATE telemetry_outboxfile AS file SET "offset" = new.reached, lines = new.lines
FROM unnest(%(ids)s::bigint[], %(offsets)s::bigint[], %(lines)s::bigint[]) AS new(id, reached, lines)
WHERE file.id = new.id
"""


@dataclass(frozen=True)
class FreshLines:
    """The lines of a chunk that the server has not stored yet."""

    job: Job
    file: OutboxFile
    start: int  # bytes from here on are new
    end: int
    good: list[ParsedLine]
    bad: list[BadLine]

    @classmethod
    def of(cls, parsed: ParsedChunk, job: Job, file: OutboxFile) -> FreshLines:
        fresh = parsed.since(file.offset)
        return cls(job, file, file.offset, fresh.end, fresh.good, fresh.bad)

    @property
    def source(self) -> str:
        return bulk_insert.source_of(self.job, self.file.name)

    def of_type(self, kind: type[Kind]) -> list[Kind]:
        return [parsed.line for parsed in self.good if isinstance(parsed.line, kind)]


def move_offsets(batch: Sequence[FreshLines]) -> None:
    """Record how far each file was read. Call it before `publish`, which locks topics until the commit."""
    for fresh in batch:
        fresh.file.offset = fresh.end
        fresh.file.lines += len(fresh.good) + len(fresh.bad)
    with connection.cursor() as cursor:
        cursor.execute(
            _SAVE_OFFSETS,
            {
                "ids": [fresh.file.pk for fresh in batch],
                "offsets": [fresh.file.offset for fresh in batch],
                "lines": [fresh.file.lines for fresh in batch],
            },
        )
    telemetry_hooks.record_read_offsets((fresh.job, fresh.file.name, fresh.end) for fresh in batch)
    transaction.on_commit(lambda: _count(batch))


def _count(batch: Sequence[FreshLines]) -> None:
    metrics.INGEST_BYTES.labels("outbox").inc(sum(fresh.end - fresh.start for fresh in batch))
    metrics.INGEST_LINES.inc(sum(len(fresh.good) + len(fresh.bad) for fresh in batch))


def persist(batch: Sequence[FreshLines]) -> list[bulk_insert.Conflict]:
    """Insert what the lines report. A key that is stored keeps its value; one with another value is a conflict."""
    conflicts = bulk_insert.insert_points(
        [(fresh.job, fresh.source, line) for fresh in batch for line in fresh.of_type(contract.Points)]
    )
    for fresh in batch:
        conflicts += bulk_insert.insert_histograms(fresh.job, fresh.source, fresh.of_type(contract.Histogram))
        bulk_insert.upsert_state_snapshots(fresh.job, fresh.of_type(contract.StateSnapshot))
        bulk_insert.insert_spans(fresh.job, fresh.of_type(contract.Spans))
        bulk_insert.insert_trajectories(fresh.job, fresh.of_type(contract.TrajectoryLine))
    return conflicts
