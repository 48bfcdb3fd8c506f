"""Celery tasks, one line each. A tick may be lost, late or run twice."""

from __future__ import annotations

from celery import shared_task

from control_plane.accounts.audit import audit_log
from control_plane.core.infra.locks import single_instance


@shared_task
@single_instance("seal-audit")
def seal_audit() -> None:
    audit_log.append_to_chain()
