"""The audit log of the project."""

from __future__ import annotations

from oolong.client.endpoints import call
from oolong.client.endpoints.call import Call
from oolong.client.models import AuditEntry, Page


def page(**filters: str | None) -> Call[Page[AuditEntry]]:
    return call.page("audit", AuditEntry, **filters)


def export(form: str, **filters: str | None) -> Call[bytes]:
    return call.get("audit/export", bytes, format=form, **filters)
