from __future__ import annotations

from typing import Any

from django.conf import settings
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from control_plane.accounts.api import NamedSerializer
from control_plane.accounts.caller import caller_of
from control_plane.common import clock
from control_plane.common.errors import FieldError, unprocessable
from control_plane.common.etags import conditional
from control_plane.common.idempotency import idempotent
from control_plane.common.long_poll import WAIT_PARAMETERS
from control_plane.common.pagination import (
    paginate,
    paginate_sorted,
    paginate_together,
    read_page,
    whole_page,
)
from control_plane.common.parsing import StrictSerializer
from control_plane.common.schema import (
    MODEL_KINDS,
    PAGE_PARAMETERS,
    RUN_KINDS,
    RUN_STATUSES,
    FieldErrorSerializer,
    page_of,
)
from control_plane.fleet.api import NodeSerializer, QuotaSerializer, SlotSerializer
from control_plane.runs import drafts, lineage, live_changes, search, selectors, submission, templates, views
from control_plane.runs.dedupe import create_once
from control_plane.runs.dry_run import dry_run
from control_plane.runs.presets import presets
from control_plane.runs.resolve import Resolved, resolve_spec
from control_plane.runs.show import (
    attempt_as_json,
    event_as_json,
    job_as_json,
    run_detail_as_json,
    runs_as_json,
)


class SpecSerializer(serializers.Serializer[Any]):
    spec = serializers.DictField(help_text="a RunSpec; its fields are in the RunSpec reference")
    template = serializers.CharField(
        required=False, help_text="name@2, or name: a template or preset that spec is merged over (RFC 7396)"
    )


class CreateRunSerializer(SpecSerializer):
    draft = serializers.BooleanField(
        required=False, help_text="keep it without submitting; what it names may not be there yet"
    )
    dedupe_key = serializers.CharField(
        required=False, max_length=200,
        help_text="what a pipeline wants once: the same key and spec answer 200 with the run that is there",
    )  # fmt: skip


class ProgressSerializer(serializers.Serializer[Any]):
    phase = serializers.CharField()
    done = serializers.IntegerField()
    total = serializers.IntegerField()
    message = serializers.CharField()


class DatasetRefSerializer(serializers.Serializer[Any]):
    id = serializers.CharField()
    ref = serializers.CharField(help_text="name@3")


class RunModelSerializer(NamedSerializer):
    kind = serializers.ChoiceField(choices=MODEL_KINDS)


class LatestCheckpointSerializer(serializers.Serializer[Any]):
    id = serializers.CharField()
    step = serializers.IntegerField()


class ParentSerializer(NamedSerializer):
    relation = serializers.ChoiceField(choices=["clone", "fork", "retry"])


class LiveSerializer(serializers.Serializer[Any]):
    max_staleness = serializers.IntegerField(allow_null=True)
    max_concurrent_groups = serializers.IntegerField(allow_null=True)
    learning_rate = serializers.FloatField(allow_null=True)
    engines = serializers.IntegerField(allow_null=True)


class RunSerializer(serializers.Serializer[Any]):
    id = serializers.CharField()
    name = serializers.CharField()
    kind = serializers.ChoiceField(choices=RUN_KINDS)
    status = serializers.ChoiceField(choices=RUN_STATUSES)
    status_at = serializers.DateTimeField()
    reason = serializers.CharField(help_text="why it ended; empty before")
    reason_message = serializers.CharField()
    advice = serializers.CharField(help_text="what the reader can do about the reason")
    fault = serializers.CharField(help_text="whose fault the end was")
    conditions = serializers.ListField(child=serializers.CharField(), help_text="UNRESPONSIVE, GAP")
    waiting_why = serializers.CharField(help_text="one line, while it waits")
    queue_position = serializers.IntegerField(allow_null=True)
    priority = serializers.IntegerField()
    slots_needed = serializers.IntegerField()
    attempt_number = serializers.IntegerField()
    train_step = serializers.IntegerField()
    total_train_steps = serializers.IntegerField()
    policy_version = serializers.IntegerField()
    progress = ProgressSerializer(allow_null=True)
    reward_mean = serializers.FloatField(allow_null=True)
    staleness_mean = serializers.FloatField(allow_null=True)
    spec = serializers.DictField()
    dataset = DatasetRefSerializer()
    model = RunModelSerializer()
    created_by = serializers.CharField()
    created_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)
    live = LiveSerializer(help_text="what was changed since it was submitted; null: as in the spec")
    notes = serializers.CharField()
    tags = serializers.ListField(child=serializers.CharField())
    parent = ParentSerializer(allow_null=True, help_text="the run that this one was made from")
    latest_checkpoint = LatestCheckpointSerializer(allow_null=True)
    summary = serializers.DictField()


class RunPatchSerializer(StrictSerializer):
    spec = serializers.DictField(required=False, help_text="of a draft: replaces its spec")
    name = serializers.CharField(max_length=120, required=False)
    notes = serializers.CharField(max_length=20_000, required=False, allow_blank=True)
    tags = serializers.ListField(
        child=serializers.RegexField(
            r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$", max_length=60,
            error_messages={"invalid": "a tag is letters, digits and . _ : / - and begins with a letter or digit"},
        ),
        max_length=30, required=False,
    )  # fmt: skip
    priority = serializers.IntegerField(
        min_value=0,
        max_value=1000,
        required=False,
        help_text="of a run that waits or is paused; higher goes first",
    )


class CloneSerializer(StrictSerializer):
    changes = serializers.DictField(
        required=False, help_text="merged into the spec (RFC 7396): null puts a field's default back"
    )
    checkpoint = serializers.CharField(
        required=False, help_text="fork: the id of a stored checkpoint, or latest; its weights are the start"
    )


class ChangeSerializer(StrictSerializer):
    changes = serializers.DictField(
        required=False,
        help_text="part of a RunSpec: staleness.max, rollout.max_concurrent_groups or trainer.learning_rate",
    )
    checkpoint = serializers.BooleanField(
        required=False, help_text="take a checkpoint after the next train step"
    )
    evaluate = serializers.BooleanField(required=False, help_text="evaluate the newest version")


class RunDetailSerializer(RunSerializer):
    metrics_seq = serializers.IntegerField(help_text="subscribe to run:<id> after this number")


class LintFindingSerializer(FieldErrorSerializer):
    severity = serializers.ChoiceField(choices=["error", "warning"])
    advice = serializers.CharField()


class ValidationSerializer(serializers.Serializer[Any]):
    valid = serializers.BooleanField()
    errors = FieldErrorSerializer(many=True)
    warnings = LintFindingSerializer(
        many=True, help_text="odd, and allowed; the rules are in the lint reference"
    )
    resolved = serializers.DictField(allow_null=True, help_text="the spec with every default filled in")


class PlannedJobSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    kind = serializers.CharField()
    slots = serializers.IntegerField()


class PlannedPlaceSerializer(serializers.Serializer[Any]):
    starts_now = serializers.BooleanField()
    why_not = serializers.CharField()
    queue_position = serializers.IntegerField(allow_null=True)


class PlannedTokensSerializer(serializers.Serializer[Any]):
    generated_at_most = serializers.IntegerField(allow_null=True, help_text="if every completion were cut")


class PlannedTimeSerializer(serializers.Serializer[Any]):
    seconds = serializers.FloatField(
        allow_null=True, help_text="null: no run of this shape has succeeded yet"
    )
    gpu_hours = serializers.FloatField(allow_null=True, help_text="slots times time")
    from_runs = serializers.IntegerField(
        help_text="the project's newest runs of this shape that it is the median of"
    )


class DryRunSerializer(serializers.Serializer[Any]):
    jobs = PlannedJobSerializer(many=True)
    slots_needed = serializers.IntegerField()
    placement = PlannedPlaceSerializer()
    groups = serializers.IntegerField(allow_null=True, help_text="groups that are trained on")
    tokens = PlannedTokensSerializer()
    time = PlannedTimeSerializer()


class PlanSerializer(ValidationSerializer):
    plan = DryRunSerializer(allow_null=True, help_text="null when there are errors")


class PresetSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    title = serializers.CharField()
    description = serializers.CharField()
    paper = serializers.CharField(help_text="link to where its numbers come from, or empty")
    spec = serializers.DictField()


class EventSerializer(serializers.Serializer[Any]):
    id = serializers.CharField()
    kind = serializers.CharField()
    message = serializers.CharField()
    attempt_number = serializers.IntegerField()
    at = serializers.DateTimeField()
    data = serializers.DictField()


class AttemptSerializer(serializers.Serializer[Any]):
    id = serializers.CharField()
    number = serializers.IntegerField()
    epoch = serializers.IntegerField()
    status = serializers.CharField()
    node = NamedSerializer()
    reason = serializers.CharField()
    message = serializers.CharField()
    resume_checkpoint = serializers.CharField(allow_null=True)
    created_at = serializers.DateTimeField()
    running_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)


class JobSerializer(serializers.Serializer[Any]):
    id = serializers.CharField()
    name = serializers.CharField()
    kind = serializers.CharField()
    attempt_number = serializers.IntegerField()
    state = serializers.ChoiceField(choices=["pending", "preparing", "running", "exited"])
    node = NamedSerializer()
    slots = serializers.ListField(child=serializers.CharField())
    incarnation = serializers.IntegerField(help_text="restarts in place so far")
    pid = serializers.IntegerField()
    exit_code = serializers.IntegerField(allow_null=True)
    reason = serializers.CharField()
    message = serializers.CharField()
    started_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)


class QueueEntrySerializer(serializers.Serializer[Any]):
    run_id = serializers.CharField(help_text="empty when the run is another team's")
    name = serializers.CharField()
    priority = serializers.IntegerField()
    slots_needed = serializers.IntegerField()
    why = serializers.CharField()
    position = serializers.IntegerField()
    submitted_at = serializers.DateTimeField()


class PoolSerializer(serializers.Serializer[Any]):
    slots = SlotSerializer(many=True)
    nodes = NodeSerializer(many=True)
    queue = QueueEntrySerializer(many=True)
    quota = QuotaSerializer()


class ValidateView(APIView):
    scopes = {"POST": "runs:read"}

    @extend_schema(operation_id="validate_run", request=SpecSerializer, responses=ValidationSerializer)
    def post(self, request: Request) -> Response:
        return Response(_validation(resolve_spec(caller_of(request), _spec_of(request))))


class PlanView(APIView):
    scopes = {"POST": "runs:read"}

    @extend_schema(operation_id="plan_run", request=SpecSerializer, responses=PlanSerializer)
    def post(self, request: Request) -> Response:
        caller = caller_of(request)
        resolved = resolve_spec(caller, _spec_of(request))
        plan = None if resolved.errors else dry_run(caller, resolved, now=clock.now()).as_json()
        return Response({**_validation(resolved), "plan": plan})


class PresetsView(APIView):
    scopes = {"GET": "runs:read"}

    @extend_schema(operation_id="list_presets", responses=page_of(PresetSerializer))
    def get(self, request: Request) -> Response:
        found = presets(settings.ENVIRONMENT.data_dir)
        return Response(whole_page([preset.model_dump(exclude={"order"}) for preset in found]))


class RunsView(APIView):
    scopes = {"GET": "runs:read", "POST": "runs:write"}

    @extend_schema(
        operation_id="list_runs",
        parameters=[
            *PAGE_PARAMETERS,
            *search.PARAMETERS,
            OpenApiParameter(
                "view", str, description="id of a saved view; what else is given goes before its own"
            ),
        ],
        responses=page_of(RunSerializer),
    )
    def get(self, request: Request) -> Response:
        caller = caller_of(request)
        words = {name: request.query_params.getlist(name) for name in request.query_params}
        asked = {name: values for name, values in words.items() if name not in ("limit", "cursor", "view")}
        if view := request.query_params.get("view"):
            asked = {**views.view_for(caller, view).query, **asked}
        wanted = search.read_search(asked)
        found, page = wanted.of(selectors.runs(caller)), read_page(request)
        if not wanted.sort:
            return Response(paginate_together(found, page, runs_as_json, newest_first=wanted.descending))
        order = search.SORTS[wanted.sort]
        shown = paginate_sorted(
            found, page, runs_as_json, column=order.column, read=order.read, write=order.write,
            descending=wanted.descending,
        )  # fmt: skip
        return Response(shown)

    @extend_schema(
        operation_id="create_run",
        request=CreateRunSerializer,
        responses={201: RunDetailSerializer, 200: RunDetailSerializer},
    )
    @idempotent
    def post(self, request: Request) -> Response:
        caller, draft, now = caller_of(request), _wants_draft(request), clock.now()
        if key := _dedupe_key(request):
            if draft:
                message = "a draft is not submitted, so no pipeline waits for it: leave dedupe_key out"
                raise unprocessable("invalid", message, [FieldError("/dedupe_key", "of_a_draft", message)])
            run, made = create_once(caller, _spec_of(request), key=key, now=now)
            return Response(run_detail_as_json(run), status=201 if made else 200)
        make = drafts.create_draft if draft else submission.create_run
        run = make(caller, _spec_of(request), now=now)
        return Response(run_detail_as_json(run), status=201)


class RunView(APIView):
    scopes = {"GET": "runs:read", "PATCH": "runs:write", "DELETE": "runs:write"}

    @extend_schema(operation_id="get_run", parameters=WAIT_PARAMETERS, responses=RunDetailSerializer)
    def get(self, request: Request, run_id: str) -> Response:
        return Response(run_detail_as_json(selectors.run_for(caller_of(request), run_id)))

    @extend_schema(operation_id="update_run", request=RunPatchSerializer, responses=RunDetailSerializer)
    @conditional
    def patch(self, request: Request, run_id: str) -> Response:
        run = selectors.run_for(caller_of(request), run_id)
        fields = _body(RunPatchSerializer, request)
        by, now = caller_of(request), clock.now()
        if "spec" in fields:
            if others := sorted(set(fields) - {"spec", "tags"}):
                message = f"{others[0]} of a draft stands in its spec"
                raise unprocessable("invalid", message, [FieldError(f"/{others[0]}", "in_the_spec", message)])
            run = drafts.edit_draft(run.pk, fields["spec"], tags=fields.get("tags"), by=by, now=now)
        else:
            run = submission.update_run(run.pk, fields, by=by, now=now)
        return Response(run_detail_as_json(run))

    @extend_schema(operation_id="delete_run", responses={204: OpenApiResponse(description="a draft is gone")})
    def delete(self, request: Request, run_id: str) -> Response:
        drafts.delete_draft(selectors.run_for(caller_of(request), run_id).pk, now=clock.now())
        return Response(status=204)


class SubmitView(APIView):
    scopes = {"POST": "runs:write"}

    @extend_schema(operation_id="submit_run", request=None, responses={202: RunDetailSerializer})
    @idempotent
    def post(self, request: Request, run_id: str) -> Response:
        caller = caller_of(request)
        run = drafts.submit_draft(caller, selectors.run_for(caller, run_id).pk, now=clock.now())
        return Response(run_detail_as_json(run), status=202)


class PauseView(APIView):
    scopes = {"POST": "runs:write"}

    @extend_schema(operation_id="pause_run", request=None, responses={202: RunDetailSerializer})
    @idempotent
    def post(self, request: Request, run_id: str) -> Response:
        run = submission.pause_run(selectors.run_for(caller_of(request), run_id).pk, now=clock.now())
        return Response(run_detail_as_json(run), status=202)


class ResumeView(APIView):
    scopes = {"POST": "runs:write"}

    @extend_schema(operation_id="resume_run", request=None, responses={202: RunDetailSerializer})
    @idempotent
    def post(self, request: Request, run_id: str) -> Response:
        run = submission.resume_run(selectors.run_for(caller_of(request), run_id).pk, now=clock.now())
        return Response(run_detail_as_json(run), status=202)


class CloneView(APIView):
    scopes = {"POST": "runs:write"}

    @extend_schema(operation_id="clone_run", request=CloneSerializer, responses={201: RunDetailSerializer})
    @idempotent
    def post(self, request: Request, run_id: str) -> Response:
        caller = caller_of(request)
        fields = _body(CloneSerializer, request)
        run = lineage.clone_run(
            caller, selectors.run_for(caller, run_id), changes=fields.get("changes", {}),
            checkpoint=fields.get("checkpoint", ""), now=clock.now(),
        )  # fmt: skip
        return Response(run_detail_as_json(run), status=201)


class RetryView(APIView):
    scopes = {"POST": "runs:write"}

    @extend_schema(operation_id="retry_run", request=None, responses={201: RunDetailSerializer})
    @idempotent
    def post(self, request: Request, run_id: str) -> Response:
        caller = caller_of(request)
        run = lineage.retry_run(caller, selectors.run_for(caller, run_id), now=clock.now())
        return Response(run_detail_as_json(run), status=201)


class ChangesView(APIView):
    scopes = {"POST": "runs:write"}

    @extend_schema(operation_id="change_run", request=ChangeSerializer, responses={202: RunDetailSerializer})
    @idempotent
    def post(self, request: Request, run_id: str) -> Response:
        caller = caller_of(request)
        fields = _body(ChangeSerializer, request)
        run = live_changes.change_run(
            selectors.run_for(caller, run_id).pk, changes=fields.get("changes", {}),
            checkpoint=fields.get("checkpoint", False), evaluate=fields.get("evaluate", False), by=caller,
            now=clock.now(),
        )  # fmt: skip
        return Response(run_detail_as_json(run), status=202)


class StopView(APIView):
    scopes = {"POST": "runs:write"}

    @extend_schema(operation_id="stop_run", request=None, responses={202: RunDetailSerializer})
    @idempotent
    def post(self, request: Request, run_id: str) -> Response:
        run = submission.stop_run(selectors.run_for(caller_of(request), run_id).pk, now=clock.now())
        return Response(run_detail_as_json(run), status=202)


class CancelView(APIView):
    scopes = {"POST": "runs:write"}

    @extend_schema(
        operation_id="cancel_run",
        request=None,
        responses={202: OpenApiResponse(RunDetailSerializer, description="it ends without a checkpoint")},
    )
    @idempotent
    def post(self, request: Request, run_id: str) -> Response:
        caller = caller_of(request)
        run = submission.cancel_run(
            selectors.run_for(caller, run_id).pk, by=caller.user.username, now=clock.now()
        )
        return Response(run_detail_as_json(run), status=202)


class ForceStopView(APIView):
    scopes = {"POST": "runs:admin"}

    @extend_schema(
        operation_id="force_stop_run",
        request=None,
        responses={
            202: OpenApiResponse(RunDetailSerializer, description="ended; its slots are freed on proof")
        },
    )
    @idempotent
    def post(self, request: Request, run_id: str) -> Response:
        caller = caller_of(request)
        run = submission.force_stop_run(selectors.run_for(caller, run_id).pk, by=caller, now=clock.now())
        return Response(run_detail_as_json(run), status=202)


class EventsView(APIView):
    scopes = {"GET": "runs:read"}

    @extend_schema(
        operation_id="list_run_events", parameters=PAGE_PARAMETERS, responses=page_of(EventSerializer)
    )
    def get(self, request: Request, run_id: str) -> Response:
        run = selectors.run_for(caller_of(request), run_id)
        return Response(paginate(selectors.events(run), read_page(request), event_as_json))


class AttemptsView(APIView):
    scopes = {"GET": "runs:read"}

    @extend_schema(operation_id="list_run_attempts", responses=page_of(AttemptSerializer))
    def get(self, request: Request, run_id: str) -> Response:
        run = selectors.run_for(caller_of(request), run_id)
        found = selectors.attempts(run).order_by("number")
        return Response(whole_page([attempt_as_json(attempt) for attempt in found]))


class JobsView(APIView):
    scopes = {"GET": "runs:read"}

    @extend_schema(operation_id="list_run_jobs", responses=page_of(JobSerializer))
    def get(self, request: Request, run_id: str) -> Response:
        run = selectors.run_for(caller_of(request), run_id)
        return Response(whole_page([job_as_json(job) for job in selectors.jobs(run)]))


class PoolView(APIView):
    scopes = {"GET": "pool:read"}

    @extend_schema(operation_id="get_pool", responses=PoolSerializer)
    def get(self, request: Request) -> Response:
        return Response(selectors.pool(caller_of(request).project.team))


def _body(form: type[StrictSerializer], request: Request) -> dict[str, Any]:
    filled = form(data=request.data)
    filled.is_valid(raise_exception=True)
    fields: dict[str, Any] = filled.validated_data
    return fields


def _wants_draft(request: Request) -> bool:
    wanted = request.data.get("draft", False) if isinstance(request.data, dict) else False
    if not isinstance(wanted, bool):
        message = f"draft={wanted!r}: true or false"
        raise unprocessable("invalid", message, [FieldError("/draft", "invalid", message)])
    return wanted


def _validation(resolved: Resolved) -> dict[str, Any]:
    return {
        "valid": not resolved.errors,
        "errors": [error.as_json() for error in resolved.errors],
        "warnings": [finding.model_dump() for finding in resolved.warnings],
        "resolved": resolved.document,
    }


def _dedupe_key(request: Request) -> str:
    if not isinstance(request.data, dict) or "dedupe_key" not in request.data:
        return ""
    try:
        key: str = CreateRunSerializer().fields["dedupe_key"].run_validation(request.data["dedupe_key"])
    except serializers.ValidationError as refusal:
        raise serializers.ValidationError({"dedupe_key": refusal.detail}) from refusal
    return key


def _spec_of(request: Request) -> Any:
    if not isinstance(request.data, dict) or "spec" not in request.data:
        raise unprocessable(
            "invalid",
            'the body must be {"spec": {...}}',
            [FieldError("/spec", "required", "spec is missing")],
        )
    spec = request.data["spec"]
    if "template" not in request.data:
        return spec
    if not isinstance(spec, dict):
        raise unprocessable(
            "invalid", "spec is no object", [FieldError("/spec", "invalid", "an object is needed")]
        )
    return templates.with_template(caller_of(request), request.data["template"], spec)
