"""Endpoints for playgrounds. The chat itself goes through the tunnel."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.accounts.identity.caller import caller_of
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.idempotency import idempotent
from control_plane.core.api.pagination import paginate, read_page
from control_plane.core.api.rendering import ResponseSerializer
from control_plane.core.api.request_parsing import StrictSerializer, body_of
from control_plane.core.api.schema import PAGE_PARAMETERS, RUN_STATUSES, page_of
from control_plane.core.api.schema_run_spec import RewardSectionField
from control_plane.core.infra import clock
from control_plane.experiments import playgrounds
from control_plane.experiments.models import Playground
from control_plane.runs.attempt_status import WORKING
from control_plane.runs.models import Run
from control_plane.runs.serializers import RunModelSerializer, model_of
from oolong.contracts.lifecycle import RunStatus

LONGEST_IDLE_SECONDS = 3600


class PlaygroundModelSerializer(StrictSerializer):
    checkpoint = serializers.CharField(required=False, max_length=300, help_text="id, alias or run@step")
    base_model = serializers.CharField(required=False, max_length=300, help_text="or a base model")

    one_of = ("checkpoint", "base_model")


class PlaygroundRequestSerializer(StrictSerializer):
    models = serializers.ListField(
        child=PlaygroundModelSerializer(), min_length=1, max_length=2, help_text="one, or two side by side"
    )
    idle_seconds = serializers.IntegerField(
        min_value=30, max_value=LONGEST_IDLE_SECONDS, required=False, default=600,
        help_text="the playground closes after so long without a request",
    )  # fmt: skip
    reward = RewardSectionField(
        required=False, allow_null=True, default=None,
        help_text="as in a RunSpec; enables scoring of replies (POST …/playground/score)",
    )  # fmt: skip
    max_total_tokens = serializers.IntegerField(
        min_value=256,
        max_value=1_000_000,
        required=False,
        default=32768,
        help_text="of the engine's KV cache",
    )


class PlaygroundSideSerializer(ResponseSerializer):
    run = serializers.CharField(source="id", help_text="of kind playground")
    model = RunModelSerializer()
    status = serializers.ChoiceField(choices=RUN_STATUSES)
    ready = serializers.BooleanField(help_text="it accepts requests")
    pending_reason = serializers.CharField(help_text="why it is not ready yet")
    reason = serializers.CharField(help_text="why it ended: completed after idling, preempted by a run")
    reason_message = serializers.CharField()
    base_url = serializers.CharField(help_text="for OpenAI clients, with your token as api_key")

    def resolve_model(self, run: Run) -> dict[str, Any]:
        return model_of(run)

    def resolve_ready(self, run: Run) -> bool:
        return run.status == RunStatus.RUNNING and (run.progress or {}).get("phase") == "chat"

    def resolve_pending_reason(self, run: Run) -> str:
        starting = run.status in WORKING and not self.resolve_ready(run)
        return run.pending_reason or ("the engine is starting" if starting else "")

    def resolve_base_url(self, run: Run) -> str:
        return f"/api/v1/runs/{run.pk}/playground"


class PlaygroundSerializer(ResponseSerializer):
    id = serializers.CharField()
    open = serializers.BooleanField(help_text="at least one side has not ended")
    sides = PlaygroundSideSerializer(many=True)
    created_by = serializers.CharField(source="created_by.username")
    created_at = serializers.DateTimeField()

    def resolve_open(self, playground: Playground) -> bool:
        return any(not run.has_ended for run in self.resolve_sides(playground))

    def resolve_sides(self, playground: Playground) -> list[Run]:
        return [side.run for side in sorted(playground.sides.all(), key=lambda side: side.index)]


class PlaygroundsView(ApiView):
    scopes = {"GET": "runs:read", "POST": "runs:write"}

    @extend_schema(
        operation_id="list_playgrounds", parameters=PAGE_PARAMETERS, responses=page_of(PlaygroundSerializer)
    )
    def get(self, request: Request) -> Response:
        """List playgrounds.

        Open and closed playgrounds, newest first.
        """
        found = playgrounds.playgrounds(caller_of(request))
        return Response(paginate(found, read_page(request), PlaygroundSerializer.render))

    @extend_schema(
        operation_id="open_playground",
        request=PlaygroundRequestSerializer,
        responses={201: PlaygroundSerializer},
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """Open a playground.

        Starts engines for one or two models, to chat with them and compare their replies. It closes after
        `idle_seconds` without a request.
        """
        caller = caller_of(request)
        fields = body_of(PlaygroundRequestSerializer, request)
        opened = playgrounds.open_playground(caller, now=clock.now(), **fields)
        return Response(
            PlaygroundSerializer.render(playgrounds.playground_for(caller, opened.pk)), status=201
        )


class PlaygroundView(ApiView):
    scopes = {"GET": "runs:read", "DELETE": "runs:write"}

    @extend_schema(operation_id="get_playground", responses=PlaygroundSerializer)
    def get(self, request: Request, playground_id: str) -> Response:
        """Get a playground.

        Its state, models and the addresses to chat with them.
        """
        found = playgrounds.playground_for(caller_of(request), playground_id)
        return Response(PlaygroundSerializer.render(found))

    @extend_schema(
        operation_id="close_playground", responses={204: None},
        description="Releases its slots. Closing it again changes nothing.",
    )  # fmt: skip
    def delete(self, request: Request, playground_id: str) -> Response:
        """Close a playground.

        Releases its slots. Closing it again changes nothing.
        """
        found = playgrounds.playground_for(caller_of(request), playground_id)
        playgrounds.close_playground(found, now=clock.now())
        return Response(status=204)
