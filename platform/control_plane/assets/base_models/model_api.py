"""Base models: registered by an upload or a path, checked, looked at, removed when they are unusable."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request

from control_plane.accounts.identity.caller import caller_of
from control_plane.assets import selectors
from control_plane.assets.base_models import model_services as services
from control_plane.assets.models import ModelState
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.endpoints import endpoint
from control_plane.core.api.errors import or_not_found
from control_plane.core.api.idempotency import idempotent
from control_plane.core.api.long_poll import WAIT_PARAMETERS
from control_plane.core.api.rendering import ResponseSerializer
from control_plane.core.api.request_parsing import StrictSerializer, name_field
from control_plane.core.api.schema import NONEMPTY, FieldErrorSerializer


class ModelCreateSerializer(StrictSerializer):
    name = name_field(
        r"^[A-Za-z0-9][A-Za-z0-9_./ -]*$",
        "letters, digits, spaces and . _ / - beginning with a letter or digit",
        max_length=120,
    )
    upload_id = serializers.CharField(required=False)
    path = serializers.CharField(required=False, max_length=1000)

    one_of = ("upload_id", "path")


class ModelFileSerializer(ResponseSerializer):
    name = serializers.CharField()
    bytes = serializers.IntegerField()
    sha256 = serializers.CharField()


class ModelSerializer(ResponseSerializer):
    id = serializers.CharField()
    name = serializers.CharField()
    number = serializers.IntegerField(allow_null=True, help_text="of the version; null until READY")
    ref = serializers.CharField(allow_blank=True, help_text="name@2")
    state = serializers.ChoiceField(choices=ModelState.values)
    message = serializers.CharField(help_text="why INVALID")
    errors = FieldErrorSerializer(  # type: ignore[assignment]  # a field, as in every answer with faults
        source="findings.faults", many=True, help_text="every fault, by file or tensor"
    )
    same_as = serializers.CharField(
        source="same_as_id", allow_null=True, help_text="of a DUPLICATE: the version with the same files"
    )
    source = serializers.CharField(help_text="upload, path or hub")  # type: ignore[assignment]
    origin = serializers.CharField(help_text="of a hub: its address, the model and the commit")
    path = serializers.CharField()
    family = serializers.CharField(help_text="config.json's model_type")
    parameters = serializers.IntegerField(allow_null=True)
    sha256 = serializers.CharField()
    bytes = serializers.IntegerField()
    config = serializers.DictField()
    manifest_sha256 = serializers.CharField(help_text="of the names and hashes of its files")
    files = ModelFileSerializer(source="findings.files", many=True)
    tensors = serializers.IntegerField(source="findings.tensors", allow_null=True)
    dtypes = serializers.DictField(
        source="findings.dtypes", child=serializers.IntegerField(), help_text="parameters by dtype"
    )
    tokens = serializers.IntegerField(
        source="findings.tokens", allow_null=True, help_text="ids of the tokenizer"
    )
    prompt = serializers.CharField(
        source="findings.prompt", help_text="what its chat template makes of a small conversation"
    )
    created_at = serializers.DateTimeField()


class ModelsView(ApiView):
    scopes = {"GET": "models:read", "POST": "models:write"}

    @endpoint("list_models", page=ModelSerializer, parameters=[OpenApiParameter("name", str)])
    def get(self, request: Request) -> object:
        """List base models.

        Base models of the project with their state.
        """
        found = selectors.models(caller_of(request)).exclude(state=ModelState.DUPLICATE)
        if name := request.query_params.get("name"):
            found = found.filter(name=name)
        return found

    @idempotent
    @endpoint(
        "register_model",
        body=ModelCreateSerializer,
        returns=ModelSerializer,
        existing="the same is registered or being checked already",
    )
    def post(self, request: Request, fields: dict[str, Any]) -> object:
        """Register a base model.

        From an upload, or from a path that nodes have. It is checked in the background before runs can use
        it.
        """
        caller = caller_of(request)
        name = fields["name"]
        if "path" in fields:
            model, created = services.register_path(caller, name=name, path=fields["path"])
        else:
            upload = selectors.upload_for(caller, fields["upload_id"])
            model, created = services.register_upload(caller, name=name, upload=upload)
        return model, created


class ModelView(ApiView):
    scopes = {"GET": "models:read", "DELETE": "models:write"}

    @endpoint("get_model", returns=ModelSerializer, parameters=WAIT_PARAMETERS)
    def get(self, request: Request, model_id: str) -> object:
        """Get a base model.

        Its state, files, configuration and the errors of its check.
        """
        return selectors.model_for(caller_of(request), model_id)

    @endpoint("remove_model")
    def delete(self, request: Request, model_id: str) -> None:
        """Delete a base model.

        A rejected or unused model. 409 when a run or dataset still needs it.
        """
        services.remove(selectors.model_for(caller_of(request), model_id))


class ResolveModelView(ApiView):
    scopes = {"GET": "models:read"}

    @endpoint(
        "resolve_model",
        returns=ModelSerializer,
        parameters=[
            OpenApiParameter("ref", NONEMPTY, required=True, description="id, name, name@3 or name@latest")
        ],
    )
    def get(self, request: Request) -> object:
        """Resolve a model reference.

        The model that a reference such as `name@2` names now.
        """
        reference = request.query_params.get("ref", "")
        model = selectors.find_model(caller_of(request), reference)
        return or_not_found(model, "model", reference)
