from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.accounts import selectors
from control_plane.accounts.identity.caller import caller_of
from control_plane.accounts.teams import service_accounts
from control_plane.accounts.teams.member_api import RoleSerializer
from control_plane.accounts.tokens import tokens
from control_plane.accounts.tokens.token_api import (
    CreatedTokenSerializer,
    TokenCreateSerializer,
    TokenSerializer,
)
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.endpoints import endpoint
from control_plane.core.api.idempotency import idempotent
from control_plane.core.api.rendering import ResponseSerializer
from control_plane.core.api.request_parsing import StrictSerializer, body_of, name_field
from control_plane.core.api.schema import ROLES
from control_plane.core.infra import clock


class ServiceAccountCreateSerializer(StrictSerializer):
    name = name_field(r"^[a-z0-9][a-z0-9-]*$", "small letters, digits and -, no - in front", max_length=60)
    role = serializers.ChoiceField(choices=ROLES)


class ServiceAccountSerializer(ResponseSerializer):
    id = serializers.CharField()
    name = serializers.CharField(source="display_name")
    role = serializers.ChoiceField(choices=ROLES)
    tokens = serializers.IntegerField(source="live_tokens", help_text="how many are live")
    created_at = serializers.DateTimeField(source="date_joined")


class ServiceAccountsView(ApiView):
    scopes = {"GET": "members:read", "POST": "members:admin"}

    @endpoint("list_service_accounts", page=ServiceAccountSerializer)
    def get(self, request: Request) -> object:
        """List service accounts.

        Accounts of pipelines, with their role.
        """
        return selectors.service_accounts(caller_of(request))

    @idempotent
    @endpoint(
        "create_service_account",
        body=ServiceAccountCreateSerializer,
        returns=ServiceAccountSerializer,
        status=201,
    )
    def post(self, request: Request, fields: dict[str, Any]) -> object:
        """Create a service account.

        For a pipeline: it has a role and tokens, and no password.
        """
        caller = caller_of(request)
        made = service_accounts.create(caller, **fields, now=clock.now())
        return selectors.service_account(caller, made.pk)


class ServiceAccountView(ApiView):
    scopes = {"PATCH": "members:admin", "DELETE": "members:admin"}

    @endpoint("change_service_account", body=RoleSerializer, returns=ServiceAccountSerializer)
    def patch(self, request: Request, service_account_id: str) -> object:
        """Change a service account's role.

        Its tokens lose the scopes that the new role does not have.
        """
        caller = caller_of(request)
        selectors.service_account(caller, service_account_id)
        fields = body_of(RoleSerializer, request)
        role = fields["role"]
        service_accounts.set_role(caller, service_account_id, role, now=clock.now())
        return selectors.service_account(caller, service_account_id)

    @endpoint("remove_service_account")
    def delete(self, request: Request, service_account_id: str) -> None:
        """Delete a service account.

        Its tokens end at once; what it made stays.
        """
        service_accounts.remove(caller_of(request), service_account_id, now=clock.now())


class ServiceAccountTokensView(ApiView):
    scopes = {"POST": "members:admin"}

    @extend_schema(
        operation_id="create_service_account_token",
        request=TokenCreateSerializer,
        responses={201: CreatedTokenSerializer},
    )
    @idempotent(secret=True)
    def post(self, request: Request, service_account_id: str) -> Response:
        """Create a token for a service account.

        The token is shown once.
        """
        caller = caller_of(request)
        owner = selectors.service_account(caller, service_account_id)
        fields = body_of(TokenCreateSerializer, request)
        token, text = tokens.issue_token(caller, owner, **fields, now=clock.now())
        return Response({**TokenSerializer.render(token), "token": text}, status=201)
