"""What hangs on datasets and their versions: aliases, and token lengths under a tokenizer."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.accounts.identity.api import NamedSerializer
from control_plane.accounts.identity.caller import caller_of
from control_plane.assets import selectors
from control_plane.assets.datasets import dataset_aliases
from control_plane.assets.datasets.measurement_services import request_measurement
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.endpoints import endpoint
from control_plane.core.api.errors import or_not_found
from control_plane.core.api.idempotency import idempotent
from control_plane.core.api.pagination import paginate, read_page
from control_plane.core.api.query_params import invalid_parameter
from control_plane.core.api.rendering import ResponseSerializer
from control_plane.core.api.request_parsing import StrictSerializer, body_of, name_field
from control_plane.core.api.schema import PAGE_PARAMETERS, page_of
from control_plane.core.infra import clock

ALIAS = name_field(
    r"^(?!latest$)[A-Za-z][A-Za-z0-9_.-]*$",
    "letters, digits and . _ - beginning with a letter; not latest",
    max_length=60,
)
BINS = 32


class DatasetAliasChangeSerializer(StrictSerializer):
    version = serializers.CharField(
        max_length=250, help_text="id, a reference as name@3, or a number of this dataset"
    )
    expected = serializers.IntegerField(
        required=False, allow_null=True, default=None, min_value=1,
        help_text="move it only if it means this number now",
    )  # fmt: skip


class DatasetAliasSerializer(ResponseSerializer):
    dataset = NamedSerializer()
    name = serializers.CharField()
    version_id = serializers.CharField()
    number = serializers.IntegerField(source="version.number")
    ref = serializers.CharField(help_text="name@3")
    updated_by = serializers.CharField(source="updated_by.username")
    updated_at = serializers.DateTimeField()


class LengthBinSerializer(ResponseSerializer):
    above = serializers.IntegerField(help_text="tokens, exclusive")
    up_to = serializers.IntegerField(help_text="tokens, inclusive")
    rows = serializers.IntegerField()


class LengthsSerializer(ResponseSerializer):
    rows = serializers.IntegerField()
    mean = serializers.FloatField()
    smallest = serializers.IntegerField()
    p50 = serializers.IntegerField()
    p95 = serializers.IntegerField()
    p99 = serializers.IntegerField()
    largest = serializers.IntegerField()
    share_over = serializers.FloatField(allow_null=True, help_text="of the rows, longer than ?over=")
    histogram = LengthBinSerializer(many=True)

    def to_representation(self, instance: dict[str, Any]) -> dict[str, Any]:
        """Of token_statistics.job.Lengths; the context may say `over`."""
        counts: list[tuple[int, int]] = instance["counts"]
        over: int | None = self.context.get("over")
        longer = None if over is None else sum(count for length, count in counts if length > over)
        share = None if longer is None else longer / instance["rows"]
        histogram = _histogram(counts, largest=instance["largest"])
        return super().to_representation({**instance, "share_over": share, "histogram": histogram})


def _histogram(counts: list[tuple[int, int]], *, largest: int) -> list[dict[str, int]]:
    width = max(1, -(-largest // BINS))
    bins = [
        {"above": first - 1 if first == 0 else first, "up_to": first + width, "rows": 0}
        for first in range(0, max(1, largest), width)
    ]
    for length, count in counts:
        bins[max(0, (length - 1) // width)]["rows"] += count
    return bins


class FrequentValueSerializer(ResponseSerializer):
    value = serializers.CharField(help_text="its first 200 characters")
    rows = serializers.IntegerField()


class ColumnStatisticsSerializer(ResponseSerializer):
    name = serializers.CharField()
    rows = serializers.IntegerField()
    missing = serializers.IntegerField(help_text="null or empty")
    distinct = serializers.IntegerField()
    distinct_exact = serializers.BooleanField(help_text="false: an estimate with a standard error of 1.6 %")
    shortest = serializers.IntegerField(help_text="characters, of the values that are there")
    median = serializers.IntegerField()
    p95 = serializers.IntegerField()
    longest = serializers.IntegerField()
    mean = serializers.FloatField()
    numeric = serializers.IntegerField(help_text="values that are finite numbers")
    minimum = serializers.FloatField(allow_null=True, help_text="of the numbers")
    maximum = serializers.FloatField(allow_null=True)
    frequent = FrequentValueSerializer(many=True, help_text="most frequent first, at most 10")
    frequent_exact = serializers.BooleanField(help_text="false: counts are lower bounds")


class MeasurementSerializer(ResponseSerializer):
    id = serializers.CharField()
    state = serializers.ChoiceField(choices=["QUEUED", "RUNNING", "DONE", "FAILED"])
    message = serializers.CharField(help_text="why FAILED")
    version_id = serializers.CharField()
    model = NamedSerializer()
    bytes = serializers.IntegerField(source="version.bytes", help_text="of the version's rows")
    bytes_seen = serializers.IntegerField(help_text="counted of them so far")
    vocabulary = serializers.IntegerField(source="figures.vocabulary")
    duplicates = serializers.IntegerField(
        source="figures.duplicates", help_text="rows whose prompt and answer an earlier row had"
    )
    conflicts = serializers.IntegerField(
        source="figures.conflicts", help_text="rows whose prompt an earlier row had, with another answer"
    )
    without_completion = serializers.IntegerField(
        source="figures.without_completion", help_text="rows without a demonstration"
    )
    prompts = serializers.DictField(
        source="figures.prompts",
        child=LengthsSerializer(),
        help_text="by split: tokens of all messages, without what a chat template adds",
    )
    completions = serializers.DictField(source="figures.completions", child=LengthsSerializer())
    columns = ColumnStatisticsSerializer(
        source="figures.columns", many=True, help_text="of the rows, whatever the tokenizer; empty until DONE"
    )
    created_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)


class MeasurementCreateSerializer(StrictSerializer):
    model = serializers.CharField(
        max_length=250, help_text="a stored base model, by id or name: its tokenizer"
    )


class DatasetAliasesView(ApiView):
    scopes = {"GET": "datasets:read"}

    @endpoint("list_dataset_aliases", page=DatasetAliasSerializer, order="name")
    def get(self, request: Request, dataset_id: str) -> object:
        """List the aliases of a dataset.

        The named versions, such as `stable`.
        """
        dataset = selectors.dataset_for(caller_of(request), dataset_id)
        return dataset.aliases.select_related("dataset", "version", "updated_by")


class DatasetAliasView(ApiView):
    scopes = {"PUT": "datasets:write", "DELETE": "datasets:write"}

    @endpoint("set_dataset_alias", body=DatasetAliasChangeSerializer, returns=DatasetAliasSerializer)
    def put(self, request: Request, dataset_id: str, dataset_alias: str) -> object:
        """Point an alias at a dataset version.

        Creates or moves the alias. With `expected` it moves only when it still names that version.
        """
        caller = caller_of(request)
        dataset = selectors.dataset_for(caller, dataset_id)
        fields = body_of(DatasetAliasChangeSerializer, request)
        try:
            ALIAS.run_validation(dataset_alias)
        except serializers.ValidationError as refusal:
            raise serializers.ValidationError({"alias": refusal.detail}) from refusal
        wanted = fields["version"]
        reference = f"{dataset.name}@{wanted}" if wanted.isdecimal() else wanted
        version = or_not_found(selectors.find_version(caller, reference), "dataset version", reference)
        return dataset_aliases.set_alias(
            caller, dataset, dataset_alias, version, expected=fields["expected"], now=clock.now()
        )

    @endpoint("delete_dataset_alias")
    def delete(self, request: Request, dataset_id: str, dataset_alias: str) -> None:
        """Delete a dataset alias.

        The version stays.
        """
        caller = caller_of(request)
        dataset_aliases.delete_alias(
            caller, selectors.dataset_for(caller, dataset_id), dataset_alias, now=clock.now()
        )


class MeasurementsView(ApiView):
    scopes = {"GET": "datasets:read", "POST": "datasets:write"}

    @extend_schema(
        operation_id="list_dataset_statistics",
        parameters=[
            *PAGE_PARAMETERS,
            OpenApiParameter("over", int, description="tokens: say which share of the rows is longer"),
        ],
        responses=page_of(MeasurementSerializer),
    )
    def get(self, request: Request, version_id: str) -> Response:
        """List token statistics.

        Measurements of this version's lengths in tokens, by model.
        """
        version = selectors.version_for(caller_of(request), version_id)
        text = request.query_params.get("over", "")
        if text and not (text.isdecimal() and len(text) < 10):
            raise invalid_parameter("over", f"over={text[:40]!r}: a number of tokens")
        over = int(text) if text else None
        found = version.measurements.select_related("model", "version")
        return Response(
            paginate(
                found, read_page(request), MeasurementSerializer(context={"over": over}).to_representation
            )
        )

    @extend_schema(
        operation_id="measure_dataset_version",
        request=MeasurementCreateSerializer,
        responses={
            202: MeasurementSerializer,
            200: OpenApiResponse(MeasurementSerializer, description="it is measured, or on its way, already"),
        },
    )
    @idempotent
    def post(self, request: Request, version_id: str) -> Response:
        """Measure token lengths.

        Counts tokens with a model's tokenizer in the background. A measurement that exists is returned (200).
        """
        caller = caller_of(request)
        version = selectors.version_for(caller, version_id)
        fields = body_of(MeasurementCreateSerializer, request)
        model = or_not_found(selectors.find_model(caller, fields["model"]), "model", fields["model"])
        found, created = request_measurement(caller, version, model)
        return Response(MeasurementSerializer.render(found), status=202 if created else 200)
