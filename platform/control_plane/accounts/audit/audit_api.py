"""Reading the audit log: pages with filters, and an export as JSON lines or CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import Any

from django.db.models import Q, QuerySet
from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.accounts import selectors
from control_plane.accounts.audit import audit_log
from control_plane.accounts.identity.caller import caller_of
from control_plane.accounts.models import AuditEntry
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.endpoints import endpoint
from control_plane.core.api.errors import FieldError, unprocessable
from control_plane.core.api.pagination import paginate, read_page
from control_plane.core.api.query_params import csv_safe, read_moment
from control_plane.core.api.rendering import ResponseSerializer
from control_plane.core.api.schema import PAGE_PARAMETERS, page_of
from control_plane.core.infra.clock import rfc3339


class AuditActorSerializer(ResponseSerializer):
    kind = serializers.CharField(
        source="actor_kind", help_text="user, service_account, node, system or anonymous"
    )
    id = serializers.CharField(source="actor_id")
    name = serializers.CharField(source="actor_name")
    token_id = serializers.CharField(help_text="of the token that was used; empty for a browser session")


class AuditTargetSerializer(ResponseSerializer):
    kind = serializers.CharField(source="target_kind")
    id = serializers.CharField(source="target_id")
    name = serializers.CharField(source="target_name")


class AuditEntrySerializer(ResponseSerializer):
    id = serializers.CharField(source="entry_id")
    at = serializers.DateTimeField()
    action = serializers.CharField()
    actor = AuditActorSerializer(source="*")
    address = serializers.CharField()
    request_id = serializers.CharField()
    target = AuditTargetSerializer(source="*")
    message = serializers.CharField()
    data = serializers.DictField()
    number = serializers.IntegerField(allow_null=True, help_text="place in the project's chain, once sealed")
    sha256 = serializers.CharField(help_text="over the link before and this entry; empty until sealed")


FILTERS = [
    OpenApiParameter("actor", OpenApiTypes.STR, description="id or name of who did it"),
    OpenApiParameter("action", OpenApiTypes.STR, description="run.stop, or run.* for all of runs"),
    OpenApiParameter("target", OpenApiTypes.STR, description="id or name of what it was done to"),
    OpenApiParameter("since", OpenApiTypes.DATETIME, description="not before this moment"),
    OpenApiParameter("until", OpenApiTypes.DATETIME, description="before this moment"),
]


def filtered(request: Request) -> QuerySet[AuditEntry]:
    found = selectors.audit_entries(caller_of(request))
    asked = request.query_params
    if actor := asked.get("actor"):
        found = found.filter(Q(actor_id=actor) | Q(actor_name=actor))
    if action := asked.get("action"):
        whole = action.removesuffix("*")
        found = found.filter(action__startswith=whole) if whole != action else found.filter(action=action)
    if target := asked.get("target"):
        found = found.filter(Q(target_id=target) | Q(target_name=target))
    if since := read_moment(request, "since"):
        found = found.filter(at__gte=since)
    if until := read_moment(request, "until"):
        found = found.filter(at__lt=until)
    return found


class AuditView(ApiView):
    scopes = {"GET": "audit:read"}

    @extend_schema(
        operation_id="list_audit_entries",
        parameters=FILTERS + PAGE_PARAMETERS,
        responses=page_of(AuditEntrySerializer),
    )
    def get(self, request: Request) -> Response:
        """List audit entries.

        Who did what in the project, newest first. Filter by action, actor, target and time.
        """
        return Response(paginate(filtered(request), read_page(request), AuditEntrySerializer.render))


class AuditChainSerializer(ResponseSerializer):
    number = serializers.IntegerField(help_text="of the newest entry in the chain; 0: none")
    sha256 = serializers.CharField(help_text="of that entry; note it elsewhere, and a cut at the end shows")
    unsealed = serializers.IntegerField(help_text="entries that join the chain within moments")
    checked = serializers.IntegerField(
        help_text="newest entries of the chain that were verified for this answer"
    )
    broken = serializers.CharField(
        help_text="the first of them that does not hold, and why; empty: they hold"
    )


class AuditChainView(ApiView):
    scopes = {"GET": "audit:read"}

    @endpoint("get_audit_chain", returns=AuditChainSerializer)
    def get(self, request: Request) -> object:
        """Verify the end of the audit chain.

        The head of the project's chain, and whether its newest 5,000 entries are what was sealed. To verify whole
        chains, run `manage.py audit verify`.
        """
        return audit_log.chain_state(caller_of(request).project.pk)


COLUMNS = (
    "id", "at", "action", "actor_kind", "actor_id", "actor_name", "token_id", "address", "request_id",
    "target_kind", "target_id", "target_name", "message", "data", "number", "sha256",
)  # fmt: skip


class AuditExportView(ApiView):
    scopes = {"GET": "audit:read"}

    @extend_schema(
        operation_id="export_audit_entries",
        parameters=[*FILTERS, OpenApiParameter("format", OpenApiTypes.STR, enum=["jsonl", "csv"])],
        responses={
            (200, "application/x-ndjson"): OpenApiResponse(OpenApiTypes.STR, "oldest first"),
            (200, "text/csv"): OpenApiTypes.STR,
        },
    )
    def get(self, request: Request) -> StreamingHttpResponse:
        """Export the audit log.

        All entries, oldest first, as JSON lines or CSV. JSON lines can be verified: each has the hash of the
        one before.
        """
        form = request.query_params.get("format", "jsonl")
        if form not in ("jsonl", "csv"):
            message = f"format={form!r}: jsonl or csv"
            raise unprocessable("invalid", message, [FieldError("/format", "invalid", message)])
        entries = filtered(request).order_by("pk").iterator(chunk_size=1000)
        lines, kind = (
            (_jsonl(entries), "application/x-ndjson") if form == "jsonl" else (_csv(entries), "text/csv")
        )
        response = StreamingHttpResponse(lines, content_type=f"{kind}; charset=utf-8")
        response["Content-Disposition"] = f'attachment; filename="audit.{form}"'
        return response

    def perform_content_negotiation(self, request: Request, force: bool = False) -> Any:
        """`format` names the file's form here, not one of the framework's renderers."""
        return self.get_renderers()[0], "application/json"


def _jsonl(entries: Iterator[AuditEntry]) -> Iterator[str]:
    for entry in entries:
        yield audit_line(entry) + "\n"


def audit_line(entry: AuditEntry) -> str:
    """One line of an export: the columns that the hash covers, and the hash."""
    return json.dumps({**audit_log.columns(entry), "sha256": entry.sha256}, ensure_ascii=False)


def _csv(entries: Iterator[AuditEntry]) -> Iterator[str]:
    line = io.StringIO()
    writer = csv.writer(line)
    writer.writerow(COLUMNS)
    for entry in entries:
        said = {
            **vars(entry),
            "id": entry.entry_id,
            "at": rfc3339(entry.at),
            "data": json.dumps(entry.data),
        }
        writer.writerow(csv_safe(said[name]) for name in COLUMNS)
        yield line.getvalue()
        line.seek(0)
        line.truncate()
    yield line.getvalue()
