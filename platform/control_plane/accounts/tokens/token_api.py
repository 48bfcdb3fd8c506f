from __future__ import annotations

from datetime import timedelta
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.accounts import selectors
from control_plane.accounts.identity.caller import Caller, caller_of
from control_plane.accounts.identity.services import TOKEN_LIFE
from control_plane.accounts.tokens import tokens
from control_plane.accounts.tokens.scopes import SCOPE_PATTERN
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.endpoints import endpoint
from control_plane.core.api.errors import Problem
from control_plane.core.api.idempotency import idempotent
from control_plane.core.api.query_params import choice
from control_plane.core.api.rendering import ResponseSerializer
from control_plane.core.api.request_parsing import StrictSerializer, body_of
from control_plane.core.infra import clock

MOST_OVERLAP_SECONDS = 7 * 24 * 3600
IN_PROJECT = OpenApiParameter(
    "project", OpenApiTypes.STR,
    description="id of another project of the team; a token needs the scope team:admin for it",
)  # fmt: skip


def _caller(request: Request) -> Caller:
    """Who asks, in the project that the address names."""
    return tokens.caller_in_project(caller_of(request), request.query_params.get("project", ""))


@extend_schema_field({"type": "string", "pattern": SCOPE_PATTERN})
class ScopeField(serializers.CharField):
    """Unknown ones are refused with those that are known, by `create_token`."""


class TokenCreateSerializer(StrictSerializer):
    name = serializers.CharField(max_length=120)
    scopes = serializers.ListField(child=ScopeField(max_length=40), min_length=1, max_length=40)
    expires_at = serializers.DateTimeField(
        required=False, allow_null=True,
        help_text="left out: in 90 days; null: never. With a token that ends, it ends with that one at the latest",
    )  # fmt: skip

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        return {"expires_at": clock.now() + TOKEN_LIFE, **attrs}


class TokenSerializer(ResponseSerializer):
    id = serializers.CharField()
    name = serializers.CharField()
    prefix = serializers.CharField(help_text="its first characters")
    scopes = serializers.ListField(child=serializers.CharField())
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField(allow_null=True)
    last_used_at = serializers.DateTimeField(allow_null=True, help_text="to the minute")
    owner_id = serializers.CharField(source="user_id", help_text="of the user or service account")
    owner = serializers.CharField(source="user.display_name", help_text="name of the user or service account")
    previous_until = serializers.DateTimeField(
        allow_null=True, help_text="until then the secret before the last rotation works"
    )


class CreatedTokenSerializer(TokenSerializer):
    token = serializers.CharField(help_text="shown this once")


class TokenRotateSerializer(StrictSerializer):
    overlap_seconds = serializers.IntegerField(
        min_value=0, max_value=MOST_OVERLAP_SECONDS, default=3600,
        help_text="how long the old secret works; 0 ends it at once",
    )  # fmt: skip


class TokensView(ApiView):
    scopes = {"GET": "tokens:read", "POST": "tokens:write"}

    @endpoint(
        "list_tokens",
        page=TokenSerializer,
        parameters=[
            IN_PROJECT,
            OpenApiParameter(
                "all", OpenApiTypes.BOOL, description="true: everybody's of the project; needs tokens:admin"
            ),
        ],
    )
    def get(self, request: Request) -> object:
        """List your tokens.

        Names, scopes and last use; never the secrets.
        """
        caller, everybodys = _caller(request), choice(request, "all", ["true", "false"]) == "true"
        if everybodys and "tokens:admin" not in caller.scopes:
            raise Problem(403, "missing_scope", "the tokens of others need the scope tokens:admin")
        return selectors.tokens(caller, everybodys=everybodys)

    @extend_schema(
        operation_id="create_token",
        parameters=[IN_PROJECT],
        request=TokenCreateSerializer,
        responses={201: CreatedTokenSerializer},
    )
    @idempotent(secret=True)
    def post(self, request: Request) -> Response:
        """Create a token.

        For yourself in this project, with scopes that you have. It is shown once.
        """
        caller = _caller(request)
        fields = body_of(TokenCreateSerializer, request)
        token, text = tokens.issue_token(caller, caller.user, **fields, now=clock.now())
        return Response({**TokenSerializer.render(token), "token": text}, status=201)


class TokenView(ApiView):
    scopes = {"DELETE": "tokens:write"}

    @endpoint("revoke_token", parameters=[IN_PROJECT])
    def delete(self, request: Request, token_id: str) -> None:
        """Revoke a token.

        It stops working at once, also for streams that are open.
        """
        tokens.revoke_token(_caller(request), token_id, now=clock.now())


class TokenRotateView(ApiView):
    scopes = {"POST": "tokens:write"}

    @extend_schema(
        operation_id="rotate_token",
        parameters=[IN_PROJECT],
        request=TokenRotateSerializer,
        responses=CreatedTokenSerializer,
    )
    @idempotent(secret=True)
    def post(self, request: Request, token_id: str) -> Response:
        """Rotate a token.

        A new secret under the same id. The old one keeps working for the overlap.
        """
        fields = body_of(TokenRotateSerializer, request)
        overlap = timedelta(seconds=fields["overlap_seconds"])
        token, text = tokens.rotate_token(_caller(request), token_id, overlap=overlap, now=clock.now())
        return Response({**TokenSerializer.render(token), "token": text})
