"""Validations: an uploaded file, checked as a whole, with a report; nothing of it becomes a dataset by itself."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request

from control_plane.accounts.identity.caller import caller_of
from control_plane.assets import selectors
from control_plane.assets.api import ColumnSerializer, MappingSerializer, RenderedSerializer
from control_plane.assets.datasets import validation_services as services
from control_plane.assets.models import DatasetValidation, ValidationState
from control_plane.assets.storage.blob_response import blob_response
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.endpoints import endpoint
from control_plane.core.api.errors import Problem
from control_plane.core.api.idempotency import idempotent
from control_plane.core.api.long_poll import WAIT_PARAMETERS
from control_plane.core.api.rendering import ResponseSerializer
from control_plane.core.api.request_parsing import StrictSerializer
from control_plane.core.api.schema import FieldErrorSerializer

STATES = ["QUEUED", "RUNNING", "VALID", "INVALID", "FAILED"]


class ValidationCreateSerializer(StrictSerializer):
    upload_id = serializers.CharField()
    mapping = MappingSerializer(
        required=False, allow_null=True, default=None, help_text="without one only the columns are looked at"
    )
    format = serializers.CharField(
        required=False, default="", allow_blank=True, max_length=20,
        help_text=(
            "jsonl, csv, parquet, or huggingface: a tar of a dataset directory; by the file's name when left out. "
            "A name in .gz or .zst is decompressed"
        ),
    )  # fmt: skip
    config = serializers.CharField(
        required=False, default="", allow_blank=True, max_length=200,
        help_text="config_name of a dataset directory whose README.md has several",
    )  # fmt: skip
    stop_after = serializers.IntegerField(
        required=False,
        allow_null=True,
        default=None,
        min_value=1,
        max_value=2**31 - 1,
        help_text="look at so many rows only",
    )


class ConflictSerializer(ResponseSerializer):
    row = serializers.CharField(help_text="where it is: 'line 7', 'row 7' of a Parquet file")
    earlier = serializers.CharField(help_text="where the row with the same prompt and another answer is")


class DatasetValidationSerializer(ResponseSerializer):
    id = serializers.CharField()
    state = serializers.ChoiceField(choices=STATES)
    message = serializers.CharField(help_text="why not VALID")
    upload_id = serializers.CharField()
    filename = serializers.CharField(source="upload.filename")
    format = serializers.CharField()
    compression = serializers.CharField()
    config = serializers.CharField()
    files = serializers.ListField(
        source="findings.files",
        child=serializers.DictField(),
        help_text="of a dataset directory: name, split, first_row",
    )
    mapping = MappingSerializer(allow_null=True)
    isolation = serializers.CharField(
        source="findings.isolation", help_text="where the file was decoded: sandbox, or process (text only)"
    )
    bytes = serializers.IntegerField(source="upload.bytes", help_text="size of the upload")
    bytes_seen = serializers.IntegerField(help_text="read of it so far")
    rows_seen = serializers.IntegerField(help_text="rows checked so far")
    delimiter = serializers.CharField(
        source="findings.delimiter", help_text="of CSV: what separates the cells, as its first line has it"
    )
    rows = serializers.IntegerField(source="findings.rows", help_text="rows decoded")
    faults = serializers.IntegerField(source="findings.faults", help_text="lines of the report")
    faults_by_code = serializers.DictField(source="findings.faults_by_code", child=serializers.IntegerField())
    faults_cut = serializers.BooleanField(
        source="findings.faults_cut", help_text="it stopped at so many faults; there may be more"
    )
    errors = FieldErrorSerializer(
        source="findings.errors", many=True, help_text="the first of them; the report has all"
    )
    columns = ColumnSerializer(source="findings.columns", many=True)
    sample = serializers.ListField(
        source="findings.sample", child=serializers.DictField(), help_text="first rows as they came"
    )
    rendered = RenderedSerializer(
        source="findings.rendered", many=True, help_text="first rows as the policy would see them"
    )
    splits = serializers.DictField(source="findings.splits", child=serializers.IntegerField())
    duplicates = serializers.IntegerField(
        source="findings.duplicates", help_text="rows whose prompt and answer an earlier row had"
    )
    conflicts = serializers.IntegerField(
        source="findings.conflicts", help_text="rows whose prompt an earlier row had, with another answer"
    )
    first_conflicts = ConflictSerializer(
        source="findings.first_conflicts", many=True, help_text="at most 20 of them"
    )
    leaks = serializers.DictField(
        source="findings.leaks",
        child=serializers.IntegerField(),
        help_text="'eval in train': rows whose prompt was in another split before",
    )
    prompt_characters = serializers.DictField(
        source="findings.prompt_characters", child=serializers.FloatField(), help_text="min, mean, max"
    )
    created_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)


class ValidationsView(ApiView):
    scopes = {"GET": "datasets:read", "POST": "datasets:write"}

    @endpoint("list_dataset_validations", page=DatasetValidationSerializer)
    def get(self, request: Request) -> object:
        """List dataset validations.

        Validations of the project, newest first.
        """
        return selectors.validations(caller_of(request))

    @idempotent
    @endpoint(
        "create_dataset_validation",
        body=ValidationCreateSerializer,
        returns=DatasetValidationSerializer,
        status=202,
    )
    def post(self, request: Request, fields: dict[str, Any]) -> object:
        """Validate an uploaded file.

        Checks every row in the background with the given column mapping. Poll the result until its state is
        final.
        """
        caller = caller_of(request)
        given = dict(fields)
        upload = selectors.upload_for(caller, given.pop("upload_id"))
        mapping = given.pop("mapping")
        return services.request_validation(caller, upload, dict(mapping) if mapping else None, **given)


class ValidationView(ApiView):
    scopes = {"GET": "datasets:read"}

    @endpoint("get_dataset_validation", returns=DatasetValidationSerializer, parameters=WAIT_PARAMETERS)
    def get(self, request: Request, validation_id: str) -> object:
        """Get a dataset validation.

        Its progress, the errors by kind, a preview of the rows and the statistics.
        """
        return selectors.validation_for(caller_of(request), validation_id)


class ValidationReportView(ApiView):
    scopes = {"GET": "datasets:read"}

    @extend_schema(
        operation_id="download_validation_report",
        responses={(200, "application/octet-stream"): OpenApiTypes.BINARY},
    )
    def get(self, request: Request, validation_id: str) -> HttpResponseBase:
        """Download the errors of a validation.

        JSON lines: row and line (both from 1; a Parquet file has no lines, a fault of the whole file has
        neither), column, pointer, code, message, sample, and of a dataset directory file.
        """
        validation = selectors.validation_for(caller_of(request), validation_id)
        if not validation.report_sha256:
            raise Problem(404, "not_found", _why_no_report(validation))
        return blob_response(request._request, validation.report_sha256, filename=f"{validation.pk}.jsonl")


def _why_no_report(validation: DatasetValidation) -> str:
    if validation.state in (ValidationState.QUEUED, ValidationState.RUNNING):
        return f"validation {validation.pk} is {validation.state}; its report is there when it has ended"
    if validation.state == ValidationState.FAILED:
        return (
            f"validation {validation.pk} could not check the file, so it has no report: {validation.message}"
        )
    return f"validation {validation.pk} looked at columns only; validate with a mapping for a report"
