from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.accounts.api import NamedSerializer
from control_plane.accounts.caller import caller_of
from control_plane.common import clock
from control_plane.common.clock import rfc3339
from control_plane.common.idempotency import idempotent
from control_plane.common.parsing import StrictSerializer, bodyless
from control_plane.common.schema import NODE_STATUSES
from control_plane.common.views import ApiView
from control_plane.fleet import selectors, services
from control_plane.fleet.models import Intent


class NodeSerializer(serializers.Serializer[Any]):
    id = serializers.CharField()
    name = serializers.CharField()
    status = serializers.ChoiceField(choices=NODE_STATUSES)
    hostname = serializers.CharField()
    agent_version = serializers.CharField()
    cpu_count = serializers.IntegerField()
    memory_bytes = serializers.IntegerField()
    disk_free_bytes = serializers.IntegerField()
    slots = serializers.IntegerField(help_text="how many")
    enrolled_at = serializers.DateTimeField()
    last_seen_at = serializers.DateTimeField()


class HolderSerializer(serializers.Serializer[Any]):
    run_id = serializers.CharField(help_text="empty when the run is another team's")
    run_name = serializers.CharField()
    job = serializers.CharField()


class SlotSerializer(serializers.Serializer[Any]):
    id = serializers.CharField()
    name = serializers.CharField(help_text="cpu-0, or the GPU's UUID")
    node = NamedSerializer()
    device = serializers.CharField(help_text="cpu or cuda")
    model = serializers.CharField()
    memory_bytes = serializers.IntegerField()
    state = serializers.ChoiceField(choices=["free", "held", "unhealthy"])
    reason = serializers.CharField(help_text="why it is unhealthy")
    held_by = HolderSerializer(allow_null=True)


class QuotaSerializer(serializers.Serializer[Any]):
    team = NamedSerializer()
    limit_slots = serializers.IntegerField(allow_null=True, help_text="null: no limit")
    used_slots = serializers.IntegerField()


class QuotaChangeSerializer(StrictSerializer):
    limit_slots = serializers.IntegerField(min_value=0, max_value=1_000_000, allow_null=True)


class EnrolmentTokenSerializer(serializers.Serializer[Any]):
    token = serializers.CharField(help_text="for one node, good for 15 minutes, shown this once")
    expires_at = serializers.DateTimeField()


class _IntentView(ApiView):
    scopes = {"POST": "pool:admin"}
    intent: Intent

    def set_intent(self, node_id: str) -> Response:
        return Response(selectors.node_as_json(services.set_intent(node_id, self.intent)))


class CordonView(_IntentView):
    intent = Intent.CORDONED

    @extend_schema(operation_id="cordon_node", request=None, responses=NodeSerializer)
    @idempotent
    @bodyless
    def post(self, request: Request, node_id: str) -> Response:
        return self.set_intent(node_id)


class UncordonView(_IntentView):
    intent = Intent.ACTIVE

    @extend_schema(operation_id="uncordon_node", request=None, responses=NodeSerializer)
    @idempotent
    @bodyless
    def post(self, request: Request, node_id: str) -> Response:
        return self.set_intent(node_id)


class DrainView(_IntentView):
    intent = Intent.DRAINING

    @extend_schema(operation_id="drain_node", request=None, responses=NodeSerializer)
    @idempotent
    @bodyless
    def post(self, request: Request, node_id: str) -> Response:
        return self.set_intent(node_id)


class QuotaView(ApiView):
    scopes = {"PATCH": "pool:admin"}

    @extend_schema(operation_id="set_quota", request=QuotaChangeSerializer, responses=QuotaSerializer)
    def patch(self, request: Request) -> Response:
        caller = caller_of(request)
        form = QuotaChangeSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        services.set_quota(caller.project.team, limit_slots=form.validated_data["limit_slots"])
        return Response(selectors.quota_as_json(caller.project.team))


class EnrolmentTokensView(ApiView):
    scopes = {"POST": "pool:admin"}

    @extend_schema(
        operation_id="create_enrolment_token", request=None, responses={201: EnrolmentTokenSerializer}
    )
    @idempotent(secret=True)
    @bodyless
    def post(self, request: Request) -> Response:
        token, expires_at = services.create_enrolment_token(now=clock.now())
        return Response({"token": token, "expires_at": rfc3339(expires_at)}, status=201)
