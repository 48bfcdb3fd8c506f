"""Celery tasks, one line each. A tick may be lost, late or run twice."""

from __future__ import annotations

from celery import shared_task

from control_plane.accounts.audit import audit_log
from control_plane.core.infra.locks import only_one


@shared_task
@only_one("seal-audit")
def seal_audit() -> None:
    audit_log.seal()
