"""Row locks of runs. Code that changes a run locks its row first, before any other lock (see common.live)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from django.db import transaction

from control_plane.core.infra.isolate_errors import isolate_errors
from control_plane.runs.models import Run
from control_plane.runs.selectors import RELATED
from oolong.logs import about


def lock_run(run_id: str, *, skip_locked: bool = False) -> Any:
    """The Run row, locked: the first lock of every transaction that changes a run (see common.live)."""
    rows = Run.objects.select_for_update(of=("self",), skip_locked=skip_locked).select_related(*RELATED)
    return rows.filter(pk=run_id).first() if skip_locked else rows.get(pk=run_id)


def for_each_locked(run_ids: Iterable[str], step: Callable[[Run], None]) -> None:
    """Lock each run in turn, skipping locked ones, and call `step`. Failures are raised together at the end."""
    failures: list[Exception] = []
    for run_id in run_ids:
        with (
            about(run=run_id),
            isolate_errors(f"reconciling run {run_id}", failures.append),
            transaction.atomic(),
        ):
            run = lock_run(run_id, skip_locked=True)
            if run is not None:
                step(run)
    if failures:
        raise ExceptionGroup("some runs could not be reconciled", failures)
