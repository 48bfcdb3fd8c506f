"""Endpoint for pool usage, as JSON or CSV."""

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
from control_plane.core.api.query_params import csv_safe, invalid_parameter, read_moment
from control_plane.core.api.rendering import ResponseSerializer
from control_plane.core.infra import clock
from control_plane.core.infra.clock import rfc3339
from control_plane.experiments.usage import PHASES, By, UsageQuery, total, usage

DEFAULT_WINDOW = timedelta(days=30)
MAX_ROWS = 1000  # in a JSON response; CSV has all
CHOICES = {"by": ("run", "project", "team"), "device": ("cuda", "cpu"), "format": ("json", "csv")}


class PhaseSecondsSerializer(ResponseSerializer):
    generate = serializers.FloatField(help_text="engines with requests")
    train = serializers.FloatField(help_text="trainers preparing, scoring and updating")
    wait = serializers.FloatField(help_text="engines without requests, trainers without a batch")
    sync = serializers.FloatField(help_text="publishing and loading weights")
    evaluate = serializers.FloatField(help_text="evaluators")
    other = serializers.FloatField(help_text="start, checkpoints, end, and jobs without measurements")


class TokenUsageSerializer(ResponseSerializer):
    """Totals of the runs, independent of the window."""

    generated = serializers.IntegerField(allow_null=True)
    trained = serializers.IntegerField(allow_null=True)
    wasted = serializers.IntegerField(allow_null=True, help_text="dropped, or lost to recoveries")


class UsageTotalSerializer(ResponseSerializer):
    runs = serializers.IntegerField()
    slot_seconds = serializers.FloatField(help_text="slots of all devices")
    gpu_seconds = serializers.FloatField(help_text="GPU slots only")
    phases = PhaseSecondsSerializer(help_text="add up to slot_seconds")
    tokens = TokenUsageSerializer()


class UsageRowSerializer(UsageTotalSerializer):
    team = NamedSerializer(allow_null=True, help_text="null: other teams")
    project = NamedSerializer(
        allow_null=True, help_text="null: by=team, or projects that are not the caller's"
    )
    run = NamedSerializer(allow_null=True, help_text="null: not by=run, or runs of other projects")


class UsageSerializer(ResponseSerializer):
    since = serializers.DateTimeField()
    until = serializers.DateTimeField()
    by = serializers.ChoiceField(choices=CHOICES["by"])
    data = UsageRowSerializer(  # type: ignore[assignment]  # a field, as in every answer with rows
        many=True, help_text=f"largest first, at most {MAX_ROWS}"
    )
    left_out = serializers.IntegerField(help_text="number of rows left out; included in the total and in CSV")
    total = UsageTotalSerializer()


class UsageView(ApiView):
    scopes = {"GET": "pool:read"}

    @extend_schema(
        operation_id="get_pool_usage",
        parameters=[
            OpenApiParameter("by", str, enum=list(CHOICES["by"]), description="one row per what; default: run"),
            OpenApiParameter("since", OpenApiTypes.DATETIME, description="default: 30 days before `until`"),
            OpenApiParameter("until", OpenApiTypes.DATETIME, description="default: now"),
            OpenApiParameter("device", str, enum=list(CHOICES["device"]), description="only slots of this device"),
            OpenApiParameter("format", str, enum=list(CHOICES["format"]), description="default: json"),
        ],
        responses={200: UsageSerializer, (200, "text/csv"): OpenApiTypes.STR},
    )  # fmt: skip
    def get(self, request: Request) -> Response | HttpResponse:
        """Get slot usage.

        Seconds of slots and GPUs in a period, by run, project or team, and by phase. As JSON or CSV.
        """
        query, form = _parse(request), _choice(request, "format", "json")
        rows = list(usage(caller_of(request), query))
        if form == "csv":
            response = HttpResponse(_csv(rows), content_type="text/csv; charset=utf-8")
            response["Content-Disposition"] = 'attachment; filename="usage.csv"'
            return response
        answer = {
            **vars(query), "data": rows[:MAX_ROWS], "left_out": max(0, len(rows) - MAX_ROWS), "total": total(rows),
        }  # fmt: skip
        return Response(UsageSerializer.render(answer))

    def perform_content_negotiation(self, request: Request, force: bool = False) -> Any:
        """`format` selects JSON or CSV here, not a DRF renderer."""
        return self.get_renderers()[0], "application/json"


def _parse(request: Request) -> UsageQuery:
    now = clock.now()
    until = min(read_moment(request, "until") or now, now)
    since = read_moment(request, "since") or until - DEFAULT_WINDOW
    if since >= until:
        raise invalid_parameter("since", f"since={rfc3339(since)} is not before until={rfc3339(until)}")
    by, device = cast(By, _choice(request, "by", "run")), _choice(request, "device", "")
    return UsageQuery(since=since, until=until, now=now, by=by, device=device)


def _choice(request: Request, name: str, otherwise: str) -> str:
    value = request.query_params.get(name) or otherwise
    if value not in (*CHOICES[name], otherwise):
        raise invalid_parameter(name, f"{name}={value!r}: one of {', '.join(CHOICES[name])}")
    return value


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
            [*(cell for one in known for cell in (one["id"], csv_safe(one["name"]))), row["runs"],
             row["slot_seconds"], row["gpu_seconds"], *(row["phases"][phase] for phase in PHASES),
             *("" if row["tokens"][name] is None else row["tokens"][name] for name in tokens)]
        )  # fmt: skip
    return text.getvalue()
