from __future__ import annotations

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.accounts.identity.api import NamedSerializer
from control_plane.accounts.identity.caller import Caller, caller_of
from control_plane.assets import selectors, services
from control_plane.assets.datasets import derivation
from control_plane.assets.datasets.validation_services import create_version_of
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.endpoints import endpoint
from control_plane.core.api.errors import Problem, or_not_found
from control_plane.core.api.idempotency import idempotent
from control_plane.core.api.numbers import parse_int
from control_plane.core.api.pagination import encode, foreign_cursor, read_page
from control_plane.core.api.query_params import invalid_parameter
from control_plane.core.api.rendering import ResponseSerializer
from control_plane.core.api.request_parsing import StrictSerializer, body_of, name_field
from control_plane.core.api.schema import NONEMPTY, PAGE_PARAMETERS, SHA256, page_of
from control_plane.core.infra import clock


class UploadSerializer(ResponseSerializer):
    id = serializers.CharField()
    filename = serializers.CharField()
    purpose = serializers.CharField()
    bytes = serializers.IntegerField()
    sha256 = serializers.CharField()
    created_at = serializers.DateTimeField()


class MappingSerializer(StrictSerializer):
    prompt_column = serializers.CharField(max_length=200)
    answer_column = serializers.CharField(
        max_length=200, required=False, allow_null=True, default=None,
        help_text="what the reward compares with; only preference pairs may have none",
    )  # fmt: skip
    completion_column = serializers.CharField(max_length=200, required=False, allow_null=True, default=None)
    chosen_column = serializers.CharField(
        max_length=200, required=False, allow_null=True, default=None,
        help_text="the better completion of a preference pair: a text, or chat messages",
    )  # fmt: skip
    rejected_column = serializers.CharField(
        max_length=200, required=False, allow_null=True, default=None, help_text="the worse completion"
    )
    split_column = serializers.CharField(max_length=200, required=False, allow_null=True, default=None)
    source_column = serializers.CharField(
        max_length=200, required=False, allow_null=True, default=None,
        help_text="names the collection that a row comes from; a run can weight them (dataset.weights)",
    )  # fmt: skip
    default_split = serializers.CharField(max_length=60, required=False, default="train")
    template = serializers.CharField(
        max_length=20_000, required=False, default="{prompt}", trim_whitespace=False,
        help_text="names columns in braces; {prompt} is the prompt column",
    )  # fmt: skip
    system = serializers.CharField(
        max_length=20_000, required=False, default="", allow_blank=True, trim_whitespace=False
    )


class VersionSerializer(ResponseSerializer):
    id = serializers.CharField()
    dataset = NamedSerializer()
    number = serializers.IntegerField()
    ref = serializers.CharField(help_text="name@3")
    sha256 = serializers.CharField(help_text="of the canonical rows")
    bytes = serializers.IntegerField()
    rows = serializers.IntegerField()
    splits = serializers.DictField(child=serializers.IntegerField())
    with_completion = serializers.DictField(child=serializers.IntegerField())
    with_pair = serializers.DictField(
        child=serializers.IntegerField(), help_text="split → rows with a chosen and a rejected completion"
    )
    sources = serializers.DictField(
        child=serializers.DictField(child=serializers.IntegerField()),
        help_text="split → source → rows; empty without a source column",
    )
    mapping = MappingSerializer()
    derived = serializers.DictField(
        allow_null=True,
        help_text="new splits: from which version, with what ratios and seed; merged: of which versions",
    )
    created_at = serializers.DateTimeField()


class DatasetSerializer(ResponseSerializer):
    id = serializers.CharField()
    name = serializers.CharField()
    description = serializers.CharField()
    created_by = serializers.CharField(source="created_by.username")
    created_at = serializers.DateTimeField()
    versions = VersionSerializer(source="newest_versions", many=True, help_text="newest first")
    latest = VersionSerializer(source="latest_version", allow_null=True)
    aliases = serializers.DictField(
        source="alias_numbers", child=serializers.IntegerField(), help_text="name → number of its version"
    )


class DatasetCreateSerializer(StrictSerializer):
    name = name_field(
        r"^[A-Za-z0-9][A-Za-z0-9_. -]*$",
        "letters, digits, spaces and . _ - beginning with a letter or digit",
        max_length=120,
    )
    description = serializers.CharField(required=False, allow_blank=True, default="", max_length=10_000)


class VersionCreateSerializer(StrictSerializer):
    validation_id = serializers.CharField(
        help_text="of a VALID validation of a whole file with a mapping: POST /api/v1/dataset-validations"
    )


class ColumnSerializer(ResponseSerializer):
    name = serializers.CharField()
    type = serializers.CharField(help_text="text, number, boolean, list, object; joined by 'or'")
    missing = serializers.IntegerField(help_text="previewed rows without a value")


class MessageSerializer(ResponseSerializer):
    role = serializers.CharField()
    content = serializers.CharField()


class RenderedSerializer(ResponseSerializer):
    messages = MessageSerializer(many=True)
    answer = serializers.CharField(help_text="empty without an answer column")
    completion = serializers.CharField(allow_null=True)
    chosen = MessageSerializer(
        many=True, allow_null=True, default=None, help_text="the better completion of a preference pair"
    )
    rejected = MessageSerializer(many=True, allow_null=True, default=None)
    split = serializers.CharField()
    source = serializers.CharField(help_text="which collection the row comes from, or empty")

    def resolve_chosen(self, row: dict[str, Any]) -> Any:
        return row.get("chosen")

    def resolve_rejected(self, row: dict[str, Any]) -> Any:
        return row.get("rejected")


class CanonicalRowSerializer(RenderedSerializer):
    row = serializers.IntegerField()


def need_scope_of(caller: Caller, purpose: str) -> None:
    """Who uploads for a purpose needs the scope to write what it is for."""
    needed = "models:write" if purpose == "model" else "datasets:write"
    if needed not in caller.scopes:
        raise Problem(403, "missing_scope", f"this needs the scope {needed}")


BINARY = {("application/octet-stream"): OpenApiTypes.BINARY}


class UploadsView(ApiView):
    scopes = {"POST": None}  # by purpose, below

    @extend_schema(
        operation_id="upload",
        parameters=[
            OpenApiParameter("filename", str),
            OpenApiParameter("purpose", str, enum=["dataset", "model"]),
            OpenApiParameter("X-Content-SHA256", SHA256, OpenApiParameter.HEADER),
        ],
        request=BINARY,
        responses={201: UploadSerializer},
    )
    def post(self, request: Request) -> Response:
        """Upload a file.

        The body is the file. Use an upload session for large files.
        """
        caller = caller_of(request)
        purpose = request.query_params.get("purpose", "dataset")
        need_scope_of(caller, purpose)
        upload = services.take_upload(
            caller,
            request._request,  # type: ignore[arg-type]  # it has read()
            filename=request.query_params.get("filename", "upload"),
            purpose=purpose,
            sha256=request.headers.get("X-Content-SHA256"),
        )
        return Response(UploadSerializer.render(upload), status=201)


class FetchSerializer(StrictSerializer):
    url = serializers.CharField(max_length=2000, help_text="https, on the open internet; at most 1 GiB")
    secret = serializers.CharField(
        max_length=64, required=False, help_text="name of a project secret that goes along as Authorization"
    )


class FetchUploadView(ApiView):
    scopes = {"POST": "datasets:write"}

    @endpoint("fetch_upload", body=FetchSerializer, returns=UploadSerializer, status=201)
    def post(self, request: Request, fields: dict[str, Any]) -> object:
        """Upload from a URL.

        The control plane downloads the file. With `secret` it sends that secret to the hosts that it is
        allowed for.
        """
        return services.fetch_upload(caller_of(request), **fields, now=clock.now())


class DatasetsView(ApiView):
    scopes = {"GET": "datasets:read", "POST": "datasets:write"}

    @endpoint("list_datasets", page=DatasetSerializer, parameters=[OpenApiParameter("name", str)])
    def get(self, request: Request) -> object:
        """List datasets.

        Datasets of the project with their newest version.
        """
        found = selectors.datasets(caller_of(request))
        if name := request.query_params.get("name"):
            found = found.filter(name=name)
        return found

    @idempotent
    @endpoint("create_dataset", body=DatasetCreateSerializer, returns=DatasetSerializer, status=201)
    def post(self, request: Request, fields: dict[str, Any]) -> object:
        """Create a dataset.

        An empty dataset. Add versions from validated uploads.
        """
        return services.create_dataset(caller_of(request), **fields)


class DatasetView(ApiView):
    scopes = {"GET": "datasets:read"}

    @endpoint("get_dataset", returns=DatasetSerializer)
    def get(self, request: Request, dataset_id: str) -> object:
        """Get a dataset.

        The dataset with its versions.
        """
        return selectors.dataset_for(caller_of(request), dataset_id)


class VersionsView(ApiView):
    scopes = {"POST": "datasets:write"}

    @idempotent
    @endpoint(
        "create_dataset_version",
        body=VersionCreateSerializer,
        returns=VersionSerializer,
        existing="the same rows are a version already",
    )
    def post(self, request: Request, dataset_id: str) -> object:
        """Create a dataset version.

        Makes a version of a validation that found no errors. The same content finds the same version again
        (200).
        """
        caller = caller_of(request)
        dataset = selectors.dataset_for(caller, dataset_id)
        fields = body_of(VersionCreateSerializer, request)
        validation = selectors.validation_for(caller, fields["validation_id"])
        return create_version_of(caller, dataset, validation)


class VersionView(ApiView):
    scopes = {"GET": "datasets:read"}

    @endpoint("get_dataset_version", returns=VersionSerializer)
    def get(self, request: Request, version_id: str) -> object:
        """Get a dataset version.

        Its splits, rows, schema and statistics.
        """
        return selectors.version_for(caller_of(request), version_id)


class ResolveVersionView(ApiView):
    scopes = {"GET": "datasets:read"}

    @endpoint(
        "resolve_dataset_version",
        returns=VersionSerializer,
        parameters=[
            OpenApiParameter(
                "ref", NONEMPTY, required=True, description="id, name@3, name@latest or name@alias"
            )
        ],
    )
    def get(self, request: Request) -> object:
        """Resolve a dataset reference.

        The version that a reference such as `name@3` or `name@stable` names now.
        """
        reference = request.query_params.get("ref", "")
        version = selectors.find_version(caller_of(request), reference)
        return or_not_found(version, "dataset version", reference)


class RowsView(ApiView):
    scopes = {"GET": "datasets:read"}

    @extend_schema(
        operation_id="list_dataset_rows",
        parameters=[
            *PAGE_PARAMETERS,
            OpenApiParameter("q", str, description="only rows that hold this text"),
            OpenApiParameter("split", str, description="only rows of this split"),
        ],
        responses=page_of(CanonicalRowSerializer),
    )
    def get(self, request: Request, version_id: str) -> Response:
        """List the rows of a dataset version.

        Canonical rows, with search and a split filter.
        """
        version = selectors.version_for(caller_of(request), version_id)
        page = read_page(request)
        after = -1 if page.after is None else parse_int(page.after)
        if after is None:
            raise foreign_cursor(page.after or "")
        text, split = request.query_params.get("q", ""), request.query_params.get("split", "")
        if split and split not in version.splits:
            raise invalid_parameter(
                "split", f"split={split[:60]!r}: {version.ref} has {', '.join(sorted(version.splits))}"
            )
        if text or split:
            matching = list(derivation.search(version, text, split=split, after=after, limit=page.limit + 1))
            more = len(matching) > page.limit
            shown = matching[: page.limit]
            cursor = encode(str(shown[-1]["row"])) if more else None
            return Response({"data": shown, "next_cursor": cursor, "has_more": more})
        found = selectors.rows(version, after=after, limit=page.limit)
        last = after + len(found)
        more = last + 1 < version.rows
        return Response({"data": found, "next_cursor": encode(str(last)) if more else None, "has_more": more})
