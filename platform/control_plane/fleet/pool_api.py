"""Endpoints for pools: teams, admins, quotas and join tokens."""

from __future__ import annotations

import re
from typing import Any

from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.accounts.identity.api import NamedSerializer
from control_plane.accounts.identity.caller import caller_of
from control_plane.accounts.models import Team, User
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.errors import FieldError, Problem, or_not_found, unprocessable
from control_plane.core.api.idempotency import idempotent
from control_plane.core.api.pagination import whole_page
from control_plane.core.api.rendering import ResponseSerializer
from control_plane.core.api.request_parsing import StrictSerializer, body_of, name_field, no_body
from control_plane.core.api.schema import page_of
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

    @extend_schema(
        operation_id="list_pools",
        summary="List pools",
        description="Pools that your team may use, and pools that you manage.",
        responses=page_of(PoolSettingsSerializer),
    )
    def get(self, request: Request) -> Response:
        return Response(whole_page(PoolSettingsSerializer.render_all(selectors.pools(caller_of(request)))))

    @extend_schema(
        operation_id="create_pool",
        summary="Create a pool",
        description="The new pool has no nodes. No team may use it until a team is bound to it or it is open to all "
        "teams.",
        request=CreatePoolSerializer,
        responses={201: PoolSettingsSerializer},
    )
    @idempotent
    def post(self, request: Request) -> Response:
        pool = pools.create_pool(**body_of(CreatePoolSerializer, request))
        return Response(_settings(request, pool), status=201)


class PoolView(ApiView):
    scopes = {"PATCH": "installation:admin"}

    @extend_schema(
        operation_id="change_pool",
        summary="Change a pool",
        description="Open it to all teams or close it; allow or forbid uploaded loss functions.",
        request=PoolChangeSerializer,
        responses=PoolSettingsSerializer,
    )
    def patch(self, request: Request, pool_name: str) -> Response:
        pool = get_pool(pool_name)
        pool = pools.change_pool(pool, **body_of(PoolChangeSerializer, request))
        return Response(_settings(request, pool))


class PoolTeamsView(ApiView):
    scopes = {"GET": "pool:admin", "POST": "installation:admin"}

    @extend_schema(
        operation_id="list_pool_teams",
        summary="List the teams of a pool",
        description="Every team that may use the pool, with its used slots and quota.",
        responses=page_of(QuotaSerializer),
    )
    def get(self, request: Request, pool_name: str) -> Response:
        pool = access.managed_pool(caller_of(request), pool_name)
        return Response(whole_page(QuotaSerializer.render_all(selectors.quotas_of_pool(pool))))

    @extend_schema(
        operation_id="bind_pool_team",
        summary="Let a team use a pool",
        request=BindTeamSerializer,
        responses=QuotaSerializer,
    )
    @idempotent
    def post(self, request: Request, pool_name: str) -> Response:
        """Let a team use a pool.

        The team's runs may be scheduled on its nodes, up to the quota when one is given.
        """
        pool, named = get_pool(pool_name), body_of(BindTeamSerializer, request)["team"]
        # One team's name may equal another team's ID; IDs win.
        team = Team.objects.filter(pk=named).first() or Team.objects.filter(name=named).first()
        if team is None:
            raise _unknown_error("team", named, "see GET /api/v1/teams")
        pools.bind_team(pool, team)
        return Response(QuotaSerializer.render(selectors.quotas(pool, [team])[0]))


class PoolTeamView(ApiView):
    scopes = {"DELETE": "installation:admin"}

    @extend_schema(
        operation_id="unbind_pool_team",
        summary="Unbind a team from a pool",
        description="The team's runs in the pool save a checkpoint and return to the queue, where they wait until "
        "the team "
        "may use the pool again.",
        request=None,
        responses={204: NO_CONTENT},
    )
    def delete(self, request: Request, pool_name: str, team_id: str) -> Response:
        team = or_not_found(Team.objects.filter(pk=team_id).first(), "team", team_id)
        pools.unbind_team(get_pool(pool_name), team)
        return Response(status=204)


class PoolQuotaView(ApiView):
    scopes = {"PUT": "pool:admin"}

    @extend_schema(
        operation_id="set_pool_quota",
        summary="Set the quota of a team",
        description="The team's share of the pool. It can always get `nominal_slots`: for a run within them, runs of "
        "teams that borrow save a checkpoint and return to the queue. It may borrow idle slots up to `limit_slots`, "
        "and others may borrow up to `lending_limit` of its idle nominal slots. Fields that are left out keep their "
        "value.",
        request=QuotaChangeSerializer,
        responses=QuotaSerializer,
    )
    def put(self, request: Request, pool_name: str, team_id: str) -> Response:
        pool = access.managed_pool(caller_of(request), pool_name)
        changes = body_of(QuotaChangeSerializer, request)
        team = access.team_of_pool(pool, team_id)
        pools.set_quota(pool, team, **changes)
        return Response(QuotaSerializer.render(selectors.quotas(pool, [team])[0]))


class PoolAdminsView(ApiView):
    scopes = {"GET": "pool:admin", "POST": "installation:admin"}

    @extend_schema(
        operation_id="list_pool_admins",
        summary="List the admins of a pool",
        description="Installation admins manage every pool and are not listed.",
        responses=page_of(PoolAdminSerializer),
    )
    def get(self, request: Request, pool_name: str) -> Response:
        pool = access.managed_pool(caller_of(request), pool_name)
        return Response(whole_page(PoolAdminSerializer.render_all(selectors.admins_of_pool(pool))))

    @extend_schema(
        operation_id="appoint_pool_admin",
        summary="Appoint an admin of a pool",
        description="Pool admins enroll nodes, and nodes see the data and secrets of their jobs. Appoint people whom "
        "every "
        "team of the pool trusts.",
        request=AppointSerializer,
        responses=PoolAdminSerializer,
    )
    @idempotent
    def post(self, request: Request, pool_name: str) -> Response:
        pool, username = get_pool(pool_name), body_of(AppointSerializer, request)["username"]
        user = User.objects.filter(username=username, is_active=True).first()
        if user is None:
            raise _unknown_error("username", username, "add or invite them to a project first")
        return Response(PoolAdminSerializer.render(pools.appoint_admin(pool, user)))


class PoolAdminView(ApiView):
    scopes = {"DELETE": "installation:admin"}

    @extend_schema(
        operation_id="remove_pool_admin",
        summary="Remove an admin of a pool",
        request=None,
        responses={204: NO_CONTENT},
    )
    def delete(self, request: Request, pool_name: str, user_id: str) -> Response:
        """Remove an admin of a pool.

        The user no longer manages its nodes and quotas.
        """
        pools.remove_admin(get_pool(pool_name), user_id)
        return Response(status=204)


class JoinTokensView(ApiView):
    scopes = {"POST": "pool:admin"}

    @extend_schema(
        operation_id="create_join_token",
        summary="Create a join token for one node",
        request=None,
        responses={201: JoinTokenSerializer},
    )
    @idempotent(secret=True)
    @no_body
    def post(self, request: Request, pool_name: str) -> Response:
        """Create a join token.

        Enrolls one node within 15 minutes. Shown only once.
        """
        pool = access.managed_pool(caller_of(request), pool_name)
        token, expires_at = services.create_join_token(pool, now=clock.now())
        created = {"pool": pool.name, "token": token, "expires_at": expires_at}
        return Response(JoinTokenSerializer.render(created), status=201)


def get_pool(name: str) -> Pool:
    """The pool by name, for installation admins, who see every pool."""
    return or_not_found(Pool.objects.filter(pk=name).first(), "pool", name)


def _settings(request: Request, pool: Pool) -> dict[str, Any]:
    may_manage = not access.manage_denied_reason(caller_of(request), pool)
    return PoolSettingsSerializer.render({**vars(pool), "may_manage": may_manage})


def _unknown_error(field: str, value: str, way_out: str) -> Problem:
    message = f"there is no {field} {value!r}; {way_out}"
    return unprocessable("invalid", message, [FieldError(f"/{field}", "unknown", message)])
