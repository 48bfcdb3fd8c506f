from __future__ import annotations

from typing import Any

from django.conf import settings
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.accounts.identity.caller import caller_of
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.endpoints import endpoint
from control_plane.core.api.errors import FieldError, unprocessable
from control_plane.core.api.etags import conditional
from control_plane.core.api.idempotency import idempotent
from control_plane.core.api.long_poll import WAIT_PARAMETERS
from control_plane.core.api.pagination import (
    paginate_sorted,
    paginate_together,
    read_page,
)
from control_plane.core.api.request_parsing import body_of, reject_unknown_keys
from control_plane.core.api.schema import PAGE_PARAMETERS, page_of
from control_plane.core.infra import clock
from control_plane.experiments import saved_views, templates
from control_plane.experiments.presets import presets
from control_plane.fleet.access import first_pool, pool_for
from control_plane.runs import drafts, search, selectors, submission
from control_plane.runs.estimate import estimate
from control_plane.runs.idempotent_submit import idempotent_submit
from control_plane.runs.serializers import (
    AttemptSerializer,
    CreateRunSerializer,
    EventSerializer,
    JobSerializer,
    PlanSerializer,
    PoolSerializer,
    PresetSerializer,
    RunDetailSerializer,
    RunPatchSerializer,
    RunSerializer,
    SpecSerializer,
    SpecWhatIfSerializer,
    ValidationSerializer,
    WaitExplanationSerializer,
    WhatIfSerializer,
)
from control_plane.runs.spec_resolution import resolve_spec
from control_plane.runs.waiting import explain
from control_plane.runs.what_if import what_if_queued, what_if_spec
from oolong.contracts.error_words import shown


class ValidateView(ApiView):
    scopes = {"POST": "runs:read"}

    @extend_schema(operation_id="validate_run", request=SpecSerializer, responses=ValidationSerializer)
    def post(self, request: Request) -> Response:
        """Validate a spec.

        Every error with a pointer to its field, and advice. Nothing is created.
        """
        return Response(
            ValidationSerializer.render(
                vars(resolve_spec(caller_of(request), _spec_of(request, SpecSerializer)))
            )
        )


class PlanView(ApiView):
    scopes = {"POST": "runs:read"}

    @extend_schema(operation_id="plan_run", request=SpecSerializer, responses=PlanSerializer)
    def post(self, request: Request) -> Response:
        """Estimate a run.

        Jobs, slots, position in the queue, tokens and, from earlier runs, time. Nothing is created.
        """
        caller = caller_of(request)
        resolved = resolve_spec(caller, _spec_of(request, SpecSerializer))
        plan = None if resolved.errors else estimate(caller, resolved, now=clock.now())
        return Response(PlanSerializer.render({**vars(resolved), "plan": plan}))


class SpecWhatIfView(ApiView):
    scopes = {"POST": "runs:read"}

    @extend_schema(operation_id="what_if_spec", request=SpecSerializer, responses=SpecWhatIfSerializer)
    def post(self, request: Request) -> Response:
        """Compare when variants of a spec would start.

        The scheduler places the spec as it is and with fewer engines or trainer ranks, on another device, and in each
        other pool that your team may use. Nothing is created.
        """
        caller = caller_of(request)
        resolved = resolve_spec(caller, _spec_of(request, SpecSerializer))
        compared = None if resolved.errors else what_if_spec(caller, resolved, now=clock.now())
        return Response(SpecWhatIfSerializer.render({**vars(resolved), "what_if": compared}))


class PresetsView(ApiView):
    scopes = {"GET": "runs:read"}

    @endpoint("list_presets", whole=PresetSerializer)
    def get(self, request: Request) -> object:
        """List presets.

        Algorithm presets with the settings that each stands for.
        """
        found = presets(settings.ENVIRONMENT.data_dir)
        broken = [
            {"name": name, "title": name, "explained": "", "paper": "", "spec": {}, "fault": fault}
            for name, fault in found.errors.items()
        ]
        return [*found.usable, *broken]


class RunsView(ApiView):
    scopes = {"GET": "runs:read", "POST": "runs:write"}

    @extend_schema(
        operation_id="list_runs",
        parameters=[
            *PAGE_PARAMETERS,
            *search.PARAMETERS,
            OpenApiParameter(
                "view", str, description="ID of a saved view; other parameters override its own"
            ),
        ],
        responses=page_of(RunSerializer),
    )
    def get(self, request: Request) -> Response:
        """List runs.

        Runs of the project. Filter by text, status, kind, author, model, dataset, tag, time and bounds of
        metrics.
        """
        caller = caller_of(request)
        given = {name: request.query_params.getlist(name) for name in request.query_params}
        params = {name: values for name, values in given.items() if name not in ("limit", "cursor", "view")}
        if view := request.query_params.get("view"):
            params = {**saved_views.view_for(caller, view).query, **params}
        filters = search.parse_search(params)
        found, page = filters.apply(selectors.runs(caller).defer("submitted_spec")), read_page(request)
        if not filters.sort:
            return Response(
                paginate_together(found, page, RunSerializer.render_all, newest_first=filters.descending)
            )
        order = search.SORTS[filters.sort]
        shown = paginate_sorted(
            found, page, RunSerializer.render_all, column=order.column, read=order.read, write=order.write,
            descending=filters.descending, now=clock.now(),
        )  # fmt: skip
        return Response(shown)

    @extend_schema(
        operation_id="create_run",
        request=CreateRunSerializer,
        responses={201: RunDetailSerializer, 200: RunDetailSerializer},
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """Create a run.

        Queues a run of the spec, or saves it as a draft. With a `dedupe_key` the run of the same key and spec
        is returned (200).
        """
        caller, now = caller_of(request), clock.now()
        spec, draft = _spec_of(request, CreateRunSerializer), _wants_draft(request)
        if key := _dedupe_key(request):
            if draft:
                message = "a draft is not submitted; leave dedupe_key out"
                raise unprocessable("invalid", message, [FieldError("/dedupe_key", "of_a_draft", message)])
            run, created = idempotent_submit(caller, spec, key=key, now=now)
            return Response(RunDetailSerializer.render(run), status=201 if created else 200)
        create = drafts.create_draft if draft else submission.create_run
        run = create(caller, spec, now=now)
        return Response(RunDetailSerializer.render(run), status=201)


class RunView(ApiView):
    scopes = {"GET": "runs:read", "PATCH": "runs:write", "DELETE": "runs:write"}

    @endpoint("get_run", returns=RunDetailSerializer, parameters=WAIT_PARAMETERS)
    def get(self, request: Request, run_id: str) -> object:
        """Get a run.

        Its status, spec, progress, newest metrics and what may be done with it.
        """
        return selectors.run_for(caller_of(request), run_id)

    @conditional
    @endpoint("update_run", body=RunPatchSerializer, returns=RunDetailSerializer)
    def patch(self, request: Request, run_id: str) -> object:
        """Change a run's name, notes, tags or priority.

        For a draft, also its spec.
        """
        run = selectors.run_for(caller_of(request), run_id)
        fields = body_of(RunPatchSerializer, request)
        by, now = caller_of(request), clock.now()
        if "spec" in fields:
            if others := sorted(set(fields) - {"spec", "tags"}):
                message = f"the {others[0]} of a draft is part of its spec"
                raise unprocessable("invalid", message, [FieldError(f"/{others[0]}", "in_the_spec", message)])
            run = drafts.edit_draft(run.pk, fields["spec"], tags=fields.get("tags"), by=by, now=now)
        else:
            run = submission.update_run(run.pk, fields, by=by, now=now)
        return run

    @endpoint("delete_run")
    def delete(self, request: Request, run_id: str) -> None:
        """Delete a draft.

        A submitted run is stopped or canceled, not deleted.
        """
        drafts.delete_draft(selectors.run_for(caller_of(request), run_id).pk, now=clock.now())


class WaitView(ApiView):
    scopes = {"GET": "runs:read"}

    @endpoint("explain_wait", returns=WaitExplanationSerializer)
    def get(self, request: Request, run_id: str) -> object:
        """Explain why a run waits.

        The reason as a code and a sentence, its position in the queue, and the runs ahead of it. 409 for a run
        that is not QUEUED.
        """
        caller = caller_of(request)
        return explain(caller, selectors.run_for(caller, run_id), now=clock.now())


class WhatIfView(ApiView):
    scopes = {"POST": "runs:read"}

    @endpoint("what_if", returns=WhatIfSerializer)
    def post(self, request: Request, run_id: str) -> object:
        """Compare when variants of a waiting run would start.

        The scheduler places the run as it is and with fewer engines or trainer ranks, on another device, and in each
        other pool that your team may use. Nothing changes: cancel the run and clone it with the `changes` of a variant.
        409 for a run that is not QUEUED.
        """
        caller = caller_of(request)
        return what_if_queued(caller, selectors.run_for(caller, run_id), now=clock.now())


class EventsView(ApiView):
    scopes = {"GET": "runs:read"}

    @endpoint("list_run_events", page=EventSerializer)
    def get(self, request: Request, run_id: str) -> object:
        """List the events of a run.

        Every change of its status with the reason, newest first.
        """
        run = selectors.run_for(caller_of(request), run_id)
        return selectors.events(run)


class AttemptsView(ApiView):
    scopes = {"GET": "runs:read"}

    @endpoint("list_run_attempts", whole=AttemptSerializer)
    def get(self, request: Request, run_id: str) -> object:
        """List the attempts of a run.

        One entry per placement of the run on nodes.
        """
        run = selectors.run_for(caller_of(request), run_id)
        return selectors.attempts(run).order_by("number")


class JobsView(ApiView):
    scopes = {"GET": "runs:read"}

    @endpoint("list_run_jobs", whole=JobSerializer)
    def get(self, request: Request, run_id: str) -> object:
        """List the jobs of a run.

        Controller, rollout workers, trainer and reward service of the newest attempt, with their state.
        """
        run = selectors.run_for(caller_of(request), run_id)
        return selectors.jobs(run)


class PoolView(ApiView):
    scopes = {"GET": "pool:read"}

    @endpoint(
        "get_pool",
        returns=PoolSerializer,
        parameters=[
            OpenApiParameter(
                "pool", str, description="its name; default: `default`, or the first pool that you see"
            )
        ],
    )
    def get(self, request: Request) -> object:
        """Get the pool.

        Nodes, slots, quotas and the queue.
        """
        caller = caller_of(request)
        name = request.query_params.get("pool", "")
        pool = pool_for(caller, name) if name else first_pool(caller)
        return selectors.pool(caller, pool)


def _wants_draft(request: Request) -> bool:
    wanted = request.data.get("draft", False) if isinstance(request.data, dict) else False
    if not isinstance(wanted, bool):
        message = f"draft={wanted!r}: true or false"
        raise unprocessable("invalid", message, [FieldError("/draft", "invalid", message)])
    return wanted


def _dedupe_key(request: Request) -> str:
    if not isinstance(request.data, dict) or "dedupe_key" not in request.data:
        return ""
    try:
        key: str = CreateRunSerializer().fields["dedupe_key"].run_validation(request.data["dedupe_key"])
    except serializers.ValidationError as refusal:
        raise serializers.ValidationError({"dedupe_key": refusal.detail}) from refusal
    return key


def _spec_of(request: Request, form: type[SpecSerializer]) -> Any:
    if not isinstance(request.data, dict) or "spec" not in request.data:
        raise unprocessable(
            "invalid",
            'the body must be {"spec": {...}}',
            [FieldError("/spec", "required", "spec is missing")],
        )
    reject_unknown_keys(request.data, form().fields)
    spec = request.data["spec"]
    if not isinstance(spec, dict):
        message = f"spec={shown(spec)}: an object, as the RunSpec reference has it"
        raise unprocessable("invalid", message, [FieldError("/spec", "invalid", message)])
    if "template" not in request.data:
        return spec
    return templates.with_template(caller_of(request), request.data["template"], spec)
