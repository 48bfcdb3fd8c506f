"""Actions on an existing run, one endpoint each."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from rest_framework.request import Request

from control_plane.accounts.identity.caller import caller_of
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.endpoints import endpoint
from control_plane.core.api.idempotency import idempotent
from control_plane.core.api.request_parsing import body_of
from control_plane.core.infra import clock
from control_plane.runs import cloning, drafts, runtime_overrides, selectors, submission
from control_plane.runs.serializers import ChangeSerializer, CloneSerializer, RunDetailSerializer


class SubmitView(ApiView):
    scopes = {"POST": "runs:write"}

    @idempotent
    @endpoint("submit_run", returns=RunDetailSerializer, status=202)
    def post(self, request: Request, run_id: str) -> object:
        """Submit a draft.

        The draft becomes a queued run.
        """
        caller = caller_of(request)
        return drafts.submit_draft(caller, selectors.run_for(caller, run_id).pk, now=clock.now())


class PauseView(ApiView):
    scopes = {"POST": "runs:write"}

    @idempotent
    @endpoint("pause_run", returns=RunDetailSerializer, status=202)
    def post(self, request: Request, run_id: str) -> object:
        """Pause a run.

        It saves a checkpoint and releases its slots.
        """
        return submission.pause_run(selectors.run_for(caller_of(request), run_id).pk, now=clock.now())


class ResumeView(ApiView):
    scopes = {"POST": "runs:write"}

    @idempotent
    @endpoint("resume_run", returns=RunDetailSerializer, status=202)
    def post(self, request: Request, run_id: str) -> object:
        """Resume a paused run.

        It waits for slots again and continues from its last checkpoint.
        """
        return submission.resume_run(selectors.run_for(caller_of(request), run_id).pk, now=clock.now())


class CloneView(ApiView):
    scopes = {"POST": "runs:write"}

    @idempotent
    @endpoint("clone_run", body=CloneSerializer, returns=RunDetailSerializer, status=201)
    def post(self, request: Request, run_id: str) -> object:
        """Clone a run.

        A new run with the same spec and the given changes. With `checkpoint` it starts from those weights,
        with a fresh optimizer and data order.
        """
        caller = caller_of(request)
        fields = body_of(CloneSerializer, request)
        return cloning.clone_run(
            caller,
            selectors.run_for(caller, run_id),
            changes=fields.get("changes", {}),
            checkpoint=fields.get("checkpoint", ""),
            now=clock.now(),
        )


class RetryView(ApiView):
    scopes = {"POST": "runs:write"}

    @idempotent
    @endpoint("retry_run", returns=RunDetailSerializer, status=201)
    def post(self, request: Request, run_id: str) -> object:
        """Retry a run.

        A new run with the spec of one that failed or was stopped. It continues from the newest stored
        checkpoint, or starts over without one.
        """
        caller = caller_of(request)
        return cloning.retry_run(caller, selectors.run_for(caller, run_id), now=clock.now())


class ChangesView(ApiView):
    scopes = {"POST": "runs:write"}

    @idempotent
    @endpoint("change_run", body=ChangeSerializer, returns=RunDetailSerializer, status=202)
    def post(self, request: Request, run_id: str) -> object:
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
        return run


class StopView(ApiView):
    scopes = {"POST": "runs:write"}

    @idempotent
    @endpoint("stop_run", returns=RunDetailSerializer, status=202)
    def post(self, request: Request, run_id: str) -> object:
        """Stop a run.

        It finishes the current step, saves a checkpoint and ends.
        """
        return submission.stop_run(selectors.run_for(caller_of(request), run_id).pk, now=clock.now())


class CancelView(ApiView):
    scopes = {"POST": "runs:write"}

    @idempotent
    @endpoint("cancel_run", returns=RunDetailSerializer, status=202)
    def post(self, request: Request, run_id: str) -> object:
        """Cancel a run.

        Ends it without a last checkpoint. What was committed stays.
        """
        caller = caller_of(request)
        run = selectors.run_for(caller, run_id)
        return submission.cancel_run(run.pk, by=caller.user.username, now=clock.now())


class ForceStopView(ApiView):
    scopes = {"POST": "runs:admin"}

    @idempotent
    @endpoint("force_stop_run", returns=RunDetailSerializer, status=202)
    def post(self, request: Request, run_id: str) -> object:
        """Stop a run at once.

        For a run that does not end by itself. There is no last checkpoint, and its slots come free when the
        node reports that its jobs are dead.
        """
        caller = caller_of(request)
        return submission.force_stop_run(selectors.run_for(caller, run_id).pk, by=caller, now=clock.now())
