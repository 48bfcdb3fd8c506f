from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Prefetch, prefetch_related_objects
from rest_framework import serializers
from rest_framework.request import Request

from control_plane.accounts.identity.api import NamedSerializer
from control_plane.accounts.identity.caller import caller_of
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.endpoints import endpoint
from control_plane.core.api.idempotency import idempotent
from control_plane.core.api.rendering import ResponseSerializer
from control_plane.core.api.request_parsing import StrictSerializer, body_of
from control_plane.core.api.schema import NODE_STATUSES
from control_plane.core.infra import clock
from control_plane.fleet import quarantine, services
from control_plane.fleet.access import managed_node
from control_plane.fleet.models import Node, SchedulingState, Slot
from oolong.contracts.agent import JobIsolation, Provider

MAX_DEADLINE_SECONDS = 30 * 86_400  # of a drain


class NodeSerializer(ResponseSerializer):
    id = serializers.CharField()
    name = serializers.CharField()
    pool = serializers.CharField(help_text="empty for a revoked node")
    status = serializers.ChoiceField(choices=NODE_STATUSES)
    hostname = serializers.CharField()
    agent_version = serializers.CharField()
    cpu_count = serializers.IntegerField()
    memory_bytes = serializers.IntegerField()
    disk_free_bytes = serializers.IntegerField()
    model_roots = serializers.ListField(
        child=serializers.CharField(), help_text="directories of models that it offers"
    )
    job_isolation = serializers.ChoiceField(choices=[str(kind) for kind in JobIsolation])
    job_isolation_reason = serializers.CharField(help_text="why jobs are not isolated; empty when they are")
    peer_network = serializers.CharField(
        help_text="engines of a run may be on nodes of the pool with the same peer network; empty: on none but this one"
    )
    provider = serializers.ChoiceField(
        choices=[str(kind) for kind in Provider], help_text="what has started the agent"
    )
    provider_job = serializers.CharField(help_text="ID of the Slurm job, or name of the pod; else empty")
    partition = serializers.CharField(help_text="of the Slurm job; else empty")
    account = serializers.CharField(help_text="of the Slurm job; else empty")
    ends_at = serializers.DateTimeField(
        allow_null=True,
        help_text="when the provider ends the node, which is drained before; null: not known, or never",
    )
    slots = serializers.IntegerField(help_text="number of slots")
    drain_deadline = serializers.DateTimeField(
        allow_null=True,
        help_text="when the node's runs are stopped; null: it does not drain, or without a deadline",
    )
    maintenance_ends_at = serializers.DateTimeField(
        allow_null=True, help_text="when the maintenance that drains the node ends and it accepts jobs again"
    )
    quarantined_at = serializers.DateTimeField(
        allow_null=True,
        help_text="no new jobs start until a pool admin releases the node; null: not quarantined",
    )
    quarantine_reason = serializers.CharField()
    enrolled_at = serializers.DateTimeField()
    last_seen_at = serializers.DateTimeField()

    @classmethod
    def prefetch(cls, rows: Sequence[Any]) -> None:
        prefetch_related_objects(rows, "maintenance", Prefetch("slots", Slot.objects.filter(present=True)))

    def resolve_pool(self, node: Node) -> str:
        return node.pool_id or ""

    def resolve_slots(self, node: Node) -> int:
        return len(node.slots.all())

    def resolve_maintenance_ends_at(self, node: Node) -> datetime | None:
        return node.maintenance.ends_at if node.maintenance is not None else None


class HolderSerializer(ResponseSerializer):
    run_id = serializers.CharField(help_text="empty for another team's run")
    run_name = serializers.CharField()
    job = serializers.CharField()


class SlotProcessSerializer(ResponseSerializer):
    pid = serializers.IntegerField()
    user = serializers.CharField()
    command = serializers.CharField(help_text="empty for those who do not manage the pool")
    memory_bytes = serializers.IntegerField(help_text="of the GPU")


class SlotSerializer(ResponseSerializer):
    id = serializers.CharField()
    name = serializers.CharField(help_text="cpu-0, or the GPU's UUID")
    node = NamedSerializer()
    device = serializers.CharField(help_text="cpu or cuda")
    model = serializers.CharField()
    memory_bytes = serializers.IntegerField()
    state = serializers.ChoiceField(
        choices=["free", "held", "occupied", "unhealthy"],
        help_text="occupied: it is not held, and a process that is no job of Oolong uses it",
    )
    reason = serializers.CharField(help_text="why the slot is unhealthy")
    utilization = serializers.FloatField(
        allow_null=True,
        help_text="0 to 1: of the GPU; of a core by the job's processes. Null: not measured",
    )
    memory_used_bytes = serializers.IntegerField(allow_null=True)
    celsius = serializers.FloatField(allow_null=True)
    occupied_by = SlotProcessSerializer(
        many=True, help_text="processes on it that are no jobs of Oolong, also beside a job"
    )
    held_by = HolderSerializer(allow_null=True)

    def resolve_id(self, slot: Slot) -> str:
        return f"{slot.node_id}:{slot.name}"

    def resolve_state(self, slot: Any) -> str:
        if slot.held_by:
            return "held"
        if not slot.healthy:
            return "unhealthy"
        return "occupied" if slot.occupied_by else "free"


class CordonView(ApiView):
    scopes = {"POST": "pool:admin"}

    @idempotent
    @endpoint("cordon_node", returns=NodeSerializer)
    def post(self, request: Request, node_id: str) -> object:
        """Cordon a node.

        Running jobs continue, no new jobs start.
        """
        node = managed_node(caller_of(request), node_id)
        return services.set_scheduling_state(node, SchedulingState.CORDONED)


class UncordonView(ApiView):
    scopes = {"POST": "pool:admin"}

    @idempotent
    @endpoint("uncordon_node", returns=NodeSerializer)
    def post(self, request: Request, node_id: str) -> object:
        """Uncordon a node.

        New jobs can start on it again. Cancels a drain: runs that have been asked to leave still save a
        checkpoint and return to the queue, the others stay.
        """
        node = managed_node(caller_of(request), node_id)
        return services.set_scheduling_state(node, SchedulingState.ACTIVE)


class DrainSerializer(StrictSerializer):
    deadline_seconds = serializers.IntegerField(
        min_value=1,
        max_value=MAX_DEADLINE_SECONDS,
        required=False,
        help_text="from now: jobs that are left then are stopped; without it, no run may stay",
    )


class DrainView(ApiView):
    scopes = {"POST": "pool:admin"}

    @idempotent
    @endpoint("drain_node", body=DrainSerializer, returns=NodeSerializer)
    def post(self, request: Request, node_id: str) -> object:
        """Drain a node.

        No new jobs start. Runs with a trainer save a checkpoint, return to the queue and continue on other
        nodes. Other runs leave at once, or at the deadline if there is one: evaluations start over on other
        nodes, playgrounds and reward tests end. At the deadline all jobs that are left are stopped. A second
        drain with a deadline replaces the first one; uncordoning the node cancels the drain. The status is
        DRAINED once no run needs the node.
        """
        seconds = body_of(DrainSerializer, request).get("deadline_seconds")
        deadline = None if seconds is None else clock.now() + timedelta(seconds=seconds)
        node = managed_node(caller_of(request), node_id)
        return services.set_scheduling_state(node, SchedulingState.DRAINING, drain_deadline=deadline)


class QuarantineSerializer(StrictSerializer):
    reason = serializers.CharField(max_length=400, help_text="shown on the node until it is released")


class QuarantineView(ApiView):
    scopes = {"POST": "pool:admin"}

    @idempotent
    @endpoint("quarantine_node", body=QuarantineSerializer, returns=NodeSerializer)
    def post(self, request: Request, node_id: str) -> object:
        """Quarantine a node.

        No new jobs start on it until it is released; running jobs continue. A node on which attempts of three
        runs failed for reasons of the infrastructure within six hours is quarantined by itself.
        """
        node = managed_node(caller_of(request), node_id)
        return quarantine.quarantine(node, body_of(QuarantineSerializer, request)["reason"], now=clock.now())


class ReleaseView(ApiView):
    scopes = {"POST": "pool:admin"}

    @idempotent
    @endpoint("release_node", returns=NodeSerializer)
    def post(self, request: Request, node_id: str) -> object:
        """Release a node from quarantine.

        New jobs start on it again. Failures until now do not quarantine it again.
        """
        return quarantine.release(managed_node(caller_of(request), node_id), now=clock.now())
