"""Endpoints for pools: teams, admins, quotas and join tokens."""

from __future__ import annotations

import re
from typing import Any

from drf_spectacular.utils import OpenApiResponse
from rest_framework import serializers
from rest_framework.request import Request

from control_plane.accounts.identity.api import NamedSerializer
from control_plane.accounts.identity.caller import caller_of
from control_plane.accounts.models import Team, User
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.endpoints import endpoint
from control_plane.core.api.errors import FieldError, Problem, or_not_found, unprocessable
from control_plane.core.api.idempotency import idempotent
from control_plane.core.api.rendering import ResponseSerializer
from control_plane.core.api.request_parsing import StrictSerializer, body_of, name_field
from control_plane.core.infra import clock
from control_plane.fleet import access, pools, selectors, services
from control_plane.fleet.models import Pool

POOL_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,59}")
POOL_NAME_RULE = "lowercase letters, digits and hyphens, at most 60"
MAX_SLOTS = 1_000_000  # in a quota
NO_CONTENT = OpenApiResponse(description="done; no content")


class PoolSettingsSerializer(ResponseSerializer):
    name = serializers.CharField()
    all_teams = serializers.BooleanField(
        help_text="every team may use the pool; otherwise only the teams bound to it"
    )
    trainer_code = serializers.BooleanField(
        help_text="uploaded loss functions are allowed; they run inside the trainer with its rights on the node"
    )
    may_manage = serializers.BooleanField(help_text="you can enroll and drain its nodes and set its quotas")


class CreatePoolSerializer(StrictSerializer):
    name = name_field(rf"^{POOL_NAME.pattern}$", POOL_NAME_RULE, max_length=60)
    all_teams = serializers.BooleanField(required=False)
    trainer_code = serializers.BooleanField(required=False)


class PoolChangeSerializer(StrictSerializer):
    all_teams = serializers.BooleanField(required=False)
    trainer_code = serializers.BooleanField(required=False)

    not_empty = True


class QuotaSerializer(ResponseSerializer):
    team = NamedSerializer()
    nominal_slots = serializers.IntegerField(
        help_text="slots that the team can always get: other teams borrow them only while they are idle"
    )
    limit_slots = serializers.IntegerField(
        allow_null=True, help_text="most slots at once, borrowed ones included; null: no limit"
    )
    lending_limit = serializers.IntegerField(
        allow_null=True, help_text="most unused nominal slots that other teams may borrow; null: all"
    )
    used_slots = serializers.IntegerField()


class ProjectQuotaChangeSerializer(StrictSerializer):
    nominal_slots = serializers.IntegerField(min_value=0, max_value=MAX_SLOTS, required=False)
    limit_slots = serializers.IntegerField(
        min_value=0, max_value=MAX_SLOTS, allow_null=True, required=False, help_text="null removes the limit"
    )

    not_empty = True


class QuotaChangeSerializer(ProjectQuotaChangeSerializer):
    lending_limit = serializers.IntegerField(
        min_value=0, max_value=MAX_SLOTS, allow_null=True, required=False, help_text="null lends all"
    )


class BindTeamSerializer(StrictSerializer):
    team = serializers.CharField(max_length=120, help_text="id or name of a team")


class AppointSerializer(StrictSerializer):
    username = serializers.CharField(max_length=120)


class PoolAdminSerializer(ResponseSerializer):
    id = serializers.CharField(source="user_id", help_text="user ID")
    username = serializers.CharField(source="user.username")
    appointed_at = serializers.DateTimeField()


class JoinTokenSerializer(ResponseSerializer):
    pool = serializers.CharField(help_text="the pool that the node joins")
    token = serializers.CharField(help_text="enrolls one node within 15 minutes; shown only once")
    expires_at = serializers.DateTimeField()


class PoolsView(ApiView):
    scopes = {"GET": "pool:read", "POST": "installation:admin"}

    @endpoint("list_pools", whole=PoolSettingsSerializer)
    def get(self, request: Request) -> object:
        """List pools.

        Pools that your team may use, and pools that you manage.
        """
        return selectors.pools(caller_of(request))

    @idempotent
    @endpoint("create_pool", body=CreatePoolSerializer, returns=PoolSettingsSerializer, status=201)
    def post(self, request: Request, fields: dict[str, Any]) -> object:
        """Create a pool.

        The new pool has no nodes. No team may use it until a team is bound to it or it is open to all teams.
        """
        return _settings(request, pools.create_pool(**fields))


class PoolView(ApiView):
    scopes = {"PATCH": "installation:admin"}

    @endpoint("change_pool", body=PoolChangeSerializer, returns=PoolSettingsSerializer)
    def patch(self, request: Request, pool_name: str) -> object:
        """Change a pool.

        Open it to all teams or close it; allow or forbid uploaded loss functions.
        """
        pool = get_pool(pool_name)
        return _settings(request, pools.change_pool(pool, **body_of(PoolChangeSerializer, request)))


class PoolTeamsView(ApiView):
    scopes = {"GET": "pool:admin", "POST": "installation:admin"}

    @endpoint("list_pool_teams", whole=QuotaSerializer)
    def get(self, request: Request, pool_name: str) -> object:
        """List the teams of a pool.

        Every team that may use the pool, with its used slots and quota.
        """
        pool = access.managed_pool(caller_of(request), pool_name)
        return selectors.quotas_of_pool(pool)

    @idempotent
    @endpoint("bind_pool_team", body=BindTeamSerializer, returns=QuotaSerializer)
    def post(self, request: Request, pool_name: str) -> object:
        """Let a team use a pool.

        The team's runs may be scheduled on its nodes, up to the quota when one is given.
        """
        pool, named = get_pool(pool_name), body_of(BindTeamSerializer, request)["team"]
        team = access.by_id_or_name(Team.objects.all(), named)
        if team is None:
            raise _unknown_error("team", named, "see GET /api/v1/teams")
        pools.bind_team(pool, team)
        return selectors.quotas(pool, [team])[0]


class PoolTeamView(ApiView):
    scopes = {"DELETE": "installation:admin"}

    @endpoint("unbind_pool_team")
    def delete(self, request: Request, pool_name: str, team_id: str) -> None:
        """Unbind a team from a pool.

        The team's runs in the pool save a checkpoint and return to the queue, where they wait until the team
        may use the pool again.
        """
        team = or_not_found(Team.objects.filter(pk=team_id).first(), "team", team_id)
        pools.unbind_team(get_pool(pool_name), team)


class PoolQuotaView(ApiView):
    scopes = {"PUT": "pool:admin"}

    @endpoint("set_pool_quota", body=QuotaChangeSerializer, returns=QuotaSerializer)
    def put(self, request: Request, pool_name: str, team_id: str) -> object:
        """Set the quota of a team.

        The team's share of the pool. It can always get `nominal_slots`: for a run within them, runs of teams
        that borrow save a checkpoint and return to the queue. It may borrow idle slots up to `limit_slots`,
        and others may borrow up to `lending_limit` of its idle nominal slots. Fields that are left out keep
        their value.
        """
        pool = access.managed_pool(caller_of(request), pool_name)
        changes = body_of(QuotaChangeSerializer, request)
        team = access.team_of_pool(pool, team_id)
        pools.set_quota(pool, team, **changes)
        return selectors.quotas(pool, [team])[0]


class PoolAdminsView(ApiView):
    scopes = {"GET": "pool:admin", "POST": "installation:admin"}

    @endpoint("list_pool_admins", whole=PoolAdminSerializer)
    def get(self, request: Request, pool_name: str) -> object:
        """List the admins of a pool.

        Installation admins manage every pool and are not listed.
        """
        pool = access.managed_pool(caller_of(request), pool_name)
        return selectors.admins_of_pool(pool)

    @idempotent
    @endpoint("appoint_pool_admin", body=AppointSerializer, returns=PoolAdminSerializer)
    def post(self, request: Request, pool_name: str) -> object:
        """Appoint an admin of a pool.

        Pool admins enroll nodes, and nodes see the data and secrets of their jobs. Appoint people whom every
        team of the pool trusts.
        """
        pool, username = get_pool(pool_name), body_of(AppointSerializer, request)["username"]
        user = User.objects.filter(username=username, is_active=True).first()
        if user is None:
            raise _unknown_error("username", username, "add or invite them to a project first")
        return pools.appoint_admin(pool, user)


class PoolAdminView(ApiView):
    scopes = {"DELETE": "installation:admin"}

    @endpoint("remove_pool_admin")
    def delete(self, request: Request, pool_name: str, user_id: str) -> None:
        """Remove an admin of a pool.

        The user no longer manages its nodes and quotas.
        """
        pools.remove_admin(get_pool(pool_name), user_id)


class JoinTokensView(ApiView):
    scopes = {"POST": "pool:admin"}

    @idempotent(secret=True)
    @endpoint("create_join_token", returns=JoinTokenSerializer, status=201)
    def post(self, request: Request, pool_name: str) -> object:
        """Create a join token for one node.

        Enrolls one node within 15 minutes. Shown only once.
        """
        pool = access.managed_pool(caller_of(request), pool_name)
        token, expires_at = services.create_join_token(pool, now=clock.now())
        return {"pool": pool.name, "token": token, "expires_at": expires_at}


def get_pool(name: str) -> Pool:
    """The pool by name, for installation admins, who see every pool."""
    return or_not_found(Pool.objects.filter(pk=name).first(), "pool", name)


def _settings(request: Request, pool: Pool) -> dict[str, Any]:
    may_manage = not access.manage_denied_reason(caller_of(request), pool)
    return {**vars(pool), "may_manage": may_manage}


def _unknown_error(field: str, value: str, way_out: str) -> Problem:
    message = f"there is no {field} {value!r}; {way_out}"
    return unprocessable("invalid", message, [FieldError(f"/{field}", "unknown", message)])
