"""Imports of base models from a hub, by a node."""

from __future__ import annotations

from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.accounts.identity.caller import caller_of
from control_plane.assets import selectors
from control_plane.assets.base_models import import_services as services
from control_plane.assets.base_models.model_api import ModelSerializer
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.endpoints import endpoint
from control_plane.core.api.idempotency import idempotent
from control_plane.core.api.rendering import ResponseSerializer
from control_plane.core.api.request_parsing import StrictSerializer, body_of, name_field
from control_plane.core.infra import clock


class ImportCreateSerializer(StrictSerializer):
    name = name_field(
        r"^[A-Za-z0-9][A-Za-z0-9_./ -]*$",
        "letters, digits, spaces and . _ / - beginning with a letter or digit",
        max_length=120,
    )
    model = serializers.CharField(max_length=200, help_text="owner/name on the hub")
    revision = serializers.RegexField(
        r"^[A-Za-z0-9][\w./-]*$", max_length=200, required=False, default="main",
        help_text="commit, tag or branch; the model keeps the commit that it was",
    )  # fmt: skip
    secret = serializers.CharField(
        max_length=64, required=False, default="", allow_blank=True,
        help_text="name of the project secret with a token of the hub, for a private or gated model",
    )  # fmt: skip


class ModelImportSerializer(ResponseSerializer):
    id = serializers.CharField()
    name = serializers.CharField()
    hub = serializers.CharField()
    hub_model = serializers.CharField()
    revision = serializers.CharField()
    commit = serializers.CharField()
    state = serializers.ChoiceField(choices=["QUEUED", "RUNNING", "CHECKING", "DONE", "FAILED", "CANCELLED"])
    message = serializers.CharField(help_text="why it did not become a model")
    node_id = serializers.CharField()
    bytes_done = serializers.IntegerField()
    bytes_total = serializers.IntegerField(help_text="0 until its list of files is known")
    model = ModelSerializer(source="imported_model", allow_null=True)
    created_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)


class ModelImportsView(ApiView):
    scopes = {"GET": "models:read", "POST": "models:write"}

    @endpoint("list_model_imports", page=ModelImportSerializer)
    def get(self, request: Request) -> object:
        """List model imports.

        Imports of the project, newest first.
        """
        return selectors.model_imports(caller_of(request))

    @extend_schema(
        operation_id="import_model",
        request=ImportCreateSerializer,
        responses={
            202: ModelImportSerializer,
            200: OpenApiResponse(ModelImportSerializer, description="the same is on its way already"),
        },
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """Import a model from a hub.

        A node downloads, checks and uploads the model in the background. An import of the same model that is
        under way is returned (200).
        """
        fields = body_of(ImportCreateSerializer, request)
        given = dict(fields)
        made, created = services.request_import(caller_of(request), hub_model=given.pop("model"), **given)
        return Response(ModelImportSerializer.render(made), status=202 if created else 200)


class ModelImportView(ApiView):
    scopes = {"GET": "models:read", "DELETE": "models:write"}

    @endpoint("get_model_import", returns=ModelImportSerializer)
    def get(self, request: Request, import_id: str) -> object:
        """Get a model import.

        Its state, progress and, when it failed, why.
        """
        return selectors.model_import_for(caller_of(request), import_id)

    @endpoint("cancel_model_import", returns=ModelImportSerializer)
    def delete(self, request: Request, import_id: str) -> object:
        """Cancel a model import.

        What was fetched is deleted. A finished import cannot be canceled.
        """
        asked = selectors.model_import_for(caller_of(request), import_id)
        return services.cancel_import(asked, now=clock.now())
