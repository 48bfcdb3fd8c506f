"""Endpoints for the quotas of a team's projects in a pool."""

from __future__ import annotations

from rest_framework import serializers
from rest_framework.request import Request

from control_plane.accounts.identity.api import NamedSerializer
from control_plane.accounts.identity.caller import Caller, caller_of
from control_plane.accounts.models import Team
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.endpoints import endpoint
from control_plane.core.api.errors import or_not_found
from control_plane.core.api.rendering import ResponseSerializer
from control_plane.core.api.request_parsing import body_of
from control_plane.fleet import access, pools, selectors
from control_plane.fleet.models import Pool
from control_plane.fleet.pool_api import ProjectQuotaChangeSerializer


class ProjectQuotaSerializer(ResponseSerializer):
    project = NamedSerializer()
    nominal_slots = serializers.IntegerField(
        help_text="slots of the team's nominal quota that the project can always get: the team's other projects use "
        "them only while they are idle"
    )
    limit_slots = serializers.IntegerField(
        allow_null=True, help_text="most slots at once; null: no limit but the team's"
    )
    used_slots = serializers.IntegerField()


class TeamProjectsView(ApiView):
    scopes = {"GET": "pool:admin"}

    @endpoint("list_project_quotas", whole=ProjectQuotaSerializer)
    def get(self, request: Request, pool_name: str, team_id: str) -> object:
        """List the projects of a team with their quotas in a pool."""
        pool, team = _managed(caller_of(request), pool_name, team_id)
        projects = team.projects.order_by("name", "id")
        return selectors.project_shares(pool, projects)


class ProjectQuotaView(ApiView):
    scopes = {"PUT": "pool:admin"}

    @endpoint("set_project_quota", body=ProjectQuotaChangeSerializer, returns=ProjectQuotaSerializer)
    def put(self, request: Request, pool_name: str, team_id: str, project_id: str) -> object:
        """Set the quota of a project.

        The project's share of what its team may hold in the pool. It can always get `nominal_slots` of the
        team's nominal quota: for a run within them, runs of the team's projects that hold more than theirs
        save a checkpoint and return to the queue. The nominal quotas of a team's projects sum to at most the
        team's. It never holds more than `limit_slots`. Fields that are left out keep their value.
        """
        pool, team = _managed(caller_of(request), pool_name, team_id)
        changes = body_of(ProjectQuotaChangeSerializer, request)
        project = or_not_found(team.projects.filter(pk=project_id).first(), "project of the team", project_id)
        pools.set_project_quota(pool, project, **changes)
        return selectors.project_shares(pool, [project])[0]


def _managed(caller: Caller, pool_name: str, team_id: str) -> tuple[Pool, Team]:
    """A pool that the caller manages and one of its teams."""
    pool = access.managed_pool(caller, pool_name)
    return pool, access.team_of_pool(pool, team_id)
