"""Functions: versioned source of users (contracts.user_code)."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse, HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request

from control_plane.accounts.identity.api import NamedSerializer
from control_plane.accounts.identity.caller import caller_of
from control_plane.assets import selectors
from control_plane.assets.functions import function_services as services
from control_plane.assets.storage import store
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.endpoints import endpoint
from control_plane.core.api.errors import or_not_found
from control_plane.core.api.etags import conditional
from control_plane.core.api.idempotency import idempotent
from control_plane.core.api.query_params import choice
from control_plane.core.api.rendering import ResponseSerializer
from control_plane.core.api.request_parsing import StrictSerializer, body_of, name_field
from control_plane.core.api.schema import NONEMPTY, SOURCE_KINDS
from control_plane.core.infra import clock
from oolong.contracts.user_code import MAX_SOURCE_BYTES, SourceKind

ARCHIVED = ("include", "only")


class FunctionUploadSerializer(StrictSerializer):
    name = name_field(
        r"^[A-Za-z0-9][A-Za-z0-9_.-]*$",
        "letters, digits and . _ - beginning with a letter or digit",
        max_length=120,
    )
    kind = serializers.ChoiceField(choices=SOURCE_KINDS)
    source = serializers.CharField(
        trim_whitespace=False,
        help_text=f"the text of one Python file, at most {MAX_SOURCE_BYTES} bytes",
        error_messages={"blank": "the file is empty; it must define the function of its kind"},
    )
    description = serializers.CharField(required=False, allow_blank=True, default="", max_length=10_000)


class FunctionVersionSerializer(ResponseSerializer):
    id = serializers.CharField()
    function = NamedSerializer()
    kind = serializers.ChoiceField(source="function.kind", choices=SOURCE_KINDS)
    number = serializers.IntegerField()
    ref = serializers.CharField(help_text="name@3")
    sha256 = serializers.CharField(help_text="of the file")
    bytes = serializers.IntegerField()
    options = serializers.ListField(child=serializers.CharField(), help_text="options that a spec may give")
    any_option = serializers.BooleanField(help_text="it takes any option")
    created_by = serializers.CharField(source="created_by.username")
    created_at = serializers.DateTimeField()


class FunctionSerializer(ResponseSerializer):
    id = serializers.CharField()
    name = serializers.CharField()
    kind = serializers.ChoiceField(choices=SOURCE_KINDS)
    description = serializers.CharField()
    created_by = serializers.CharField(source="created_by.username")
    created_at = serializers.DateTimeField()
    archived_at = serializers.DateTimeField(
        allow_null=True, help_text="hidden from the list since; specs that name it still run"
    )
    versions = FunctionVersionSerializer(source="newest_versions", many=True, help_text="newest first")


class FunctionChangeSerializer(StrictSerializer):
    archived = serializers.BooleanField(help_text="hide it from the list, or show it again")


class FunctionsView(ApiView):
    scopes = {"GET": "functions:read", "POST": "functions:write"}

    @endpoint(
        "list_functions",
        page=FunctionSerializer,
        parameters=[
            OpenApiParameter("kind", str, enum=SOURCE_KINDS),
            OpenApiParameter(
                "archived", str, enum=ARCHIVED,
                description="archived functions are left out by default: list only them, or include them",
            ),
        ],
    )  # fmt: skip
    def get(self, request: Request) -> object:
        """List functions.

        Reward functions, workflows and losses of the project.
        """
        found = selectors.functions(caller_of(request))
        if kind := choice(request, "kind", SOURCE_KINDS):
            found = found.filter(kind=kind)
        archived = choice(request, "archived", ARCHIVED)
        return found if archived == "include" else found.filter(archived_at__isnull=archived != "only")

    @idempotent
    @endpoint(
        "upload_function",
        body=FunctionUploadSerializer,
        returns=FunctionVersionSerializer,
        existing="a version has this source already",
    )
    def post(self, request: Request, fields: dict[str, Any]) -> object:
        """Upload a function.

        The source is checked before it is kept. Each change of the source is a new version; the same source
        finds the same version again (200).
        """
        given = {**fields, "kind": SourceKind(fields["kind"])}
        return services.upload_function(caller_of(request), **given)


class FunctionView(ApiView):
    scopes = {"GET": "functions:read", "PATCH": "functions:write", "DELETE": "functions:write"}

    @endpoint("get_function", returns=FunctionSerializer)
    def get(self, request: Request, function_id: str) -> object:
        """Get a function.

        The function with its versions, signature and description.
        """
        return selectors.function_for(caller_of(request), function_id)

    @conditional
    @endpoint("change_function", body=FunctionChangeSerializer, returns=FunctionSerializer)
    def patch(self, request: Request, function_id: str) -> object:
        """Archive or restore a function.

        Archived functions are hidden from the list and take no new version. Specs that name them still run.
        """
        caller = caller_of(request)
        function = selectors.function_for(caller, function_id)
        fields = body_of(FunctionChangeSerializer, request)
        services.set_archived(caller, function, fields["archived"], now=clock.now())
        return selectors.function_for(caller, function_id)

    @conditional
    @endpoint("delete_function")
    def delete(self, request: Request, function_id: str) -> None:
        """Delete a function.

        With all its versions. 409 when runs, drafts, gates, sweeps or templates refer to it: archive it instead.
        """
        caller = caller_of(request)
        services.delete_function(caller, selectors.function_for(caller, function_id), now=clock.now())


class ResolveFunctionView(ApiView):
    scopes = {"GET": "functions:read"}

    @endpoint(
        "resolve_function_version",
        returns=FunctionVersionSerializer,
        parameters=[
            OpenApiParameter("ref", NONEMPTY, required=True, description="id, name@3 or name@latest")
        ],
    )
    def get(self, request: Request) -> object:
        """Resolve a function reference.

        The version that a reference such as `name@2` names now.
        """
        reference = request.query_params.get("ref", "")
        return or_not_found(
            selectors.find_function_version(caller_of(request), reference), "function version", reference
        )


class FunctionSourceView(ApiView):
    scopes = {"GET": "functions:read"}

    @extend_schema(
        operation_id="download_function_source",
        responses={(200, "text/x-python"): OpenApiTypes.STR},
    )
    def get(self, request: Request, function_version_id: str) -> HttpResponseBase:
        """Download the source of a function.

        The Python source of this version.
        """
        version = selectors.function_version_for(caller_of(request), function_version_id)
        with store.open_blob(version.sha256) as file:
            response = HttpResponse(file.read(), content_type="text/x-python; charset=utf-8")
        response["Content-Disposition"] = (
            f'attachment; filename="{version.function.name}-{version.number}.py"'
        )
        response["ETag"] = f'"{version.sha256}"'
        return response
