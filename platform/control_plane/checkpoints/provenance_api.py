"""Endpoints for checkpoints that need runs: lineage, model card, and retention that keeps what runs need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.accounts.identity.caller import caller_of
from control_plane.accounts.models import Project
from control_plane.checkpoints import registry, selectors
from control_plane.checkpoints.provenance import lineage, model_card, reasons_to_keep
from control_plane.checkpoints.retention import Policy, RetentionDecision
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.endpoints import endpoint
from control_plane.core.api.etags import conditional
from control_plane.core.api.idempotency import idempotent
from control_plane.core.api.rendering import ResponseSerializer
from control_plane.core.api.request_parsing import StrictSerializer, body_of
from control_plane.core.api.schema import CHECKPOINT_KINDS, GOALS
from control_plane.core.infra import clock


class LineageNodeSerializer(ResponseSerializer):
    id = serializers.CharField()
    kind = serializers.CharField(help_text="checkpoint, run, dataset_version, base_model, function_version")
    name = serializers.CharField()


class LineageEdgeSerializer(ResponseSerializer):
    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        return {
            "from": serializers.CharField(help_text="the input"),
            "to": serializers.CharField(help_text="the result"),
            "kind": serializers.CharField(),
        }


class LineageSerializer(ResponseSerializer):
    nodes = LineageNodeSerializer(many=True)
    edges = LineageEdgeSerializer(many=True)
    truncated = serializers.BooleanField(help_text="the graph has more nodes than are shown")


MAX_INTEGER = 2**31 - 1


class PolicySerializer(StrictSerializer):
    keep_last = serializers.IntegerField(
        min_value=1,
        max_value=MAX_INTEGER,
        required=False,
        allow_null=True,
        default=None,
        help_text="keep so many newest ones of each run",
    )
    best_metric = serializers.CharField(
        max_length=120,
        required=False,
        allow_blank=True,
        default="",
        help_text="keep the best ones of each run by this metric",
    )
    best_mode = serializers.ChoiceField(choices=GOALS, required=False, default="max")
    best_count = serializers.IntegerField(min_value=1, max_value=MAX_INTEGER, required=False, default=1)
    every_steps = serializers.IntegerField(
        min_value=1,
        max_value=MAX_INTEGER,
        required=False,
        allow_null=True,
        default=None,
        help_text="keep steps that are a multiple of it",
    )
    kinds = serializers.ListField(
        child=serializers.ChoiceField(choices=CHECKPOINT_KINDS), required=False, default=list, max_length=2,
        help_text="delete only checkpoints of these kinds; empty: of every kind",
    )  # fmt: skip
    ttl_days = serializers.IntegerField(
        min_value=1,
        max_value=36_500,
        required=False,
        allow_null=True,
        default=None,
        help_text="keep checkpoints younger than this",
    )


class RetentionSerializer(PolicySerializer):
    automatic = serializers.BooleanField(
        required=False, default=False, help_text="apply every ten minutes; otherwise only on request"
    )


class RetentionDecisionSerializer(ResponseSerializer):
    id = serializers.CharField()
    bytes = serializers.IntegerField()
    keep_reasons = serializers.ListField(child=serializers.CharField())


class RetentionPlanSerializer(ResponseSerializer):
    free = RetentionDecisionSerializer(many=True)
    keep = RetentionDecisionSerializer(many=True)
    free_bytes = serializers.IntegerField()


class LineageView(ApiView):
    scopes = {"GET": "checkpoints:read"}

    @endpoint("get_checkpoint_lineage", returns=LineageSerializer)
    def get(self, request: Request, checkpoint_id: str) -> object:
        """Get the lineage of a checkpoint.

        The run, dataset, model, functions and earlier checkpoints that it comes from.
        """
        caller = caller_of(request)
        # Not rendered: nodes of each kind have fields of their own besides the documented ones.
        return Response(lineage(caller, selectors.checkpoint_for(caller, checkpoint_id)))


class ModelCardView(ApiView):
    scopes = {"GET": "checkpoints:read"}

    @extend_schema(operation_id="get_model_card", responses={(200, "text/markdown"): OpenApiTypes.STR})
    def get(self, request: Request, checkpoint_id: str) -> HttpResponse:
        """Get the model card of a checkpoint.

        Markdown: where it comes from, how it was trained, and its metrics.
        """
        caller = caller_of(request)
        card = model_card(caller, selectors.checkpoint_for(caller, checkpoint_id))
        return HttpResponse(card, content_type="text/markdown; charset=utf-8")


class RetentionView(ApiView):
    scopes = {"GET": "checkpoints:read", "PUT": "checkpoints:admin"}

    @extend_schema(operation_id="get_checkpoint_retention", responses=RetentionSerializer)
    def get(self, request: Request) -> Response:
        """Get the retention policy.

        Which checkpoints of the project are kept, and whether the others are deleted automatically.
        """
        return Response(_retention(caller_of(request).project))

    @extend_schema(
        operation_id="set_checkpoint_retention", request=RetentionSerializer, responses=RetentionSerializer
    )
    @conditional
    def put(self, request: Request) -> Response:
        """Set the retention policy.

        Replaces the policy. Nothing is deleted until it is applied, or at the next automatic pass.
        """
        caller = caller_of(request)
        fields = body_of(RetentionSerializer, request)
        given = dict(fields)
        automatic = given.pop("automatic")
        registry.set_policy(caller, _policy(given), automatic=automatic, now=clock.now())
        return Response(_retention(caller.project))


def _retention(project: Project) -> dict[str, Any]:
    policy, automatic = registry.policy_of(project)
    return {**asdict(policy), "automatic": automatic}


class RetentionPlanView(ApiView):
    scopes = {"POST": "checkpoints:read"}

    @endpoint("plan_checkpoint_retention", body=PolicySerializer, returns=RetentionPlanSerializer)
    def post(self, request: Request) -> object:
        """Preview a retention policy.

        What a policy would delete now, and why the rest is kept. Without a body, the project's own policy.
        """
        project = caller_of(request).project
        policy, _ = registry.policy_of(project)
        if request.data:
            policy = _policy(body_of(PolicySerializer, request))
        return _plan(registry.plan_retention(project, policy, reasons_to_keep, now=clock.now()))


class RetentionApplyView(ApiView):
    scopes = {"POST": "checkpoints:admin"}

    @idempotent
    @endpoint("apply_checkpoint_retention", returns=RetentionPlanSerializer)
    def post(self, request: Request) -> object:
        """Delete the bytes that the policy does not keep.

        Applies the project's own policy as of this moment. Rows and lineage stay.
        """
        project = caller_of(request).project
        policy, _ = registry.policy_of(project)
        return _plan(registry.apply_retention(project, policy, reasons_to_keep, now=clock.now()))


def _policy(given: Mapping[str, Any]) -> Policy:
    return Policy(**{**given, "kinds": tuple(given["kinds"])})


def _plan(decisions: list[RetentionDecision]) -> dict[str, Any]:
    free = [decision for decision in decisions if decision.deletable]
    return {
        "free": free,
        "keep": [decision for decision in decisions if not decision.deletable],
        "free_bytes": sum(decision.bytes for decision in free),
    }
