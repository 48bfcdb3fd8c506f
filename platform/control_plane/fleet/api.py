from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.accounts.identity.api import NamedSerializer
from control_plane.accounts.identity.caller import caller_of
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.idempotency import idempotent
from control_plane.core.api.request_parsing import bodyless
from control_plane.core.api.schema import NODE_STATUSES
from control_plane.fleet import selectors, services
from control_plane.fleet.access import managed_node
from control_plane.fleet.models import Intent


class NodeSerializer(serializers.Serializer[Any]):
    id = serializers.CharField()
    name = serializers.CharField()
    pool = serializers.CharField(help_text="empty once the node was revoked")
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


class _IntentView(ApiView):
    scopes = {"POST": "pool:admin"}
    intent: Intent

    def set_intent(self, request: Request, node_id: str) -> Response:
        node = managed_node(caller_of(request), node_id)
        return Response(selectors.node_as_json(services.set_intent(node, self.intent)))


class CordonView(_IntentView):
    intent = Intent.CORDONED

    @extend_schema(
        operation_id="cordon_node",
        summary="Cordon a node",
        description="Running jobs continue, no new jobs start.",
        request=None,
        responses=NodeSerializer,
    )
    @idempotent
    @bodyless
    def post(self, request: Request, node_id: str) -> Response:
        """Cordon a node.

        Running jobs continue, no new jobs start.
        """
        return self.set_intent(request, node_id)


class UncordonView(_IntentView):
    intent = Intent.ACTIVE

    @extend_schema(
        operation_id="uncordon_node",
        summary="Uncordon a node",
        description="New jobs may start on it again.",
        request=None,
        responses=NodeSerializer,
    )
    @idempotent
    @bodyless
    def post(self, request: Request, node_id: str) -> Response:
        """Uncordon a node.

        New jobs may start on it again.
        """
        return self.set_intent(request, node_id)


class DrainView(_IntentView):
    intent = Intent.DRAINING

    @extend_schema(
        operation_id="drain_node",
        summary="Drain a node",
        description="Its runs take a checkpoint and move to other nodes; no new jobs start. The status is DRAINED once "
        "nothing holds a slot of it.",
        request=None,
        responses=NodeSerializer,
    )
    @idempotent
    @bodyless
    def post(self, request: Request, node_id: str) -> Response:
        """Drain a node.

        No new jobs start; running jobs save a checkpoint and move elsewhere.
        """
        return self.set_intent(request, node_id)
