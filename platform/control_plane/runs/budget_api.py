"""Endpoints for the monthly budgets of teams and projects in a pool."""

from __future__ import annotations

from rest_framework import serializers
from rest_framework.request import Request

from control_plane.accounts.identity.api import NamedSerializer
from control_plane.accounts.identity.caller import caller_of
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.endpoints import endpoint
from control_plane.core.api.errors import or_not_found
from control_plane.core.api.rendering import ResponseSerializer
from control_plane.core.api.request_parsing import StrictSerializer, body_of
from control_plane.core.infra import clock
from control_plane.fleet import access
from control_plane.runs import budgets
from control_plane.runs.budget_state import BudgetState


class BudgetSerializer(ResponseSerializer):
    team = NamedSerializer(source="row.team")
    project = NamedSerializer(source="row.project", allow_null=True, help_text="null: of the whole team")
    gpu_hours = serializers.DecimalField(
        source="row.gpu_hours", max_digits=12, decimal_places=2, allow_null=True, coerce_to_string=True,
        help_text="of GPU slots, in a calendar month (UTC); null: no limit",
    )  # fmt: skip
    cost = serializers.DecimalField(
        source="row.cost", max_digits=12, decimal_places=2, allow_null=True, coerce_to_string=True,
        help_text="in a calendar month (UTC); null: no limit",
    )  # fmt: skip
    currency = serializers.CharField(help_text="of the installation: OOLONG_CURRENCY")
    since = serializers.DateTimeField(help_text="start of the month")
    until = serializers.DateTimeField(help_text="end of the month")
    used_gpu_hours = serializers.FloatField(source="used.gpu_hours")
    used_cost = serializers.FloatField(source="used.cost", help_text="slots without a price cost nothing")
    used_frac = serializers.FloatField(
        help_text="of the limit that is used most; above 1: more than the budget"
    )
    state = serializers.ChoiceField(
        choices=[str(state) for state in BudgetState],
        help_text="warning: at least 80 % is used; exhausted: runs pause, and new ones wait",
    )
    message = serializers.CharField(help_text="one sentence; empty while the budget is within its limits")


class BudgetChangeSerializer(StrictSerializer):
    gpu_hours = serializers.DecimalField(
        max_digits=12, decimal_places=2, min_value=0, allow_null=True, required=False, coerce_to_string=True,
        help_text="of GPU slots, in a calendar month (UTC); null removes the limit",
    )  # fmt: skip
    cost = serializers.DecimalField(
        max_digits=12, decimal_places=2, min_value=0, allow_null=True, required=False, coerce_to_string=True,
        help_text="in a calendar month (UTC), in the currency of the installation; null removes the limit",
    )  # fmt: skip

    not_empty = True


class BudgetsView(ApiView):
    scopes = {"GET": "pool:read"}

    @endpoint("list_budgets", whole=BudgetSerializer)
    def get(self, request: Request, pool_name: str) -> object:
        """List the budgets of a pool, with what is used of them this month.

        Those of every team for pool admins; else those of your team, and of its projects that you can see.
        """
        caller = caller_of(request)
        return budgets.visible_budgets(caller, access.pool_for(caller, pool_name), now=clock.now())


class TeamBudgetView(ApiView):
    scopes = {"PUT": "pool:admin"}

    @endpoint("set_team_budget", body=BudgetChangeSerializer, returns=BudgetSerializer)
    def put(self, request: Request, pool_name: str, team_id: str) -> object:
        """Set the monthly budget of a team in a pool.

        When it is used up, the team's runs in the pool save a checkpoint and pause, its playgrounds and reward
        tests end, and its queued runs wait until the month ends or the budget is raised. Fields that are left
        out keep their value; without any limit the budget is removed.
        """
        pool = access.managed_pool(caller_of(request), pool_name)
        team = access.team_of_pool(pool, team_id)
        return budgets.set_budget(pool, team, None, body_of(BudgetChangeSerializer, request), now=clock.now())


class ProjectBudgetView(ApiView):
    scopes = {"PUT": "team:admin"}

    @endpoint("set_project_budget", body=BudgetChangeSerializer, returns=BudgetSerializer)
    def put(self, request: Request, pool_name: str, project_id: str) -> object:
        """Set the monthly budget of a project of your team in a pool.

        As a team's, for the runs of this project. What the project uses counts toward the team's budget too.
        """
        caller = caller_of(request)
        pool, team = access.pool_for(caller, pool_name), caller.project.team
        project = or_not_found(team.projects.filter(pk=project_id).first(), "project of the team", project_id)
        access.team_of_pool(pool, team.pk)
        changes = body_of(BudgetChangeSerializer, request)
        return budgets.set_budget(pool, team, project, changes, now=clock.now())
