"""Endpoints for checkpoint aliases and their promotion gates."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request

from control_plane.accounts.identity.caller import Caller, caller_of
from control_plane.checkpoints import promotion_gates, registry, selectors
from control_plane.checkpoints.models import Checkpoint
from control_plane.checkpoints.registry_api import ALIAS, REFERENCE
from control_plane.checkpoints.serializers import AliasSerializer
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.endpoints import endpoint
from control_plane.core.api.errors import or_not_found
from control_plane.core.api.etags import conditional
from control_plane.core.api.idempotency import idempotent
from control_plane.core.api.rendering import ResponseSerializer
from control_plane.core.api.request_parsing import StrictSerializer, body_of
from control_plane.core.api.schema import NONEMPTY
from control_plane.core.api.schema_run_spec import RunSpecPartField, fields_of_spec
from control_plane.core.infra import clock
from control_plane.runs.serializers import RunDetailSerializer


class AliasChangeSerializer(StrictSerializer):
    checkpoint = serializers.CharField(max_length=300, help_text=REFERENCE)
    protected = serializers.BooleanField(
        required=False,
        allow_null=True,
        default=None,
        help_text="moving it requires the scope checkpoints:admin",
    )
    expected = serializers.CharField(
        required=False, allow_null=True, default=None, max_length=60,
        help_text="ID of the checkpoint that the alias must name now; 409 otherwise",
    )  # fmt: skip
    force = serializers.BooleanField(
        required=False, default=False,
        help_text="move the alias even though its gate has not passed; requires checkpoints:admin and is audited",
    )  # fmt: skip


@extend_schema_field(fields_of_spec([f"/{name}" for name in promotion_gates.SECTIONS], required=["dataset"]))
class GateSpecField(serializers.DictField):
    """The sections of a RunSpec that a gate sets."""


class GateChangeSerializer(StrictSerializer):
    alias = ALIAS
    spec = GateSpecField(
        help_text="spec of the eval run: dataset, and optionally reward, workflow, evaluation, rollout, budget, "
        "placement, "
        "seed. Its names are pinned now; the model is the checkpoint to promote"
    )
    assertions = serializers.ListField(
        child=serializers.CharField(max_length=200), min_length=1, max_length=20,
        help_text="all must hold: eval/accuracy >= 0.8, eval/accuracy_low > 0.7, eval/pass_at_4 >= 0.9",
    )  # fmt: skip


class GateSerializer(ResponseSerializer):
    alias = serializers.CharField()
    spec = RunSpecPartField()
    assertions = serializers.ListField(child=serializers.CharField())
    updated_by = serializers.CharField(source="updated_by.username")
    updated_at = serializers.DateTimeField()


class CheckSerializer(ResponseSerializer):
    assertion = serializers.CharField()
    value = serializers.FloatField(allow_null=True, help_text="null: not measured by the run")
    holds = serializers.BooleanField()


class GateResultSerializer(ResponseSerializer):
    alias = serializers.CharField()
    checkpoint = serializers.CharField()
    status = serializers.ChoiceField(choices=list(promotion_gates.STATUSES))
    run = serializers.CharField(
        allow_null=True, help_text="the newest eval run of this checkpoint with the gate's spec"
    )
    checks = CheckSerializer(many=True)
    why = serializers.CharField()
    command = serializers.CharField(help_text="what to run next; empty when the gate has passed")

    class Meta:
        ref_name = "GateResult"


class GateRunSerializer(StrictSerializer):
    checkpoint = serializers.CharField(max_length=300, help_text=REFERENCE)


class AliasView(ApiView):
    scopes = {"GET": "checkpoints:read", "PUT": "checkpoints:write", "DELETE": "checkpoints:write"}

    @endpoint("get_checkpoint_alias", returns=AliasSerializer)
    def get(self, request: Request, alias: str) -> object:
        """Get a checkpoint alias.

        The checkpoint that the alias names, and its history.
        """
        return or_not_found(
            selectors.checkpoint_aliases(caller_of(request)).filter(name=alias).first(),
            "checkpoint alias",
            alias,
        )

    @conditional
    @endpoint("set_checkpoint_alias", body=AliasChangeSerializer, returns=AliasSerializer)
    def put(self, request: Request, alias: str) -> object:
        """Point an alias at a checkpoint.

        Creates or moves the alias. With `expected` it moves only when it still names that checkpoint. A
        promotion gate of the alias must pass first.
        """
        caller = caller_of(request)
        fields = body_of(AliasChangeSerializer, request)
        try:
            ALIAS.run_validation(alias)
        except serializers.ValidationError as refusal:
            raise serializers.ValidationError({"alias": refusal.detail}) from refusal
        given = dict(fields)
        reference = given.pop("checkpoint")
        checkpoint = _checkpoint(caller, reference)
        registry.set_alias(
            caller, alias, checkpoint, pass_gate=promotion_gates.enforce, now=clock.now(), **given
        )
        return selectors.checkpoint_aliases(caller).get(name=alias)

    @conditional
    @endpoint("delete_checkpoint_alias")
    def delete(self, request: Request, alias: str) -> None:
        """Delete a checkpoint alias.

        The checkpoint stays. Protected aliases need the permission that protects them.
        """
        registry.delete_alias(caller_of(request), alias, now=clock.now())


class GatesView(ApiView):
    scopes = {"GET": "checkpoints:read", "POST": "checkpoints:admin"}

    @endpoint("list_checkpoint_gates", page=GateSerializer, order="alias")
    def get(self, request: Request) -> object:
        """List promotion gates.

        The conditions under which aliases may be moved.
        """
        return selectors.alias_gates(caller_of(request))

    @idempotent
    @endpoint("set_checkpoint_gate", body=GateChangeSerializer, returns=GateSerializer, status=201)
    def post(self, request: Request, fields: dict[str, Any]) -> object:
        """Set the promotion gate of an alias.

        Replaces the gate that the alias had. `spec` is the eval run to start, `assertions` are what its
        metrics must fulfill.
        """
        return promotion_gates.set_gate(caller_of(request), now=clock.now(), **fields)


class GateView(ApiView):
    scopes = {"GET": "checkpoints:read", "DELETE": "checkpoints:admin"}

    @endpoint("get_checkpoint_gate", returns=GateSerializer)
    def get(self, request: Request, alias: str) -> object:
        """Get a promotion gate.

        The eval run and the assertions of the gate.
        """
        return selectors.alias_gate_for(caller_of(request), alias)

    @conditional
    @endpoint("delete_checkpoint_gate")
    def delete(self, request: Request, alias: str) -> None:
        """Delete a promotion gate.

        The alias can then be moved without an evaluation.
        """
        caller = caller_of(request)
        registry.delete_gate(caller, selectors.alias_gate_for(caller, alias), now=clock.now())


class GateResultView(ApiView):
    scopes = {"GET": "checkpoints:read"}

    @endpoint(
        "evaluate_checkpoint_gate",
        returns=GateResultSerializer,
        parameters=[OpenApiParameter("checkpoint", NONEMPTY, required=True, description=REFERENCE)],
    )
    def get(self, request: Request, alias: str) -> object:
        """Get the gate's result for a checkpoint.

        Evaluates the gate's assertions on the newest eval run of the checkpoint.
        """
        caller = caller_of(request)
        gate = selectors.alias_gate_for(caller, alias)
        checkpoint = _checkpoint(caller, request.query_params.get("checkpoint", ""))
        return promotion_gates.evaluate(gate, checkpoint)


class GateRunsView(ApiView):
    scopes = {"POST": "runs:write"}

    @idempotent
    @endpoint("run_checkpoint_gate", body=GateRunSerializer, returns=RunDetailSerializer, status=201)
    def post(self, request: Request, alias: str) -> object:
        """Start the gate's eval run.

        Evaluates a checkpoint with the gate's spec. Returns the run, whose result decides the promotion.
        """
        caller = caller_of(request)
        gate = selectors.alias_gate_for(caller, alias)
        fields = body_of(GateRunSerializer, request)
        checkpoint = _checkpoint(caller, fields["checkpoint"])
        return promotion_gates.run_gate(caller, gate, checkpoint, now=clock.now())


def _checkpoint(caller: Caller, reference: str) -> Checkpoint:
    return or_not_found(selectors.find_checkpoint(caller, reference), "checkpoint", reference)
