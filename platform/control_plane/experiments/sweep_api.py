from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from django.db.models import Prefetch, prefetch_related_objects
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request

from control_plane.accounts.identity.caller import caller_of
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.endpoints import endpoint
from control_plane.core.api.idempotency import idempotent
from control_plane.core.api.rendering import ResponseSerializer
from control_plane.core.api.request_parsing import StrictSerializer
from control_plane.core.api.schema import RUN_STATUSES
from control_plane.core.api.schema_run_spec import RunSpecPartField
from control_plane.core.infra import clock
from control_plane.experiments import sweeps
from control_plane.experiments.models import TRIAL_STATES, Sweep, SweepTrial
from control_plane.experiments.sweep_plan import SweepPlan, best_index

STATUSES = [str(status) for status in sweeps.SweepStatus]


@extend_schema_field(SweepPlan)  # type: ignore[arg-type]  # drf-spectacular takes pydantic models too
class SweepPlanField(serializers.DictField):
    """The plan of a sweep."""


class SweepFormSerializer(StrictSerializer):
    name = serializers.CharField(max_length=80)
    spec = RunSpecPartField(help_text="a RunSpec; each trial sets its name and its own values into it")
    plan = SweepPlanField(
        help_text="method grid or random, parameters [{pointer, values | low, high, scale, integer}], samples, seed, "
        "objective {metric, goal}, stop {at_step, worse_than, target}; see the how-to of sweeps"
    )
    max_parallel = serializers.IntegerField(min_value=1, max_value=50, default=1)


class TrialRunSerializer(ResponseSerializer):
    id = serializers.CharField()
    name = serializers.CharField()
    status = serializers.ChoiceField(choices=RUN_STATUSES)


class TrialSerializer(ResponseSerializer):
    number = serializers.IntegerField()
    values = serializers.DictField(help_text="JSON pointer → value")
    run = TrialRunSerializer(allow_null=True)
    state = serializers.ChoiceField(choices=TRIAL_STATES)
    skipped = serializers.CharField(help_text="why it never became a run")
    train_step = serializers.IntegerField()
    objective = serializers.FloatField(allow_null=True, help_text="its newest value")

    def resolve_values(self, trial: SweepTrial) -> dict[str, Any]:
        return trial.sweep.parsed_plan.in_order(trial.values)

    def resolve_train_step(self, trial: SweepTrial) -> int:
        return trial.run.train_step if trial.run is not None else 0


class SweepSerializer(ResponseSerializer):
    id = serializers.CharField()
    name = serializers.CharField()
    status = serializers.ChoiceField(choices=STATUSES)
    message = serializers.CharField()
    spec = RunSpecPartField()
    plan = SweepPlanField()
    max_parallel = serializers.IntegerField()
    trials = serializers.IntegerField()
    counts = serializers.DictField(child=serializers.IntegerField(), help_text="trials by state")
    best = TrialSerializer(allow_null=True)
    created_by = serializers.CharField(source="created_by.username")
    created_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)

    @classmethod
    def prefetch(cls, rows: Sequence[Any]) -> None:
        trials = SweepTrial.objects.select_related("run").order_by("number")
        prefetch_related_objects(rows, Prefetch("trials", trials))

    def resolve_trials(self, sweep: Sweep) -> int:
        return len(sweep.trials.all())

    def resolve_counts(self, sweep: Sweep) -> dict[str, int]:
        counts = Counter(trial.state for trial in sweep.trials.all())
        return {state: counts[state] for state in TRIAL_STATES}

    def resolve_best(self, sweep: Sweep) -> SweepTrial | None:
        trials = sweep.trials.all()
        best = best_index(sweep.parsed_plan.objective, [trial.objective for trial in trials])
        return trials[best] if best is not None else None


class SweepsView(ApiView):
    scopes = {"GET": "runs:read", "POST": "runs:write"}

    @endpoint("list_sweeps", page=SweepSerializer)
    def get(self, request: Request) -> object:
        """List sweeps.

        Sweeps of the project, newest first.
        """
        return sweeps.sweeps(caller_of(request))

    @idempotent
    @endpoint("create_sweep", body=SweepFormSerializer, returns=SweepSerializer, status=201)
    def post(self, request: Request, fields: dict[str, Any]) -> object:
        """Create a sweep.

        Runs of one spec over a grid or random points. Every point is validated before the first run starts.
        """
        return sweeps.create_sweep(caller_of(request), **fields, now=clock.now())


class SweepView(ApiView):
    scopes = {"GET": "runs:read"}

    @endpoint("get_sweep", returns=SweepSerializer)
    def get(self, request: Request, sweep_id: str) -> object:
        """Get a sweep.

        Its plan, progress and best trial.
        """
        return sweeps.sweep_for(caller_of(request), sweep_id)


class TrialsView(ApiView):
    scopes = {"GET": "runs:read"}

    @endpoint("list_sweep_trials", page=TrialSerializer, order="number")
    def get(self, request: Request, sweep_id: str) -> object:
        """List the trials of a sweep.

        The point, run and objective of each trial.
        """
        sweep = sweeps.sweep_for(caller_of(request), sweep_id)
        return sweep.trials.select_related("run")


class PauseSweepView(ApiView):
    scopes = {"POST": "runs:write"}

    @idempotent
    @endpoint("pause_sweep", returns=SweepSerializer, status=202)
    def post(self, request: Request, sweep_id: str) -> object:
        """Pause a sweep.

        Its active runs are paused and no new ones start.
        """
        caller = caller_of(request)
        sweeps.pause_sweep(sweeps.sweep_for(caller, sweep_id).pk, now=clock.now())
        return sweeps.sweep_for(caller, sweep_id)


class ResumeSweepView(ApiView):
    scopes = {"POST": "runs:write"}

    @idempotent
    @endpoint("resume_sweep", returns=SweepSerializer, status=202)
    def post(self, request: Request, sweep_id: str) -> object:
        """Resume a sweep.

        Its paused runs continue and new ones start.
        """
        caller = caller_of(request)
        sweeps.resume_sweep(sweeps.sweep_for(caller, sweep_id).pk, now=clock.now())
        return sweeps.sweep_for(caller, sweep_id)


class CancelSweepView(ApiView):
    scopes = {"POST": "runs:write"}

    @idempotent
    @endpoint("cancel_sweep", returns=SweepSerializer, status=202)
    def post(self, request: Request, sweep_id: str) -> object:
        """Cancel a sweep.

        Its active runs are canceled and no new ones start.
        """
        caller = caller_of(request)
        sweeps.cancel_sweep(sweeps.sweep_for(caller, sweep_id).pk, by=caller, now=clock.now())
        return sweeps.sweep_for(caller, sweep_id)
