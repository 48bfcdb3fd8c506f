"""Idempotent submission for pipelines: one run per `dedupe_key` and spec.

Unlike an `Idempotency-Key` it does not expire. A run without a result for its pipeline (stopped, or failed because of
the infrastructure or the platform) releases its key, so that restarting the pipeline starts a new run.
"""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from typing import Any

from django.db import transaction

from control_plane.accounts.identity.caller import Caller
from control_plane.core.api.errors import Problem
from control_plane.core.infra.locks import LockClass, transaction_lock
from control_plane.runs.events import record_event
from control_plane.runs.models import Run
from control_plane.runs.submission import create_run
from oolong.contracts.lifecycle import Fault, RunStatus

NOT_USER_FAULTS = (Fault.INFRA, Fault.PLATFORM)


def idempotent_submit(caller: Caller, document: Any, *, key: str, now: datetime) -> tuple[Run, bool]:
    """The run with this key, and whether it was created now. 409 `dedupe_mismatch` when its spec differs."""
    digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
    with transaction.atomic():
        # Of two concurrent calls the second one finds the first one's run.
        transaction_lock(LockClass.DEDUPE, f"{caller.project.pk} {key}")
        found = Run.objects.filter(project=caller.project, dedupe_key=key).first()
        if found is not None and not _releases_key(found):
            if found.dedupe_sha256 != digest:
                raise Problem(
                    409, "dedupe_mismatch",
                    f"dedupe_key {key!r} is run {found.pk} with a different spec; use a different key for a different "
                    "spec (for example one with the commit in it)",
                    run_id=found.pk,
                )  # fmt: skip
            return found, False
        if found is not None:
            Run.objects.filter(pk=found.pk).update(dedupe_key=None)
            record_event(found, "dedupe_key", f"released {key!r} to a new run", at=now)
        run = create_run(caller, document, now=now)
        run.dedupe_key, run.dedupe_sha256 = key, digest
        run.save(update_fields=["dedupe_key", "dedupe_sha256"])
    return run, True


def _releases_key(run: Run) -> bool:
    return run.status == RunStatus.STOPPED or (
        run.status == RunStatus.FAILED and run.fault in NOT_USER_FAULTS
    )
