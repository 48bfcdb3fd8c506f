"""Endpoints for the calendar of a pool: reservations and maintenance windows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request

from control_plane.accounts.identity.api import NamedSerializer
from control_plane.accounts.identity.caller import caller_of
from control_plane.accounts.models import Project, Team
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.endpoints import endpoint
from control_plane.core.api.errors import FieldError, Problem, unprocessable
from control_plane.core.api.idempotency import idempotent
from control_plane.core.api.query_params import choice
from control_plane.core.api.rendering import ResponseSerializer
from control_plane.core.api.request_parsing import StrictSerializer, body_of
from control_plane.core.infra import clock
from control_plane.fleet import access, calendar, calendar_selectors
from control_plane.fleet.models import Pool
from control_plane.fleet.pool_api import MAX_SLOTS

MAX_NODES = 200
STATES = ["upcoming", "active", "ended"]
STATE = OpenApiParameter(
    "state", enum=["current", "all"], description="current: those that have not ended; all: ended ones too"
)


class PeriodSerializer(StrictSerializer):
    starts_at = serializers.DateTimeField(required=False, help_text="now when left out")
    ends_at = serializers.DateTimeField(required=False)
    duration_seconds = serializers.IntegerField(
        min_value=60, max_value=int(calendar.MAX_LENGTH.total_seconds()), required=False,
        help_text="instead of ends_at: from the start on",
    )  # fmt: skip

    any_of = (("ends_at",), ("duration_seconds",))

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        starts_at = attrs.get("starts_at", clock.now())
        seconds = attrs.pop("duration_seconds", None)
        if seconds is not None:
            if "ends_at" in attrs:
                message = f"give ends_at or duration_seconds, not both: {seconds}"
                raise serializers.ValidationError({"duration_seconds": [message]})
            attrs["ends_at"] = starts_at + timedelta(seconds=seconds)
        return {**attrs, "starts_at": starts_at}


class ReserveSerializer(PeriodSerializer):
    team = serializers.CharField(max_length=120, help_text="id or name of a team that may use the pool")
    project = serializers.CharField(
        max_length=120,
        required=False,
        help_text="id or name of the team's project whose runs alone get the slots",
    )
    slots = serializers.IntegerField(
        min_value=1,
        max_value=MAX_SLOTS,
        required=False,
        help_text="number of slots, on nodes that the pool chooses",
    )
    nodes = serializers.ListField(
        child=serializers.CharField(max_length=120), min_length=1, max_length=MAX_NODES, required=False,
        help_text="ids or names of nodes of which all slots are reserved",
    )  # fmt: skip
    device = serializers.ChoiceField(
        choices=["cpu", "cuda"], required=False, help_text="of the slots; left out: any"
    )
    reason = serializers.CharField(max_length=200, required=False, help_text="what for")

    one_of = ("slots", "nodes")


class MaintainSerializer(PeriodSerializer):
    nodes = serializers.ListField(
        child=serializers.CharField(max_length=120), min_length=1, max_length=MAX_NODES, required=False,
        help_text="ids or names; left out: every node of the pool",
    )  # fmt: skip
    reason = serializers.CharField(max_length=200, help_text="shown to those who wait")


class AllocationSerializer(ResponseSerializer):
    node = NamedSerializer()
    slots = serializers.ListField(child=serializers.CharField())


class CalendarEntrySerializer(ResponseSerializer):
    id = serializers.CharField()
    pool = serializers.CharField()
    nodes = NamedSerializer(many=True)
    starts_at = serializers.DateTimeField()
    ends_at = serializers.DateTimeField()
    state = serializers.ChoiceField(choices=STATES)
    reason = serializers.CharField()
    created_by = serializers.CharField(help_text="username")
    created_at = serializers.DateTimeField()


class ReservationSerializer(CalendarEntrySerializer):
    nodes = NamedSerializer(
        many=True, help_text="of which all slots are reserved; empty: `slots` slots on any nodes"
    )
    team = NamedSerializer()
    project = NamedSerializer(
        allow_null=True, help_text="whose runs alone get the slots; null: all of the team"
    )
    slots = serializers.IntegerField(help_text="number of reserved slots")
    device = serializers.CharField(help_text="of the slots; empty: any")
    allocation = AllocationSerializer(
        many=True, help_text="the slots that the pool has chosen: from 24 hours before the start"
    )


class MaintenanceWindowSerializer(CalendarEntrySerializer):
    nodes = NamedSerializer(many=True, help_text="the nodes that are maintained, as the pool is now")
    whole_pool = serializers.BooleanField(help_text="every node of the pool is maintained")
    drains_at = serializers.DateTimeField(help_text="from then on the nodes are drained")


class ReservationsView(ApiView):
    scopes = {"GET": "pool:read", "POST": "pool:admin"}

    @endpoint("list_reservations", whole=ReservationSerializer, parameters=[STATE])
    def get(self, request: Request, pool_name: str) -> object:
        """List the reservations of a pool.

        Those that have not ended, the next one first; with `state=all` ended ones too.
        """
        pool = access.pool_for(caller_of(request), pool_name)
        return calendar_selectors.reservations(pool, ended=_with_ended(request), now=clock.now())

    @idempotent
    @endpoint("create_reservation", body=ReserveSerializer, returns=ReservationSerializer, status=201)
    def post(self, request: Request, pool_name: str) -> object:
        """Reserve slots for a team.

        From the start to the end, `slots` slots or all slots of `nodes` are reserved for runs of the team or
        project, which start there beyond their quotas. Before the start other runs use them only if they are
        predicted to end in time or can save a checkpoint; five minutes before it the ones that are left save
        a checkpoint and return to the queue. Playgrounds and borrowed engines use them until they are needed.
        """
        caller, now = caller_of(request), clock.now()
        pool = access.managed_pool(caller, pool_name)
        fields = body_of(ReserveSerializer, request)
        team = _team(pool, fields["team"])
        row = calendar.create_reservation(
            pool, team, project=_project(team, fields.get("project")), slots=fields.get("slots", 0),
            nodes=fields.get("nodes", []), device=fields.get("device", ""), starts_at=fields["starts_at"],
            ends_at=fields["ends_at"], reason=fields.get("reason", ""), created_by=caller.user.username, now=now,
        )  # fmt: skip
        return calendar_selectors.reservation(row, now=now)


class ReservationView(ApiView):
    scopes = {"DELETE": "pool:admin"}

    @endpoint("cancel_reservation")
    def delete(self, request: Request, pool_name: str, reservation_id: str) -> None:
        """Cancel a reservation.

        Its slots are for everybody again. Runs that use them stay, and count toward the quota from now on.
        """
        calendar.cancel_reservation(access.managed_pool(caller_of(request), pool_name), reservation_id)


class MaintenanceView(ApiView):
    scopes = {"GET": "pool:read", "POST": "pool:admin"}

    @endpoint("list_maintenance", whole=MaintenanceWindowSerializer, parameters=[STATE])
    def get(self, request: Request, pool_name: str) -> object:
        """List the maintenance windows of a pool.

        Those that have not ended, the next one first; with `state=all` ended ones too.
        """
        pool = access.pool_for(caller_of(request), pool_name)
        return calendar_selectors.maintenance_windows(pool, ended=_with_ended(request), now=clock.now())

    @idempotent
    @endpoint("create_maintenance", body=MaintainSerializer, returns=MaintenanceWindowSerializer, status=201)
    def post(self, request: Request, pool_name: str) -> object:
        """Plan the maintenance of nodes.

        Nothing is placed on the nodes that would outlive the start, unless it can save a checkpoint in time.
        Fifteen minutes before the start they are drained with the start as the deadline, and at the end they
        accept jobs again. Uncordoning a node before the end cancels its maintenance.
        """
        caller, now = caller_of(request), clock.now()
        pool = access.managed_pool(caller, pool_name)
        fields = body_of(MaintainSerializer, request)
        row = calendar.create_maintenance(
            pool, nodes=fields.get("nodes", []), starts_at=fields["starts_at"], ends_at=fields["ends_at"],
            reason=fields["reason"], created_by=caller.user.username, now=now,
        )  # fmt: skip
        return calendar_selectors.maintenance_window(row, now=now)


class MaintenanceWindowView(ApiView):
    scopes = {"DELETE": "pool:admin"}

    @endpoint("cancel_maintenance")
    def delete(self, request: Request, pool_name: str, window_id: str) -> None:
        """Cancel a maintenance window.

        Nodes that it drains accept jobs again. Runs that have been asked to leave still save a checkpoint and
        return to the queue.
        """
        calendar.cancel_maintenance(access.managed_pool(caller_of(request), pool_name), window_id)


def _with_ended(request: Request) -> bool:
    return choice(request, "state", ["current", "all"]) == "all"


def _team(pool: Pool, named: str) -> Team:
    team = access.by_id_or_name(access.teams_of(pool.pk), named)
    if team is None:
        raise _unknown(
            "team", f"no team {named!r} may use pool {pool.name!r}; see oolong pool teams list {pool.name}"
        )
    return team


def _project(team: Team, named: str | None) -> Project | None:
    if named is None:
        return None
    project = access.by_id_or_name(Project.objects.filter(team=team), named)
    if project is None:
        raise _unknown("project", f"team {team.name!r} has no project {named!r}; name one of its projects")
    return project


def _unknown(field: str, message: str) -> Problem:
    return unprocessable("invalid", message, [FieldError(f"/{field}", "unknown", message)])
