"""Actions on an existing run, one endpoint each."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.accounts.identity.caller import caller_of
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.idempotency import idempotent
from control_plane.core.api.request_parsing import body_of, no_body
from control_plane.core.infra import clock
from control_plane.runs import cloning, drafts, runtime_overrides, selectors, submission
from control_plane.runs.serializers import ChangeSerializer, CloneSerializer, RunDetailSerializer


class SubmitView(ApiView):
    scopes = {"POST": "runs:write"}

    @extend_schema(operation_id="submit_run", request=None, responses={202: RunDetailSerializer})
    @idempotent
    @no_body
    def post(self, request: Request, run_id: str) -> Response:
        """Submit a draft.

        The draft becomes a queued run.
        """
        caller = caller_of(request)
        run = drafts.submit_draft(caller, selectors.run_for(caller, run_id).pk, now=clock.now())
        return Response(RunDetailSerializer.render(run), status=202)


class PauseView(ApiView):
    scopes = {"POST": "runs:write"}

    @extend_schema(operation_id="pause_run", request=None, responses={202: RunDetailSerializer})
    @idempotent
    @no_body
    def post(self, request: Request, run_id: str) -> Response:
        """Pause a run.

        It saves a checkpoint and releases its slots.
        """
        run = submission.pause_run(selectors.run_for(caller_of(request), run_id).pk, now=clock.now())
        return Response(RunDetailSerializer.render(run), status=202)


class ResumeView(ApiView):
    scopes = {"POST": "runs:write"}

    @extend_schema(operation_id="resume_run", request=None, responses={202: RunDetailSerializer})
    @idempotent
    @no_body
    def post(self, request: Request, run_id: str) -> Response:
        """Resume a paused run.

        It waits for slots again and continues from its last checkpoint.
        """
        run = submission.resume_run(selectors.run_for(caller_of(request), run_id).pk, now=clock.now())
        return Response(RunDetailSerializer.render(run), status=202)


class CloneView(ApiView):
    scopes = {"POST": "runs:write"}

    @extend_schema(operation_id="clone_run", request=CloneSerializer, responses={201: RunDetailSerializer})
    @idempotent
    def post(self, request: Request, run_id: str) -> Response:
        """Clone a run.

        A new run with the same spec and the given changes. With `checkpoint` it starts from those weights,
        with a fresh optimizer and data order.
        """
        caller = caller_of(request)
        fields = body_of(CloneSerializer, request)
        run = cloning.clone_run(
            caller, selectors.run_for(caller, run_id), changes=fields.get("changes", {}),
            checkpoint=fields.get("checkpoint", ""), now=clock.now(),
        )  # fmt: skip
        return Response(RunDetailSerializer.render(run), status=201)


class RetryView(ApiView):
    scopes = {"POST": "runs:write"}

    @extend_schema(operation_id="retry_run", request=None, responses={201: RunDetailSerializer})
    @idempotent
    @no_body
    def post(self, request: Request, run_id: str) -> Response:
        """Retry a run.

        A new run with the spec of one that failed or was stopped. It continues from the newest stored
        checkpoint, or starts over without one.
        """
        caller = caller_of(request)
        run = cloning.retry_run(caller, selectors.run_for(caller, run_id), now=clock.now())
        return Response(RunDetailSerializer.render(run), status=201)


class ChangesView(ApiView):
    scopes = {"POST": "runs:write"}

    @extend_schema(operation_id="change_run", request=ChangeSerializer, responses={202: RunDetailSerializer})
    @idempotent
    def post(self, request: Request, run_id: str) -> Response:
        """Change a running run.

        Sets fields that may change at run time, or asks for a checkpoint or an evaluation now. Name, notes, tags
        and priority may change with them: all is done, or nothing.
        """
        caller, now = caller_of(request), clock.now()
        run = selectors.run_for(caller, run_id)
        fields = body_of(ChangeSerializer, request)
        overrides: dict[str, Any] = {"changes": {}, "checkpoint": False, "evaluate": False}
        overrides = {name: fields.pop(name, default) for name, default in overrides.items()}
        with transaction.atomic():
            if fields:
                run = submission.update_run(run.pk, fields, by=caller, now=now)
            if any(overrides.values()) or not fields:
                run = runtime_overrides.apply_overrides(run.pk, **overrides, by=caller, now=now)
        return Response(RunDetailSerializer.render(run), status=202)


class StopView(ApiView):
    scopes = {"POST": "runs:write"}

    @extend_schema(operation_id="stop_run", request=None, responses={202: RunDetailSerializer})
    @idempotent
    @no_body
    def post(self, request: Request, run_id: str) -> Response:
        """Stop a run.

        It finishes the current step, saves a checkpoint and ends.
        """
        run = submission.stop_run(selectors.run_for(caller_of(request), run_id).pk, now=clock.now())
        return Response(RunDetailSerializer.render(run), status=202)


class CancelView(ApiView):
    scopes = {"POST": "runs:write"}

    @extend_schema(
        operation_id="cancel_run",
        request=None,
        responses={202: OpenApiResponse(RunDetailSerializer, description="it ends without a checkpoint")},
    )
    @idempotent
    @no_body
    def post(self, request: Request, run_id: str) -> Response:
        """Cancel a run.

        Ends it without a last checkpoint. What was committed stays.
        """
        caller = caller_of(request)
        run = submission.cancel_run(
            selectors.run_for(caller, run_id).pk, by=caller.user.username, now=clock.now()
        )
        return Response(RunDetailSerializer.render(run), status=202)


class ForceStopView(ApiView):
    scopes = {"POST": "runs:admin"}

    @extend_schema(
        operation_id="force_stop_run",
        request=None,
        responses={
            202: OpenApiResponse(RunDetailSerializer, description="ended; its slots are freed on proof")
        },
    )
    @idempotent
    @no_body
    def post(self, request: Request, run_id: str) -> Response:
        """Stop a run at once.

        For a run that does not end by itself. There is no last checkpoint, and its slots come free when the
        node reports that its jobs are dead.
        """
        caller = caller_of(request)
        run = submission.force_stop_run(selectors.run_for(caller, run_id).pk, by=caller, now=clock.now())
        return Response(RunDetailSerializer.render(run), status=202)
