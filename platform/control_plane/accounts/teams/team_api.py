"""Teams and projects. `/team` and `/project` are the caller's own; the plural ones list all that are theirs."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

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
from control_plane.core.api.etags import conditional
from control_plane.core.api.idempotency import idempotent
from control_plane.core.api.pagination import paginate, read_page
from control_plane.core.api.request_parsing import StrictSerializer, name_field
from control_plane.core.api.schema import PAGE_PARAMETERS, ROLES, page_of
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


def _name_of(request: Request) -> str:
    form = NameSerializer(data=request.data)
    form.is_valid(raise_exception=True)
    name: str = form.validated_data["name"]
    return name


class TeamsView(ApiView):
    scopes = {"GET": "project:read", "POST": "installation:admin"}

    @extend_schema(operation_id="list_teams", parameters=PAGE_PARAMETERS, responses=page_of(TeamSerializer))
    def get(self, request: Request) -> Response:
        """List teams.

        The caller's teams; all teams for administrators of the installation.
        """
        return Response(
            paginate(selectors.teams(caller_of(request)), read_page(request), TeamSerializer.render)
        )

    @extend_schema(operation_id="create_team", request=NameSerializer, responses={201: CreatedTeamSerializer})
    @idempotent
    def post(self, request: Request) -> Response:
        """Create a team.

        A team with a first project. You are its admin until you have invited others and leave.
        """
        team, project = teams.create_team(caller_of(request), name=_name_of(request), now=clock.now())
        return Response(
            {**TeamSerializer.render(team), "project": NamedSerializer.render(project)}, status=201
        )


class TeamView(ApiView):
    scopes = {"GET": "project:read", "PATCH": "team:admin"}

    @extend_schema(operation_id="get_team", responses=TeamSerializer)
    def get(self, request: Request) -> Response:
        """Get the team.

        The team of the caller's project.
        """
        return Response(TeamSerializer.render(caller_of(request).project.team))

    @extend_schema(operation_id="rename_team", request=NameSerializer, responses=TeamSerializer)
    @conditional
    def patch(self, request: Request) -> Response:
        """Rename the team.

        The new name must be free.
        """
        team = teams.rename_team(caller_of(request), _name_of(request), now=clock.now())
        return Response(TeamSerializer.render(team))


class ProjectsView(ApiView):
    scopes = {"GET": "project:read", "POST": "team:admin"}

    @extend_schema(
        operation_id="list_projects", parameters=PAGE_PARAMETERS, responses=page_of(ListedProjectSerializer)
    )
    def get(self, request: Request) -> Response:
        """List projects.

        Projects in which the caller has a role; with a token, those of its team.
        """
        found = selectors.listed_projects(caller_of(request))
        return Response(paginate(found, read_page(request), ListedProjectSerializer.render))

    @extend_schema(operation_id="create_project", request=NameSerializer, responses={201: ProjectSerializer})
    @idempotent
    def post(self, request: Request) -> Response:
        """Create a project.

        In the caller's team.
        """
        project = teams.create_project(caller_of(request), name=_name_of(request), now=clock.now())
        return Response(ProjectSerializer.render(project), status=201)
