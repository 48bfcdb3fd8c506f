"""A `dedupe_key` names what a pipeline wants once: for the same key and the same spec there is one run.

Unlike an `Idempotency-Key` it does not forget. A run that can no longer give its pipeline an answer (it was stopped,
or failed through no fault of its own) lets go of its key, so that starting the pipeline again starts a run.
"""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from typing import Any

from django.db import transaction

from control_plane.accounts.identity.caller import Caller
from control_plane.core.api.errors import Problem
from control_plane.core.infra.locks import LockClass, hold_until_commit
from control_plane.runs.events import note
from control_plane.runs.models import Run
from control_plane.runs.submission import create_run
from oolong.contracts.lifecycle import Fault, RunStatus

NOT_THE_RUNS_OWN = (Fault.INFRA, Fault.PLATFORM)


def create_once(caller: Caller, document: Any, *, key: str, now: datetime) -> tuple[Run, bool]:
    """The run with this key, and whether it was made now. 409 `dedupe_mismatch` when it has another spec."""
    digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
    with transaction.atomic():
        # Of two at once the second finds the first one's run.
        hold_until_commit(LockClass.DEDUPE, f"{caller.project.pk} {key}")
        found = Run.objects.filter(project=caller.project, dedupe_key=key).first()
        if found is not None and not _lets_go(found):
            if found.dedupe_sha256 != digest:
                raise Problem(
                    409, "dedupe_mismatch",
                    f"dedupe_key {key!r} is run {found.pk} with another spec; take another key for another spec "
                    "(for example with the commit in it)",
                    run_id=found.pk,
                )  # fmt: skip
            return found, False
        if found is not None:
            Run.objects.filter(pk=found.pk).update(dedupe_key=None)
            note(found, "dedupe_key", f"let go of {key!r}: a new run has it", at=now)
        made = create_run(caller, document, now=now)
        made.dedupe_key, made.dedupe_sha256 = key, digest
        made.save(update_fields=["dedupe_key", "dedupe_sha256"])
    return made, True


def _lets_go(run: Run) -> bool:
    return run.status == RunStatus.STOPPED or (
        run.status == RunStatus.FAILED and run.fault in NOT_THE_RUNS_OWN
    )
