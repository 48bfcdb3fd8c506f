"""Teams and projects. `/team` and `/project` are the caller's own; the plural ones list all that are theirs."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request

from control_plane.accounts import selectors
from control_plane.accounts.identity.api import (
    NAME_PATTERN,
    NAME_WORDS,
    NamedSerializer,
    ProjectSerializer,
)
from control_plane.accounts.identity.caller import caller_of
from control_plane.accounts.teams import teams
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.endpoints import endpoint
from control_plane.core.api.etags import conditional
from control_plane.core.api.idempotency import idempotent
from control_plane.core.api.request_parsing import StrictSerializer, name_field
from control_plane.core.api.schema import ROLES
from control_plane.core.infra import clock


class ListedProjectSerializer(ProjectSerializer):
    role = serializers.ChoiceField(choices=ROLES, help_text="yours in it: the higher of project and team")

    def resolve_role(self, row: Any) -> str:
        return selectors.higher_role(row.project_role, row.team_role)


class NameSerializer(StrictSerializer):
    name = name_field(NAME_PATTERN, NAME_WORDS, max_length=120)


class TeamSerializer(NamedSerializer):
    pass


class CreatedTeamSerializer(NamedSerializer):
    project = NamedSerializer(help_text="its first project")


class TeamsView(ApiView):
    scopes = {"GET": "project:read", "POST": "installation:admin"}

    @endpoint("list_teams", page=TeamSerializer)
    def get(self, request: Request) -> object:
        """List teams.

        The caller's teams; all teams for administrators of the installation.
        """
        return selectors.teams(caller_of(request))

    @idempotent
    @endpoint("create_team", body=NameSerializer, returns=CreatedTeamSerializer, status=201)
    def post(self, request: Request, fields: dict[str, Any]) -> object:
        """Create a team.

        A team with a first project. You are its admin until you have invited others and leave.
        """
        team, project = teams.create_team(caller_of(request), **fields, now=clock.now())
        return {"id": team.pk, "name": team.name, "project": project}


class TeamView(ApiView):
    scopes = {"GET": "project:read", "PATCH": "team:admin"}

    @endpoint("get_team", returns=TeamSerializer)
    def get(self, request: Request) -> object:
        """Get the team.

        The team of the caller's project.
        """
        return caller_of(request).project.team

    @conditional
    @endpoint("rename_team", body=NameSerializer, returns=TeamSerializer)
    def patch(self, request: Request, fields: dict[str, Any]) -> object:
        """Rename the team.

        The new name must be free.
        """
        return teams.rename_team(caller_of(request), fields["name"], now=clock.now())


class ProjectsView(ApiView):
    scopes = {"GET": "project:read", "POST": "team:admin"}

    @endpoint("list_projects", page=ListedProjectSerializer)
    def get(self, request: Request) -> object:
        """List projects.

        Projects in which the caller has a role; with a token, those of its team.
        """
        return selectors.listed_projects(caller_of(request))

    @idempotent
    @endpoint("create_project", body=NameSerializer, returns=ProjectSerializer, status=201)
    def post(self, request: Request, fields: dict[str, Any]) -> object:
        """Create a project.

        In the caller's team.
        """
        return teams.create_project(caller_of(request), **fields, now=clock.now())
