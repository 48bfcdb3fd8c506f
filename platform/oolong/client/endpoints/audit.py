"""The audit log of the project."""

from __future__ import annotations

from oolong.client.endpoints import request_spec
from oolong.client.endpoints.request_spec import RequestSpec
from oolong.client.models import AuditEntry, Page


def page(**filters: str | None) -> RequestSpec[Page[AuditEntry]]:
    return request_spec.page("audit", AuditEntry, **filters)


def export(form: str, **filters: str | None) -> RequestSpec[bytes]:
    return request_spec.get("audit/export", bytes, format=form, **filters)
