"""Endpoints for checkpoint aliases and their promotion gates."""

from __future__ import annotations

from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.accounts.identity.caller import Caller, caller_of
from control_plane.checkpoints import promotion_gates, registry, selectors
from control_plane.checkpoints.models import Checkpoint
from control_plane.checkpoints.registry_api import ALIAS, REFERENCE
from control_plane.checkpoints.serializers import AliasSerializer
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.errors import or_not_found
from control_plane.core.api.etags import conditional
from control_plane.core.api.idempotency import idempotent
from control_plane.core.api.pagination import paginate, read_page
from control_plane.core.api.rendering import ResponseSerializer
from control_plane.core.api.request_parsing import StrictSerializer, body_of
from control_plane.core.api.schema import NONEMPTY, PAGE_PARAMETERS, page_of
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

    @extend_schema(operation_id="get_checkpoint_alias", responses=AliasSerializer)
    def get(self, request: Request, alias: str) -> Response:
        """Get a checkpoint alias.

        The checkpoint that the alias names, and its history.
        """
        found = or_not_found(
            selectors.checkpoint_aliases(caller_of(request)).filter(name=alias).first(),
            "checkpoint alias",
            alias,
        )
        return Response(AliasSerializer.render(found))

    @extend_schema(
        operation_id="set_checkpoint_alias", request=AliasChangeSerializer, responses=AliasSerializer
    )
    @conditional
    def put(self, request: Request, alias: str) -> Response:
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
        return Response(AliasSerializer.render(selectors.checkpoint_aliases(caller).get(name=alias)))

    @extend_schema(operation_id="delete_checkpoint_alias", responses={204: None})
    @conditional
    def delete(self, request: Request, alias: str) -> Response:
        """Delete a checkpoint alias.

        The checkpoint stays. Protected aliases need the permission that protects them.
        """
        registry.delete_alias(caller_of(request), alias, now=clock.now())
        return Response(status=204)


class GatesView(ApiView):
    scopes = {"GET": "checkpoints:read", "POST": "checkpoints:admin"}

    @extend_schema(
        operation_id="list_checkpoint_gates", parameters=PAGE_PARAMETERS, responses=page_of(GateSerializer)
    )
    def get(self, request: Request) -> Response:
        """List promotion gates.

        The conditions under which aliases may be moved.
        """
        found = selectors.alias_gates(caller_of(request))
        return Response(
            paginate(found, read_page(request), GateSerializer.render, key="alias", newest_first=False)
        )

    @extend_schema(
        operation_id="set_checkpoint_gate", request=GateChangeSerializer, responses={201: GateSerializer},
        description="Sets or replaces the gate of an alias.",
    )  # fmt: skip
    @idempotent
    def post(self, request: Request) -> Response:
        """Set the promotion gate of an alias.

        Replaces the gate that the alias had. `spec` is the eval run to start, `assertions` are what its
        metrics must fulfill.
        """
        fields = body_of(GateChangeSerializer, request)
        gate = promotion_gates.set_gate(caller_of(request), now=clock.now(), **fields)
        return Response(GateSerializer.render(gate), status=201)


class GateView(ApiView):
    scopes = {"GET": "checkpoints:read", "DELETE": "checkpoints:admin"}

    @extend_schema(operation_id="get_checkpoint_gate", responses=GateSerializer)
    def get(self, request: Request, alias: str) -> Response:
        """Get a promotion gate.

        The eval run and the assertions of the gate.
        """
        return Response(GateSerializer.render(selectors.alias_gate_for(caller_of(request), alias)))

    @extend_schema(operation_id="delete_checkpoint_gate", responses={204: None})
    @conditional
    def delete(self, request: Request, alias: str) -> Response:
        """Delete a promotion gate.

        The alias can then be moved without an evaluation.
        """
        caller = caller_of(request)
        registry.delete_gate(caller, selectors.alias_gate_for(caller, alias), now=clock.now())
        return Response(status=204)


class GateResultView(ApiView):
    scopes = {"GET": "checkpoints:read"}

    @extend_schema(
        operation_id="evaluate_checkpoint_gate",
        parameters=[OpenApiParameter("checkpoint", NONEMPTY, required=True, description=REFERENCE)],
        responses=GateResultSerializer,
        description="Evaluates the gate's assertions on the newest eval run of the checkpoint.",
    )
    def get(self, request: Request, alias: str) -> Response:
        """Get the gate's result for a checkpoint.

        Evaluates the assertions on the newest eval run of the checkpoint.
        """
        caller = caller_of(request)
        gate = selectors.alias_gate_for(caller, alias)
        checkpoint = _checkpoint(caller, request.query_params.get("checkpoint", ""))
        return Response(GateResultSerializer.render(promotion_gates.evaluate(gate, checkpoint)))


class GateRunsView(ApiView):
    scopes = {"POST": "runs:write"}

    @extend_schema(
        operation_id="run_checkpoint_gate", request=GateRunSerializer, responses={201: RunDetailSerializer},
        description="Starts the gate's eval run for a checkpoint.",
    )  # fmt: skip
    @idempotent
    def post(self, request: Request, alias: str) -> Response:
        """Start the gate's eval run.

        Evaluates a checkpoint with the gate's spec. Returns the run, whose result decides the promotion.
        """
        caller = caller_of(request)
        gate = selectors.alias_gate_for(caller, alias)
        fields = body_of(GateRunSerializer, request)
        checkpoint = _checkpoint(caller, fields["checkpoint"])
        run = promotion_gates.run_gate(caller, gate, checkpoint, now=clock.now())
        return Response(RunDetailSerializer.render(run), status=201)


def _checkpoint(caller: Caller, reference: str) -> Checkpoint:
    return or_not_found(selectors.find_checkpoint(caller, reference), "checkpoint", reference)
