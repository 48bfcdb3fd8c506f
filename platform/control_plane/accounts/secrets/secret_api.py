from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.accounts import selectors
from control_plane.accounts.identity.caller import caller_of
from control_plane.accounts.secrets import secret_services
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.endpoints import endpoint
from control_plane.core.api.idempotency import idempotent
from control_plane.core.api.rendering import ResponseSerializer
from control_plane.core.api.request_parsing import StrictSerializer, body_of, name_field
from control_plane.core.api.validation_messages import secret_field
from control_plane.core.infra import clock
from oolong.contracts.lifecycle import JobKind


class SecretSetSerializer(StrictSerializer):
    name = name_field(f"^{secret_services.NAME}$", "capitals, digits and _, a capital first", max_length=64)
    value = secret_field(
        max_length=secret_services.MOST_BYTES, trim_whitespace=False, help_text="never shown again"
    )
    hosts = serializers.ListField(
        child=serializers.RegexField(r"^[A-Za-z0-9.-]+(:[0-9]{1,5})?$", max_length=259), max_length=20, required=False,
        help_text="hosts that an import by URL or a remote reward may send it to, as Authorization; host:port for one "
        "port alone",
    )  # fmt: skip
    jobs = serializers.ListField(
        child=serializers.ChoiceField([str(kind) for kind in JobKind]), max_length=len(JobKind), required=False,
        help_text="kinds of jobs that a run may give it to, as a variable of their environment",
    )  # fmt: skip


class SecretSerializer(ResponseSerializer):
    name = serializers.CharField()
    hosts = serializers.ListField(child=serializers.CharField())
    jobs = serializers.ListField(child=serializers.CharField())
    fingerprint = serializers.CharField(help_text="changes with the value; made with a key of the server")
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()
    last_used_at = serializers.DateTimeField(allow_null=True)


class SecretsView(ApiView):
    scopes = {"GET": "secrets:read", "POST": "secrets:write"}

    @endpoint("list_secrets", page=SecretSerializer, order="name")
    def get(self, request: Request) -> object:
        """List secrets.

        Names, hosts and fingerprints of the project's secrets; never the values.
        """
        return selectors.secrets(caller_of(request))

    @extend_schema(
        operation_id="set_secret", request=SecretSetSerializer,
        responses={200: SecretSerializer, 201: SecretSerializer},
    )  # fmt: skip
    @idempotent
    def post(self, request: Request) -> Response:
        """Set a secret.

        Keeps a value under a name and replaces the one before (200). The value is encrypted and never shown
        again.
        """
        fields = body_of(SecretSetSerializer, request)
        row, created = secret_services.set_secret(caller_of(request), **fields, now=clock.now())
        return Response(SecretSerializer.render(row), status=201 if created else 200)


class SecretView(ApiView):
    scopes = {"DELETE": "secrets:write"}

    @endpoint("delete_secret")
    def delete(self, request: Request, secret_name: str) -> None:
        """Delete a secret.

        Jobs and imports that name it fail from now on.
        """
        secret_services.delete_secret(caller_of(request), secret_name, now=clock.now())
