"""Endpoint for pool usage, as JSON or CSV."""

from __future__ import annotations

import csv
import io
from datetime import timedelta
from typing import Any, cast

from django.conf import settings
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.accounts.identity.api import NamedSerializer
from control_plane.accounts.identity.caller import caller_of
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.query_params import choice, csv_safe, invalid_parameter, read_moment
from control_plane.core.api.rendering import ResponseSerializer
from control_plane.core.infra import clock
from control_plane.core.infra.clock import rfc3339
from control_plane.experiments.usage import PHASES, Stack, usage, usage_series
from control_plane.experiments.usage_outcomes import OUTCOMES
from control_plane.experiments.usage_seconds import By, UsageQuery

DEFAULT_WINDOW = timedelta(days=30)
MAX_ROWS = 1000  # in a JSON response; CSV has all
MAX_BUCKETS = 750
BUCKETS = {"hour": timedelta(hours=1), "day": timedelta(days=1)}
STACKS = ("team", "project", "phase", "outcome")
CHOICES = {
    "by": ("run", "project", "team"), "device": ("cuda", "cpu"), "format": ("json", "csv"), "bucket": tuple(BUCKETS),
}  # fmt: skip
WINDOW = [
    OpenApiParameter("since", OpenApiTypes.DATETIME, description="default: 30 days before `until`"),
    OpenApiParameter("until", OpenApiTypes.DATETIME, description="default: now"),
    OpenApiParameter("device", str, enum=list(CHOICES["device"]), description="only slots of this device"),
]


class PhaseSecondsSerializer(ResponseSerializer):
    generate = serializers.FloatField(help_text="engines with requests")
    train = serializers.FloatField(help_text="trainers preparing, scoring and updating")
    wait = serializers.FloatField(help_text="engines without requests, trainers without a batch")
    sync = serializers.FloatField(help_text="publishing and loading weights")
    evaluate = serializers.FloatField(help_text="evaluators")
    other = serializers.FloatField(help_text="start, checkpoints, end, and jobs without measurements")


class OutcomeSecondsSerializer(ResponseSerializer):
    trained = serializers.FloatField(help_text="trainers at work; engines that generated what was trained on")
    dropped = serializers.FloatField(help_text="engines that generated dropped groups")
    in_flight = serializers.FloatField(
        help_text="engines that generated groups neither trained nor dropped yet"
    )
    lost = serializers.FloatField(help_text="work since the checkpoint from which a later attempt resumed")
    evaluated = serializers.FloatField(
        help_text="evaluators, and the engines of evaluations, reward tests and playgrounds"
    )
    sync = serializers.FloatField(help_text="publishing and loading weights")
    idle = serializers.FloatField(help_text="engines without requests, trainers without a batch")
    unknown = serializers.FloatField(help_text="start, checkpoints, end, and what no job or ledger reported")


class TokenUsageSerializer(ResponseSerializer):
    """Totals of the runs, independent of the window. Null: no run reported tokens."""

    generated = serializers.IntegerField(
        allow_null=True, help_text="trained + dropped + lost + in_flight + unknown"
    )
    trained = serializers.IntegerField(allow_null=True)
    dropped = serializers.DictField(child=serializers.IntegerField(), allow_null=True, help_text="by reason")
    lost = serializers.IntegerField(allow_null=True, help_text="to recoveries")
    in_flight = serializers.IntegerField(
        allow_null=True, help_text="neither trained nor dropped yet, or when the run ended"
    )
    unknown = serializers.IntegerField(allow_null=True, help_text="not reported")
    wasted = serializers.IntegerField(allow_null=True, help_text="dropped, or lost to recoveries")


class UsageTotalSerializer(ResponseSerializer):
    runs = serializers.IntegerField()
    slot_seconds = serializers.FloatField(help_text="slots of all devices")
    gpu_seconds = serializers.FloatField(help_text="GPU slots only")
    cost = serializers.FloatField(help_text="at the prices at which the leases were granted")
    unpriced_slot_seconds = serializers.FloatField(help_text="slots that had no price, and cost nothing")
    phases = PhaseSecondsSerializer(help_text="add up to slot_seconds")
    outcomes = OutcomeSecondsSerializer(help_text="add up to slot_seconds")
    dropped = serializers.DictField(
        child=serializers.FloatField(), help_text="outcomes.dropped by reason of the ledger"
    )
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
    currency = serializers.CharField(help_text="of every cost: OOLONG_CURRENCY")
    data = UsageRowSerializer(  # type: ignore[assignment]  # a field, as in every answer with rows
        many=True, help_text=f"largest first, at most {MAX_ROWS}"
    )
    left_out = serializers.IntegerField(help_text="number of rows left out; included in the total and in CSV")
    total = UsageTotalSerializer()


class UsageSeriesRowSerializer(ResponseSerializer):
    name = NamedSerializer(
        allow_null=True, help_text="a team, project, phase or outcome; null: not the caller's"
    )
    team = NamedSerializer(allow_null=True, help_text="of a project; null: by another, or other teams")
    slot_seconds = serializers.ListField(child=serializers.FloatField(), help_text="one for each bucket")
    gpu_seconds = serializers.ListField(child=serializers.FloatField(), help_text="GPU slots only")
    cost = serializers.ListField(child=serializers.FloatField())


class UsageSeriesSerializer(ResponseSerializer):
    since = serializers.DateTimeField()
    until = serializers.DateTimeField()
    by = serializers.ChoiceField(choices=STACKS)
    bucket = serializers.ChoiceField(choices=CHOICES["bucket"])
    currency = serializers.CharField()
    starts = serializers.ListField(
        child=serializers.DateTimeField(),
        help_text="of the buckets, in UTC; the first and the last one count only what lies in the window",
    )
    data = UsageSeriesRowSerializer(  # type: ignore[assignment]  # a field, as in every answer with rows
        many=True,
        help_text="teams and projects: largest first; phases and outcomes: all of them, in fixed order",
    )


class UsageSeriesView(ApiView):
    scopes = {"GET": "pool:read"}

    @extend_schema(
        operation_id="get_pool_usage_series",
        parameters=[
            OpenApiParameter("by", str, enum=list(STACKS), description="one series per what; default: team"),
            OpenApiParameter("bucket", str, enum=list(BUCKETS), description="default: day"),
            *WINDOW,
        ],
        responses={200: UsageSeriesSerializer},
    )
    def get(self, request: Request) -> Response:
        """Get slot usage over time.

        Seconds of slots and GPUs by hour or day, as series by team, project, phase or outcome that add up to the usage.
        """
        bucket = _choice(request, "bucket", "day")
        by = cast(Stack, choice(request, "by", STACKS) or "team")
        query = _parse(request, bucket=BUCKETS[bucket])
        if (buckets := len(query.starts)) > MAX_BUCKETS:
            raise invalid_parameter(
                "bucket", f"bucket={bucket} makes {buckets} buckets of this window, more than {MAX_BUCKETS}; "
                f"choose a shorter window{' or bucket=day' if bucket == 'hour' else ''}",
            )  # fmt: skip
        series = usage_series(caller_of(request), query, by)
        answer = {
            "since": query.since,
            "until": query.until,
            "by": by,
            "bucket": bucket,
            "currency": settings.ENVIRONMENT.currency,
            "starts": query.starts,
        }
        return Response(UsageSeriesSerializer.render({**answer, "data": series}))


class UsageView(ApiView):
    scopes = {"GET": "pool:read"}

    @extend_schema(
        operation_id="get_pool_usage",
        parameters=[
            OpenApiParameter("by", str, enum=list(CHOICES["by"]), description="one row per what; default: run"),
            *WINDOW,
            OpenApiParameter("format", str, enum=list(CHOICES["format"]), description="default: json"),
        ],
        responses={200: UsageSerializer, (200, "text/csv"): OpenApiTypes.STR},
    )  # fmt: skip
    def get(self, request: Request) -> Response | HttpResponse:
        """Get slot usage.

        Seconds of slots and GPUs in a period, by run, project or team, by phase and by outcome. As JSON or CSV.
        """
        query, form = _parse(request), _choice(request, "format", "json")
        rows, total = usage(caller_of(request), query)
        if form == "csv":
            response = HttpResponse(_csv(rows), content_type="text/csv; charset=utf-8")
            response["Content-Disposition"] = 'attachment; filename="usage.csv"'
            return response
        answer = {
            **vars(query), "currency": settings.ENVIRONMENT.currency, "data": rows[:MAX_ROWS],
            "left_out": max(0, len(rows) - MAX_ROWS), "total": total,
        }  # fmt: skip
        return Response(UsageSerializer.render(answer))

    def perform_content_negotiation(self, request: Request, force: bool = False) -> Any:
        """`format` selects JSON or CSV here, not a DRF renderer."""
        return self.get_renderers()[0], "application/json"


def _parse(request: Request, *, bucket: timedelta | None = None) -> UsageQuery:
    now = clock.now()
    until = min(read_moment(request, "until") or now, now)
    since = read_moment(request, "since") or until - DEFAULT_WINDOW
    if since >= until:
        raise invalid_parameter("since", f"since={rfc3339(since)} is not before until={rfc3339(until)}")
    by = cast(By, _choice(request, "by", "run")) if bucket is None else "run"
    device = _choice(request, "device", "")
    return UsageQuery(since=since, until=until, now=now, by=by, device=device, bucket=bucket)


def _choice(request: Request, name: str, otherwise: str) -> str:
    value = request.query_params.get(name) or otherwise
    if value not in (*CHOICES[name], otherwise):
        raise invalid_parameter(name, f"{name}={value!r}: one of {', '.join(CHOICES[name])}")
    return value


def _csv(rows: list[dict[str, Any]]) -> str:
    """Dropped seconds and tokens have a column for each reason that occurs."""
    text = io.StringIO()
    writer = csv.writer(text)
    names = ("team", "project", "run")
    reasons = sorted({reason for row in rows for reason in row["dropped"]})
    token_reasons = sorted({reason for row in rows for reason in row["tokens"]["dropped"] or ()})
    tokens = ("generated", "trained", "lost", "in_flight", "unknown", "wasted")
    writer.writerow(
        [*(f"{name}{part}" for name in names for part in ("_id", "")), "runs", "slot_seconds", "gpu_seconds",
         "cost", "unpriced_slot_seconds",
         *(f"{phase}_seconds" for phase in PHASES), *(f"{outcome}_outcome_seconds" for outcome in OUTCOMES),
         *(f"dropped_{reason}_outcome_seconds" for reason in reasons), *(f"{name}_tokens" for name in tokens),
         *(f"dropped_{reason}_tokens" for reason in token_reasons)]
    )  # fmt: skip
    for row in rows:
        known = [row[name] or {"id": "", "name": ""} for name in names]
        dropped = row["tokens"]["dropped"]
        writer.writerow(
            [*(cell for one in known for cell in (one["id"], csv_safe(one["name"]))), row["runs"],
             row["slot_seconds"], row["gpu_seconds"], row["cost"], row["unpriced_slot_seconds"],
             *(row["phases"][phase] for phase in PHASES),
             *(row["outcomes"][outcome] for outcome in OUTCOMES),
             *(row["dropped"].get(reason, 0.0) for reason in reasons),
             *("" if row["tokens"][name] is None else row["tokens"][name] for name in tokens),
             *("" if dropped is None else dropped.get(reason, 0) for reason in token_reasons)]
        )  # fmt: skip
    return text.getvalue()
