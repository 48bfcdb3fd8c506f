"""Who is in the caller's project (`/members`) and in its team (`/team/members`)."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request

from control_plane.accounts import selectors
from control_plane.accounts.identity.caller import Caller, caller_of
from control_plane.accounts.models import Level
from control_plane.accounts.teams import membership
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.endpoints import endpoint
from control_plane.core.api.idempotency import idempotent
from control_plane.core.api.rendering import ResponseSerializer
from control_plane.core.api.request_parsing import StrictSerializer, body_of
from control_plane.core.api.schema import ROLES
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


def _member(caller: Caller, user_id: str) -> selectors.Member:
    return next(member for member in selectors.members(caller) if member.user.pk == user_id)


def _add(caller: Caller, level: Level, fields: dict[str, Any]) -> selectors.Member:
    user = membership.add_member(caller, level, **fields, now=clock.now())
    return _member(caller, user.pk)


def _change(request: Request, level: Level, user_id: str) -> selectors.Member:
    caller, role = caller_of(request), body_of(RoleSerializer, request)["role"]
    membership.set_role(caller, level, user_id, role, now=clock.now())
    return _member(caller, user_id)


class MembersView(ApiView):
    scopes = {"GET": "members:read", "POST": "members:admin"}

    @endpoint("list_members", whole=MemberSerializer)
    def get(self, request: Request) -> object:
        """List the members of the project.

        Everybody with a role here, also by a role in the team.
        """
        return selectors.members(caller_of(request))

    @idempotent
    @endpoint("add_member", body=MemberAddSerializer, returns=MemberSerializer, status=201)
    def post(self, request: Request, fields: dict[str, Any]) -> object:
        """Add a member to the project.

        Somebody who is in the team already. Invite anybody else.
        """
        return _add(caller_of(request), "project", fields)


class MemberView(ApiView):
    scopes = {"PATCH": "members:admin", "DELETE": "members:write"}

    @endpoint("change_member", body=RoleSerializer, returns=MemberSerializer)
    def patch(self, request: Request, user_id: str) -> object:
        """Change a member's role.

        Nobody can give a role above their own, and the last admin stays one.
        """
        return _change(request, "project", user_id)

    @endpoint("remove_member")
    def delete(self, request: Request, user_id: str) -> None:
        """Remove a member from the project.

        Their tokens of the project end. Anybody may leave; removing others needs `members:admin`.
        """
        membership.remove_member(caller_of(request), "project", user_id, now=clock.now())


class TeamMembersView(ApiView):
    scopes = {"GET": "members:read", "POST": "team:admin"}

    @endpoint("list_team_members", whole=MemberSerializer)
    def get(self, request: Request) -> object:
        """List the members of the team.

        Those with a role in the whole team.
        """
        return selectors.team_members(caller_of(request))

    @idempotent
    @endpoint("add_team_member", body=MemberAddSerializer, returns=MemberSerializer, status=201)
    def post(self, request: Request, fields: dict[str, Any]) -> object:
        """Add a member to the team.

        Gives an existing user a role in the whole team.
        """
        return _add(caller_of(request), "team", fields)


class TeamMemberView(ApiView):
    scopes = {"PATCH": "team:admin", "DELETE": "members:write"}

    @endpoint("change_team_member", body=RoleSerializer, returns=MemberSerializer)
    def patch(self, request: Request, user_id: str) -> object:
        """Change a team member's role.

        The last admin of a team stays one.
        """
        return _change(request, "team", user_id)

    @endpoint("remove_team_member")
    def delete(self, request: Request, user_id: str) -> None:
        """Remove a member from the team.

        Anybody may leave; removing others needs `team:admin`.
        """
        membership.remove_member(caller_of(request), "team", user_id, now=clock.now())
