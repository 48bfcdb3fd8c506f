from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib.auth import get_user
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.accounts import selectors
from control_plane.accounts.identity import services
from control_plane.accounts.identity.api import NamedSerializer
from control_plane.accounts.identity.authentication import CallerSessionAuthentication, TokenAuthentication
from control_plane.accounts.identity.caller import Caller, caller_of
from control_plane.accounts.models import User
from control_plane.accounts.teams import invitations
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.endpoints import endpoint
from control_plane.core.api.errors import FieldError, Problem, unprocessable
from control_plane.core.api.idempotency import idempotent
from control_plane.core.api.rendering import ResponseSerializer
from control_plane.core.api.request_parsing import StrictSerializer, body_of, name_field
from control_plane.core.api.schema import INVITATION_STATUSES, ROLES
from control_plane.core.api.validation_messages import secret_field
from control_plane.core.infra import clock
from control_plane.core.security.request_context import note_caller

LEVELS = ["project", "team"]


class InvitationCreateSerializer(StrictSerializer):
    role = serializers.ChoiceField(choices=ROLES)
    level = serializers.ChoiceField(
        choices=LEVELS, default="project", help_text="team: the role in all of the team's projects"
    )
    note = serializers.CharField(max_length=200, required=False, default="", allow_blank=True)
    days = serializers.IntegerField(min_value=1, max_value=30, default=7, help_text="it is good for")


class InvitationSerializer(ResponseSerializer):
    id = serializers.CharField()
    level = serializers.ChoiceField(choices=LEVELS)
    role = serializers.ChoiceField(choices=ROLES)
    note = serializers.CharField()
    status = serializers.ChoiceField(choices=INVITATION_STATUSES)
    created_by = serializers.CharField(source="created_by.username")
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField()
    accepted_by = serializers.CharField(source="accepted_by.username", allow_null=True)


class CreatedInvitationSerializer(InvitationSerializer):
    link = serializers.CharField(help_text="shown this once; hand it to whom you invite")


class SecretSerializer(StrictSerializer):
    secret = secret_field(max_length=100, help_text="what stands behind the # of the link")


class AcceptSerializer(SecretSerializer):
    username = name_field(
        r"^[A-Za-z0-9][A-Za-z0-9._-]*$", "letters, digits and . _ -, a letter or a digit first", max_length=120,
        required=False,
    )  # fmt: skip
    password = secret_field(min_length=10, max_length=1024, required=False, trim_whitespace=False)
    token_name = serializers.CharField(
        max_length=120, required=False, help_text="make a token of this name, too: for the command line"
    )


class InvitedSerializer(ResponseSerializer):
    """What an invitation is into."""

    team = NamedSerializer(source="project.team")
    project = NamedSerializer()
    level = serializers.ChoiceField(choices=LEVELS)
    role = serializers.ChoiceField(choices=ROLES)
    invited_by = serializers.CharField(source="created_by.username")
    expires_at = serializers.DateTimeField()


class AcceptedSerializer(InvitedSerializer):
    """What an invitation is into."""

    username = serializers.CharField()
    token = serializers.CharField(allow_null=True, help_text="shown this once")


class InvitationsView(ApiView):
    scopes = {"GET": "members:admin", "POST": "members:admin"}

    @endpoint("list_invitations", page=InvitationSerializer)
    def get(self, request: Request) -> object:
        """List invitations.

        Invitations to the project and its team, newest first.
        """
        return selectors.invitations(caller_of(request))

    @extend_schema(
        operation_id="create_invitation",
        request=InvitationCreateSerializer,
        responses={201: CreatedInvitationSerializer},
    )
    @idempotent(secret=True)
    def post(self, request: Request) -> Response:
        """Create an invitation.

        A secret link for somebody who is not in the team. It is shown once.
        """
        fields = body_of(InvitationCreateSerializer, request)
        asked = fields
        row, link = invitations.invite(
            caller_of(request), asked["level"], role=asked["role"], note=asked["note"],
            life=timedelta(days=asked["days"]), now=clock.now(),
        )  # fmt: skip
        return Response({**InvitationSerializer.render(row), "link": link}, status=201)


class InvitationView(ApiView):
    scopes = {"DELETE": "members:admin"}

    @endpoint("revoke_invitation")
    def delete(self, request: Request, invitation_id: str) -> None:
        """Revoke an invitation.

        Its link stops working. An accepted invitation stays accepted.
        """
        invitations.revoke(caller_of(request), invitation_id, now=clock.now())


class InvitationLookupView(ApiView):
    """The secret is the credential. In the body, because addresses are logged."""

    permission_classes = [AllowAny]
    authentication_classes: list[Any] = []

    @endpoint("look_up_invitation", body=SecretSerializer, returns=InvitedSerializer, auth=[])
    def post(self, request: Request, fields: dict[str, Any]) -> object:
        """Look up an invitation.

        Who invites to what, for the page that accepts it. The secret is the credential; it stands in the body
        because addresses are logged.
        """
        return invitations.find(fields["secret"], now=clock.now())


class InvitationAcceptView(ApiView):
    """The secret is the credential for joining; who joins says so by a session, a token, or a new name."""

    permission_classes = [AllowAny]
    authentication_classes: list[Any] = []

    @extend_schema(
        operation_id="accept_invitation", request=AcceptSerializer, responses=AcceptedSerializer, auth=[]
    )
    def post(self, request: Request) -> Response:
        """Accept an invitation.

        As the user of your session or token; without one, as a new user with `username` and `password`.
        """
        fields = body_of(AcceptSerializer, request)
        asked, now = fields, clock.now()
        user, caller = _who(request)
        if user is not None:
            row = invitations.accept(asked["secret"], user, now=now)
        else:
            row, user = invitations.accept_as_new(asked["secret"], **_name_and_password(asked), now=now)
        text = None
        if name := asked.get("token_name"):
            # Never more, nor for longer, than the token that it was asked with.
            scopes = caller.token.scopes if caller and caller.token else ["*"]
            _, text = services.create_token(
                user=user, project=row.project, name=name, scopes=scopes,
                expires_at=services.min_expiry(
                    now + services.TOKEN_LIFE, services.effective_expiry(caller) if caller else None
                ),
            )  # fmt: skip
        return Response({**InvitedSerializer.render(row), "username": user.username, "token": text})


def _who(request: Request) -> tuple[User | None, Caller | None]:
    """A user may be in no project yet, which the usual authentication does not let in."""
    if found := TokenAuthentication().authenticate(request):
        caller = found[1]
        if "members:write" not in caller.scopes:
            raise Problem(
                403, "missing_scope", "joining a project with a token needs the scope members:write"
            )
        return caller.user, caller
    user = get_user(request._request)
    if not isinstance(user, User) or not user.is_active:
        return None, None
    CallerSessionAuthentication().enforce_csrf(request)
    note_caller(kind="user", identity=user.pk, name=user.username)
    return user, None


def _name_and_password(asked: dict[str, Any]) -> dict[str, str]:
    missing = [name for name in ("username", "password") if name not in asked]
    if missing:
        message = "a new user needs a name and a password; who has an account logs in first"
        raise unprocessable(
            "invalid", message, [FieldError(f"/{name}", "required", message) for name in missing]
        )
    return {"username": asked["username"], "password": asked["password"]}
