"""A node speaks for an attempt only while that attempt is the run's newest and goes on."""

from __future__ import annotations

from control_plane.core.api.errors import stale_epoch
from control_plane.runs.models import Attempt, Run
from oolong.contracts.lifecycle import AttemptStatus


def refuse_stale(attempt: Attempt, run: Run, epoch: int) -> None:
    if epoch != attempt.epoch or attempt.epoch != run.epoch or attempt.status == AttemptStatus.ENDED:
        raise stale_epoch(
            f"attempt {attempt.number} of {run.name!r} has epoch {attempt.epoch} and is {attempt.status.lower()}; "
            f"the run is at epoch {run.epoch}, this call came with {epoch}"
        )
