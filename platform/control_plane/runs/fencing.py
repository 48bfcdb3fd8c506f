"""Fencing: a node may act for an attempt only while it is the run's newest attempt and has not ended."""

from __future__ import annotations

from control_plane.core.api.errors import stale_epoch
from control_plane.runs.models import Attempt, Run
from oolong.contracts.lifecycle import AttemptStatus


def check_epoch(attempt: Attempt, run: Run, epoch: int) -> None:
    if epoch != attempt.epoch or attempt.epoch != run.epoch or attempt.status == AttemptStatus.ENDED:
        raise stale_epoch(
            f"attempt {attempt.number} of {run.name!r} has epoch {attempt.epoch} and is {attempt.status.lower()}; "
            f"the run is at epoch {run.epoch}, this call came with {epoch}"
        )
