"""Endpoints for playgrounds. The chat itself goes through the tunnel."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request

from control_plane.accounts.identity.caller import caller_of
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.endpoints import endpoint
from control_plane.core.api.idempotency import idempotent
from control_plane.core.api.rendering import ResponseSerializer
from control_plane.core.api.request_parsing import StrictSerializer
from control_plane.core.api.schema import RUN_STATUSES
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

    @endpoint("list_playgrounds", page=PlaygroundSerializer)
    def get(self, request: Request) -> object:
        """List playgrounds.

        Open and closed playgrounds, newest first.
        """
        return playgrounds.playgrounds(caller_of(request))

    @idempotent
    @endpoint("open_playground", body=PlaygroundRequestSerializer, returns=PlaygroundSerializer, status=201)
    def post(self, request: Request, fields: dict[str, Any]) -> object:
        """Open a playground.

        Starts engines for one or two models, to chat with them and compare their replies. It closes after
        `idle_seconds` without a request.
        """
        caller = caller_of(request)
        opened = playgrounds.open_playground(caller, now=clock.now(), **fields)
        return playgrounds.playground_for(caller, opened.pk)


class PlaygroundView(ApiView):
    scopes = {"GET": "runs:read", "DELETE": "runs:write"}

    @endpoint("get_playground", returns=PlaygroundSerializer)
    def get(self, request: Request, playground_id: str) -> object:
        """Get a playground.

        Its state, models and the addresses to chat with them.
        """
        return playgrounds.playground_for(caller_of(request), playground_id)

    @endpoint("close_playground")
    def delete(self, request: Request, playground_id: str) -> None:
        """Close a playground.

        Releases its slots. Closing it again changes nothing.
        """
        found = playgrounds.playground_for(caller_of(request), playground_id)
        playgrounds.close_playground(found, now=clock.now())
