"""Usage of the pool over the API: JSON, or CSV for a spreadsheet."""

from __future__ import annotations

import csv
import io
from datetime import timedelta
from typing import Any, cast

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.accounts.identity.api import NamedSerializer
from control_plane.accounts.identity.caller import caller_of
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.query_params import plain_cell, read_moment, refused
from control_plane.core.infra import clock
from control_plane.core.infra.clock import rfc3339
from control_plane.experiments.usage import PHASES, Asked, By, total, usage

DEFAULT_WINDOW = timedelta(days=30)
MOST_ROWS = 1000  # of a JSON answer; CSV has all
CHOICES = {"by": ("run", "project", "team"), "device": ("cuda", "cpu"), "format": ("json", "csv")}


class PhaseSecondsSerializer(serializers.Serializer[Any]):
    generate = serializers.FloatField(help_text="engines had requests")
    train = serializers.FloatField(help_text="trainers prepared, scored and updated")
    wait = serializers.FloatField(help_text="engines had no request, trainers no batch")
    sync = serializers.FloatField(help_text="weights were published and loaded")
    evaluate = serializers.FloatField(help_text="engines beside those of a run evaluated")
    other = serializers.FloatField(help_text="start, checkpoints, end, and what does not measure")


class TokenUsageSerializer(serializers.Serializer[Any]):
    """Of the runs as a whole, whatever the window."""

    generated = serializers.IntegerField(allow_null=True)
    trained = serializers.IntegerField(allow_null=True)
    wasted = serializers.IntegerField(allow_null=True, help_text="dropped, or lost to recoveries")


class UsageTotalSerializer(serializers.Serializer[Any]):
    runs = serializers.IntegerField()
    slot_seconds = serializers.FloatField(help_text="slots of every kind")
    gpu_seconds = serializers.FloatField(help_text="of them, of GPUs")
    phases = PhaseSecondsSerializer(help_text="add up to slot_seconds")
    tokens = TokenUsageSerializer()


class UsageRowSerializer(UsageTotalSerializer):
    team = NamedSerializer(allow_null=True, help_text="null: other teams")
    project = NamedSerializer(
        allow_null=True, help_text="null: by=team, or projects that are not the caller's"
    )
    run = NamedSerializer(allow_null=True, help_text="null: not by=run, or runs of other projects")


class UsageSerializer(serializers.Serializer[Any]):
    since = serializers.DateTimeField()
    until = serializers.DateTimeField()
    by = serializers.ChoiceField(choices=CHOICES["by"])
    data = UsageRowSerializer(  # type: ignore[assignment]  # a field, as in every answer with rows
        many=True, help_text=f"the largest first, at most {MOST_ROWS}"
    )
    left_out = serializers.IntegerField(help_text="rows beyond these; the total has them, and CSV")
    total = UsageTotalSerializer()


class UsageView(ApiView):
    scopes = {"GET": "pool:read"}

    @extend_schema(
        operation_id="get_pool_usage",
        parameters=[
            OpenApiParameter("by", str, enum=list(CHOICES["by"]), description="one row for each; run when left out"),
            OpenApiParameter("since", OpenApiTypes.DATETIME, description="30 days before `until` when left out"),
            OpenApiParameter("until", OpenApiTypes.DATETIME, description="now when left out"),
            OpenApiParameter("device", str, enum=list(CHOICES["device"]), description="only slots of this kind"),
            OpenApiParameter("format", str, enum=list(CHOICES["format"]), description="json when left out"),
        ],
        responses={200: UsageSerializer, (200, "text/csv"): OpenApiTypes.STR},
    )  # fmt: skip
    def get(self, request: Request) -> Response | HttpResponse:
        """Get slot usage.

        Seconds of slots and GPUs in a period, by run, project or team, and by phase. As JSON or CSV.
        """
        asked, form = _read(request), _choice(request, "format", "json")
        rows = list(usage(caller_of(request), asked))
        if form == "csv":
            response = HttpResponse(_csv(rows), content_type="text/csv; charset=utf-8")
            response["Content-Disposition"] = 'attachment; filename="usage.csv"'
            return response
        return Response(
            {
                "since": rfc3339(asked.since),
                "until": rfc3339(asked.until),
                "by": asked.by,
                "data": rows[:MOST_ROWS],
                "left_out": max(0, len(rows) - MOST_ROWS),
                "total": total(rows),
            }
        )

    def perform_content_negotiation(self, request: Request, force: bool = False) -> Any:
        """`format` names the file's form here, not one of the framework's renderers."""
        return self.get_renderers()[0], "application/json"


def _read(request: Request) -> Asked:
    now = clock.now()
    until = min(read_moment(request, "until") or now, now)
    since = read_moment(request, "since") or until - DEFAULT_WINDOW
    if since >= until:
        raise refused("since", f"since={rfc3339(since)} is not before until={rfc3339(until)}")
    by, device = cast(By, _choice(request, "by", "run")), _choice(request, "device", "")
    return Asked(since=since, until=until, now=now, by=by, device=device)


def _choice(request: Request, name: str, otherwise: str) -> str:
    said = request.query_params.get(name) or otherwise
    if said not in (*CHOICES[name], otherwise):
        raise refused(name, f"{name}={said!r}: one of {', '.join(CHOICES[name])}")
    return said


def _csv(rows: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text)
    names = ("team", "project", "run")
    tokens = ("generated", "trained", "wasted")
    writer.writerow(
        [*(f"{name}{part}" for name in names for part in ("_id", "")), "runs", "slot_seconds", "gpu_seconds",
         *(f"{phase}_seconds" for phase in PHASES), *(f"{name}_tokens" for name in tokens)]
    )  # fmt: skip
    for row in rows:
        known = [row[name] or {"id": "", "name": ""} for name in names]
        writer.writerow(
            [*(cell for one in known for cell in (one["id"], plain_cell(one["name"]))), row["runs"],
             row["slot_seconds"], row["gpu_seconds"], *(row["phases"][phase] for phase in PHASES),
             *("" if row["tokens"][name] is None else row["tokens"][name] for name in tokens)]
        )  # fmt: skip
    return text.getvalue()
