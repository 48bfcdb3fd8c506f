"""When a run starts and ends, as the newest forecast has it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from control_plane.runs.durations import Source
from control_plane.runs.models import Run, RunForecast
from oolong.contracts.lifecycle import ENDED, RunStatus

NOT_COMPUTED = "not computed yet"
REPLAY = "replay"  # source of a start


@dataclass(frozen=True)
class Eta:
    """When something happens, for EtaSerializer. None: unknown."""

    p50: datetime | None
    p90: datetime | None
    source: str
    message: str


def start_of(run: Run, row: RunForecast | None) -> Eta | None:
    """When a queued run starts; None for one that does not wait."""
    if run.status != RunStatus.QUEUED:
        return None
    if row is None:
        return Eta(None, None, Source.UNKNOWN, NOT_COMPUTED)
    return Eta(row.start_p50_at, row.start_p90_at, REPLAY, row.start_message)


def end_of(run: Run, row: RunForecast | None) -> Eta | None:
    """When a queued or active run ends; None for one that has ended, is paused or is a draft."""
    if run.status in (*ENDED, RunStatus.DRAFT, RunStatus.PAUSED):
        return None
    if row is None:
        return Eta(None, None, Source.UNKNOWN, NOT_COMPUTED)
    return Eta(row.end_p50_at, row.end_p90_at, row.end_source, row.end_message)


def forecasts_of(runs: Iterable[Run]) -> dict[str, RunForecast]:
    return {row.run_id: row for row in RunForecast.objects.filter(run__in=[run.pk for run in runs])}
