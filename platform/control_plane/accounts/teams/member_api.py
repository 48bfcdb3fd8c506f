"""Who is in the caller's project (`/members`) and in its team (`/team/members`)."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.accounts import selectors
from control_plane.accounts.identity.caller import Caller, caller_of
from control_plane.accounts.models import Level
from control_plane.accounts.teams import membership
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.idempotency import idempotent
from control_plane.core.api.pagination import whole_page
from control_plane.core.api.rendering import ResponseSerializer
from control_plane.core.api.request_parsing import StrictSerializer
from control_plane.core.api.schema import ROLES, page_of
from control_plane.core.infra import clock


class MemberSerializer(ResponseSerializer):
    id = serializers.CharField(source="user.pk", help_text="of the user")
    username = serializers.CharField(source="user.username")
    role = serializers.ChoiceField(choices=ROLES, help_text="the higher of the two, which counts")
    project_role = serializers.ChoiceField(choices=ROLES, allow_null=True)
    team_role = serializers.ChoiceField(choices=ROLES, allow_null=True)


class MemberAddSerializer(StrictSerializer):
    username = serializers.CharField(max_length=120)
    role = serializers.ChoiceField(choices=ROLES)


class RoleSerializer(StrictSerializer):
    role = serializers.ChoiceField(choices=ROLES)


def _shown(caller: Caller, user_id: str) -> dict[str, Any]:
    return next(
        MemberSerializer.render(member) for member in selectors.members(caller) if member.user.pk == user_id
    )


class _MembersView(ApiView):
    level: Level

    def add(self, request: Request) -> Response:
        caller = caller_of(request)
        form = MemberAddSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        user = membership.add_member(caller, self.level, **form.validated_data, now=clock.now())
        return Response(_shown(caller, user.pk), status=201)


class _MemberView(ApiView):
    level: Level

    def change(self, request: Request, user_id: str) -> Response:
        caller = caller_of(request)
        form = RoleSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        membership.set_role(caller, self.level, user_id, form.validated_data["role"], now=clock.now())
        return Response(_shown(caller, user_id))

    def remove(self, request: Request, user_id: str) -> Response:
        membership.remove_member(caller_of(request), self.level, user_id, now=clock.now())
        return Response(status=204)


class MembersView(_MembersView):
    level = "project"
    scopes = {"GET": "members:read", "POST": "members:admin"}

    @extend_schema(operation_id="list_members", responses=page_of(MemberSerializer))
    def get(self, request: Request) -> Response:
        """List the members of the project.

        Everybody with a role here, also by a role in the team.
        """
        return Response(
            whole_page([MemberSerializer.render(found) for found in selectors.members(caller_of(request))])
        )

    @extend_schema(operation_id="add_member", request=MemberAddSerializer, responses={201: MemberSerializer})
    @idempotent
    def post(self, request: Request) -> Response:
        """Add a member to the project.

        Somebody who is in the team already. Invite anybody else.
        """
        return self.add(request)


class MemberView(_MemberView):
    level = "project"
    scopes = {"PATCH": "members:admin", "DELETE": "members:write"}

    @extend_schema(operation_id="change_member", request=RoleSerializer, responses=MemberSerializer)
    def patch(self, request: Request, user_id: str) -> Response:
        """Change a member's role.

        Nobody can give a role above their own, and the last admin stays one.
        """
        return self.change(request, user_id)

    @extend_schema(operation_id="remove_member", responses={204: None})
    def delete(self, request: Request, user_id: str) -> Response:
        """Remove a member from the project.

        Their tokens of the project end. Anybody may leave; removing others needs `members:admin`.
        """
        return self.remove(request, user_id)


class TeamMembersView(_MembersView):
    level = "team"
    scopes = {"GET": "members:read", "POST": "team:admin"}

    @extend_schema(operation_id="list_team_members", responses=page_of(MemberSerializer))
    def get(self, request: Request) -> Response:
        """List the members of the team.

        Those with a role in the whole team.
        """
        found = selectors.team_members(caller_of(request))
        return Response(whole_page([MemberSerializer.render(member) for member in found]))

    @extend_schema(
        operation_id="add_team_member", request=MemberAddSerializer, responses={201: MemberSerializer}
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """Add a member to the team.

        Gives an existing user a role in the whole team.
        """
        return self.add(request)


class TeamMemberView(_MemberView):
    level = "team"
    scopes = {"PATCH": "team:admin", "DELETE": "members:write"}

    @extend_schema(operation_id="change_team_member", request=RoleSerializer, responses=MemberSerializer)
    def patch(self, request: Request, user_id: str) -> Response:
        """Change a team member's role.

        The last admin of a team stays one.
        """
        return self.change(request, user_id)

    @extend_schema(operation_id="remove_team_member", responses={204: None})
    def delete(self, request: Request, user_id: str) -> Response:
        """Remove a member from the team.

        Anybody may leave; removing others needs `team:admin`.
        """
        return self.remove(request, user_id)
