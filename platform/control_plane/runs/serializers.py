"""Requests and responses of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from control_plane.accounts.identity.api import NamedSerializer
from control_plane.core.api.rendering import ResponseSerializer
from control_plane.core.api.request_parsing import StrictSerializer
from control_plane.core.api.schema import MODEL_KINDS, RUN_KINDS, RUN_STATUSES, FieldErrorSerializer
from control_plane.core.api.schema_run_spec import (
    REFERENCE,
    RunSpecField,
    RunSpecPartField,
    RunSpecPatchField,
    fields_of_spec,
)
from control_plane.core.stream import event_stream
from control_plane.fleet.api import NodeSerializer, SlotSerializer
from control_plane.fleet.pool_api import PoolSettingsSerializer, QuotaSerializer
from control_plane.fleet.project_quota_api import ProjectQuotaSerializer
from control_plane.fleet.snapshot import WaitCode
from control_plane.runs.attempt_status import CONDITIONS
from control_plane.runs.boot import STATES as BOOT_STATES
from control_plane.runs.boot import TITLES, boot_of
from control_plane.runs.durations import SOURCES
from control_plane.runs.eta import REPLAY, end_of, forecasts_of, start_of
from control_plane.runs.models import Job, Run, RunEvent
from control_plane.runs.selectors import newest_stored_checkpoints
from control_plane.runs.staleness import staleness_of
from control_plane.runs.variants import Kind
from oolong.contracts.lifecycle import RunStatus
from oolong.contracts.rollout import version_of_task
from oolong.contracts.runtime_overrides import CHANGEABLE

LEAVING_STAGES = ["staying", "stopping", "uploading"]
MAX_AHEAD = 20  # runs ahead that an explanation of a wait names, from the head of the queue
WAIT_CODES = {
    WaitCode.NEVER_FITS: "no node of the pool can ever hold it, or its team may not use the pool",
    WaitCode.QUOTA: "its team's limit",
    WaitCode.PROJECT_QUOTA: "its project's limit",
    WaitCode.NOT_LENT: "slots are idle, and their teams do not lend them",
    WaitCode.CAPACITY: "slots must become free",
    WaitCode.BEHIND: "slots are free, and reserved for a run ahead of it",
    WaitCode.RESERVED: "slots are free, and reserved for a team for a time",
    WaitCode.MAINTENANCE: "slots are free, and their node is maintained or ends soon",
    WaitCode.BUDGET: "the month's budget of its team or project is used up",
    WaitCode.DELAYED: "a retry that waits for its time",
}
WAIT_CODES_HELP = "; ".join(f"{code}: {meaning}" for code, meaning in WAIT_CODES.items())
ETA_SOURCES: dict[str, str] = {REPLAY: "the scheduler, replayed on predicted ends of runs", **SOURCES}
ETA_SOURCES_HELP = "where it comes from. " + "; ".join(
    f"{name}: {meaning}" for name, meaning in ETA_SOURCES.items()
)
CONDITIONS_HELP = "what is noteworthy beside the status: " + ", ".join(
    f"{name} ({meaning})" for name, meaning in CONDITIONS.items()
)


class SpecSerializer(StrictSerializer):
    spec = RunSpecPatchField(
        help_text="a RunSpec, or with a template the part of one that differs; its fields are in the RunSpec reference"
    )
    template = serializers.CharField(
        required=False, help_text="name@2, or name: a template or preset that spec is merged over (RFC 7396)"
    )

    @classmethod
    def rules(cls) -> dict[str, Any]:
        whole = {"properties": {"spec": REFERENCE}}
        return {**super().rules(), "anyOf": [{"required": ["template"]}, whole]}


class CreateRunSerializer(SpecSerializer):
    draft = serializers.BooleanField(
        required=False, help_text="keep it without submitting; what it names may not be there yet"
    )
    dedupe_key = serializers.CharField(
        required=False, max_length=200,
        help_text="what a pipeline wants once: the same key and spec answer 200 with the run that is there",
    )  # fmt: skip


class ProgressSerializer(ResponseSerializer):
    phase = serializers.CharField()
    done = serializers.IntegerField()
    total = serializers.IntegerField()
    message = serializers.CharField()


class DatasetRefSerializer(ResponseSerializer):
    id = serializers.CharField()
    ref = serializers.CharField(help_text="name@3")


class RunModelSerializer(NamedSerializer):
    kind = serializers.ChoiceField(choices=MODEL_KINDS)


def model_of(run: Run) -> dict[str, Any]:
    """The model that a run starts from, for RunModelSerializer."""
    if run.status == RunStatus.DRAFT:
        written = run.spec["model"]
        kind = "base_model" if written["base_model"] is not None else "checkpoint"
        return {"kind": kind, "id": "", "name": written[kind]}
    if run.base_model is not None:
        return {"kind": "base_model", "id": run.base_model.pk, "name": run.base_model.name}
    assert run.initial_checkpoint is not None
    checkpoint = run.initial_checkpoint
    name = f"{checkpoint.run_name} step {checkpoint.step}"
    return {"kind": "checkpoint", "id": checkpoint.pk, "name": name}


class LatestCheckpointSerializer(ResponseSerializer):
    id = serializers.CharField()
    step = serializers.IntegerField()


class ParentSerializer(NamedSerializer):
    relation = serializers.ChoiceField(choices=["clone", "fork", "retry"])


class LiveSerializer(ResponseSerializer):
    max_staleness = serializers.IntegerField(allow_null=True)
    max_concurrent_groups = serializers.IntegerField(allow_null=True)
    learning_rate = serializers.FloatField(allow_null=True)
    engines = serializers.IntegerField(allow_null=True)


LIVE_FIELDS = tuple(LiveSerializer().fields)


class RunSerializer(ResponseSerializer):
    id = serializers.CharField()
    name = serializers.CharField()
    kind = serializers.ChoiceField(choices=RUN_KINDS)
    status = serializers.ChoiceField(choices=RUN_STATUSES)
    status_at = serializers.DateTimeField()
    reason = serializers.CharField(help_text="why it ended; empty before")
    reason_message = serializers.CharField()
    advice = serializers.CharField(help_text="what the reader can do about the reason")
    fault = serializers.CharField(help_text="whose fault the end was")
    conditions = serializers.ListField(child=serializers.CharField(), help_text=CONDITIONS_HELP)
    pending_reason = serializers.CharField(help_text="one line, while it waits")
    queue_position = serializers.IntegerField(allow_null=True)
    priority = serializers.IntegerField()
    slots_needed = serializers.IntegerField()
    attempt_number = serializers.IntegerField()
    train_step = serializers.IntegerField()
    total_train_steps = serializers.IntegerField(source="steps_planned")
    policy_version = serializers.IntegerField()
    progress = ProgressSerializer(allow_null=True)
    reward_mean = serializers.FloatField(allow_null=True)
    staleness_mean = serializers.FloatField(allow_null=True)
    spec = RunSpecField()
    dataset = DatasetRefSerializer()
    model = RunModelSerializer()
    created_by = serializers.CharField(source="created_by.username")
    created_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)
    paused_seconds = serializers.FloatField(
        help_text="of pauses that are over; its clock stands still in them"
    )
    live = LiveSerializer(help_text="what was changed since it was submitted; null: as in the spec")
    notes = serializers.CharField()
    tags = serializers.ListField(child=serializers.CharField())
    parent = ParentSerializer(allow_null=True, help_text="the run that this one was made from")
    latest_checkpoint = LatestCheckpointSerializer(allow_null=True)
    summary = serializers.DictField()

    @classmethod
    def prefetch(cls, rows: Sequence[Any]) -> None:
        latest = newest_stored_checkpoints(rows)
        for run in rows:
            run.latest_checkpoint = latest.get(run.pk)

    def resolve_dataset(self, run: Run) -> Any:
        # A draft's spec names the version; submission finds it.
        return run.dataset_version or {"id": "", "ref": run.spec["dataset"]["version"]}

    def resolve_model(self, run: Run) -> dict[str, Any]:
        return model_of(run)

    def resolve_live(self, run: Run) -> dict[str, Any]:
        return {**dict.fromkeys(LIVE_FIELDS), **run.live}

    def resolve_parent(self, run: Run) -> dict[str, Any] | None:
        parent = run.parent
        return {"id": parent.pk, "name": parent.name, "relation": run.relation} if parent else None


class RunFieldsSerializer(StrictSerializer):
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
        help_text="of a run that waits or is paused; higher goes first. Raising it is capped by your role: "
        "editor 500, operator 800, admin 1000",
    )


class RunPatchSerializer(RunFieldsSerializer):
    spec = RunSpecField(required=False, help_text="of a draft: replaces its spec")


class CloneSerializer(StrictSerializer):
    changes = RunSpecPatchField(
        required=False, help_text="merged into the spec (RFC 7396): null puts a field's default back"
    )
    checkpoint = serializers.CharField(
        required=False, help_text="fork: the id of a stored checkpoint, or latest; its weights are the start"
    )


@extend_schema_field(fields_of_spec(CHANGEABLE))
class RuntimeChangesField(serializers.DictField):
    """Fields of a RunSpec that can change while a run is active."""


class ChangeSerializer(RunFieldsSerializer):
    changes = RuntimeChangesField(
        required=False,
        help_text="part of a RunSpec: staleness.max, rollout.max_concurrent_groups or trainer.learning_rate",
    )
    checkpoint = serializers.BooleanField(
        required=False, help_text="take a checkpoint after the next train step"
    )
    evaluate = serializers.BooleanField(required=False, help_text="evaluate the newest version")

    not_empty = True


class BootStageSerializer(ResponseSerializer):
    name = serializers.ChoiceField(choices=list(TITLES))
    title = serializers.CharField()
    state = serializers.ChoiceField(choices=BOOT_STATES)
    started_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)
    detail = serializers.CharField(help_text="what it waits for, how far it is, or why it failed")


class BootSerializer(ResponseSerializer):
    attempt_number = serializers.IntegerField(help_text="of the newest attempt")
    done = serializers.BooleanField()
    stages = BootStageSerializer(many=True)


class StalenessSerializer(ResponseSerializer):
    max = serializers.IntegerField(help_text="max staleness as it is now")
    on_straggler = serializers.ChoiceField(choices=["keep", "drop", "wait"])
    mean = serializers.FloatField(allow_null=True, help_text="of the newest step's trajectories")
    realized_max = serializers.IntegerField(allow_null=True, help_text="the oldest of the newest step")
    exceeded_groups = serializers.IntegerField(
        allow_null=True, help_text="groups trained on so far that were over their max staleness"
    )
    trained_groups = serializers.IntegerField()
    message = serializers.CharField(
        help_text="what was exceeded and what to do about it; empty while nothing was"
    )


class EtaSerializer(ResponseSerializer):
    p50 = serializers.DateTimeField(allow_null=True, help_text="as likely before as after it; null: unknown")
    p90 = serializers.DateTimeField(
        allow_null=True, help_text="with a probability of 90 % before it; null: unknown. Alone, it is a bound"
    )
    source = serializers.ChoiceField(choices=list(ETA_SOURCES), help_text=ETA_SOURCES_HELP)
    message = serializers.CharField(
        help_text="what it was predicted from, or why it is unknown; may be empty"
    )


class RunDetailSerializer(RunSerializer):
    start = EtaSerializer(
        allow_null=True, help_text="when it starts, as of the last 15 seconds; null unless it is QUEUED"
    )
    end = EtaSerializer(
        allow_null=True,
        help_text="when it ends, as of the last 15 seconds; null unless it is queued or active",
    )
    submitted_spec = RunSpecPartField(
        allow_null=True,
        help_text="the spec as it was written, with its names and without defaults; null: submitted before it was kept",
    )
    metrics_seq = serializers.IntegerField(help_text="subscribe to run:<id> after this number")
    boot = BootSerializer(
        allow_null=True, help_text="how the newest attempt comes up, stage by stage; null for a draft"
    )
    staleness = StalenessSerializer(
        allow_null=True, help_text="configured against realized; null for kinds of run without it"
    )

    @classmethod
    def prefetch(cls, rows: Sequence[Any]) -> None:
        forecasts = forecasts_of(rows)
        for run in rows:  # the position first: a change after it is on the stream
            run.metrics_seq = event_stream.current_seq(f"run:{run.pk}")
            run.start, run.end = start_of(run, forecasts.get(run.pk)), end_of(run, forecasts.get(run.pk))
        super().prefetch(rows)

    def resolve_boot(self, run: Run) -> dict[str, Any] | None:
        stages = boot_of(run)
        if stages is None:
            return None
        done = all(stage.state == "done" for stage in stages)
        return {"attempt_number": run.attempt_number, "done": done, "stages": stages}

    def resolve_staleness(self, run: Run) -> dict[str, Any] | None:
        return staleness_of(run)


class LintFindingSerializer(FieldErrorSerializer):
    severity = serializers.ChoiceField(choices=["error", "warning"])
    advice = serializers.CharField()


class ValidationSerializer(ResponseSerializer):
    valid = serializers.BooleanField()
    errors = FieldErrorSerializer(many=True)
    warnings = LintFindingSerializer(
        many=True, help_text="odd, and allowed; the rules are in the lint reference"
    )
    resolved = RunSpecField(
        source="document", allow_null=True, help_text="the spec with every default filled in"
    )

    def resolve_valid(self, resolved: Mapping[str, Any]) -> bool:
        return not resolved["errors"]


class PlannedJobSerializer(ResponseSerializer):
    name = serializers.CharField()
    kind = serializers.CharField()
    slots = serializers.IntegerField()


class QueuedAheadSerializer(ResponseSerializer):
    run_id = serializers.CharField(help_text="empty when the run is another team's")
    name = serializers.CharField()
    slots_needed = serializers.IntegerField()
    priority = serializers.IntegerField()


class WaitExplanationSerializer(ResponseSerializer):
    starts_now = serializers.BooleanField(help_text="whether it starts when the queue is next planned")
    code = serializers.ChoiceField(choices=list(WAIT_CODES), allow_null=True, help_text=WAIT_CODES_HELP)
    message = serializers.CharField(help_text="why it waits; empty when it starts now")
    position = serializers.IntegerField(allow_null=True, help_text="in the queue of its pool, from 1")
    queue_length = serializers.IntegerField(help_text="runs that wait in the pool")
    start = EtaSerializer(help_text="when it starts, if no run is submitted that goes before it")
    ahead = QueuedAheadSerializer(
        many=True, help_text=f"the runs before it in the queue, at most {MAX_AHEAD} from the head"
    )


class WhatIfOutcomeSerializer(ResponseSerializer):
    kind = serializers.ChoiceField(
        choices=list(get_args(Kind)), allow_null=True, help_text="what differs; null for the run as it is"
    )
    changes = RunSpecPatchField(
        help_text="part of a RunSpec: what to clone the run with, or to merge into the spec (RFC 7396)"
    )
    starts_now = serializers.BooleanField(help_text="whether it starts when the queue is next planned")
    sooner = serializers.BooleanField(help_text="whether it starts at least a minute earlier than as it is")
    start = EtaSerializer()
    message = serializers.CharField(help_text="with 2 engines instead of 4 it starts now")


class WhatIfSerializer(ResponseSerializer):
    as_is = WhatIfOutcomeSerializer()
    variants = WhatIfOutcomeSerializer(
        many=True,
        help_text="each changes one thing: fewer engines or trainer ranks, less memory, another device, another pool; "
        "those first that start first. Empty when the run starts now anyway",
    )


class PlannedTokensSerializer(ResponseSerializer):
    generated_at_most = serializers.IntegerField(allow_null=True, help_text="if every completion were cut")


class PlannedTimeSerializer(ResponseSerializer):
    seconds = serializers.FloatField(
        allow_null=True, help_text="null: no run of this shape has succeeded yet"
    )
    seconds_p90 = serializers.FloatField(
        allow_null=True, help_text="with a probability of 90 % it takes less; null: fewer than 5 such runs"
    )
    gpu_hours = serializers.FloatField(allow_null=True, help_text="slots times time")
    from_runs = serializers.IntegerField(
        help_text="the project's newest runs of this shape that it is the median of"
    )


class DryRunSerializer(ResponseSerializer):
    jobs = PlannedJobSerializer(many=True)
    slots_needed = serializers.IntegerField(source="slots")
    placement = WaitExplanationSerializer()
    groups = serializers.IntegerField(allow_null=True, help_text="groups that are trained on")
    tokens = PlannedTokensSerializer()
    time = PlannedTimeSerializer()


class PlanSerializer(ValidationSerializer):
    plan = DryRunSerializer(allow_null=True, help_text="null when there are errors")


class SpecWhatIfSerializer(ValidationSerializer):
    what_if = WhatIfSerializer(allow_null=True, help_text="null when there are errors")


class PresetSerializer(ResponseSerializer):
    name = serializers.CharField()
    title = serializers.CharField()
    description = serializers.CharField(source="explained")
    paper = serializers.CharField(help_text="link to where its numbers come from, or empty")
    spec = RunSpecPartField()
    fault = serializers.CharField(help_text="why its file cannot be used, with the file's name; else empty")

    def resolve_fault(self, preset: Any) -> str:
        return preset["fault"] if isinstance(preset, dict) else ""


class EventSerializer(ResponseSerializer):
    id = serializers.CharField()
    kind = serializers.CharField()
    message = serializers.CharField()
    attempt_number = serializers.IntegerField()
    at = serializers.DateTimeField()
    data = serializers.DictField()

    def resolve_id(self, event: RunEvent) -> str:
        return f"evt_{event.pk:012d}"


class AttemptSerializer(ResponseSerializer):
    id = serializers.CharField()
    number = serializers.IntegerField()
    epoch = serializers.IntegerField()
    status = serializers.CharField()
    node = NamedSerializer()
    reason = serializers.CharField()
    message = serializers.CharField()
    resume_checkpoint = serializers.CharField(source="resume_checkpoint_id", allow_null=True)
    created_at = serializers.DateTimeField()
    running_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)


class JobSerializer(ResponseSerializer):
    id = serializers.CharField()
    name = serializers.CharField()
    kind = serializers.CharField()
    attempt_number = serializers.IntegerField(source="attempt.number")
    state = serializers.ChoiceField(choices=["pending", "preparing", "running", "exited"])
    node = NamedSerializer(
        source="placed_on", help_text="of an engine it may be another one than the attempt's"
    )
    slots = serializers.ListField(child=serializers.CharField())
    evaluates = serializers.IntegerField(
        allow_null=True, help_text="of an evaluator, an engine beside those of the run: the version"
    )
    incarnation = serializers.IntegerField(help_text="restarts in place so far")
    pid = serializers.IntegerField()
    exit_code = serializers.IntegerField(allow_null=True)
    reason = serializers.CharField()
    message = serializers.CharField()
    started_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)

    def resolve_evaluates(self, job: Job) -> int | None:
        return version_of_task(job.evaluates) if job.evaluates else None


class QueueEntrySerializer(ResponseSerializer):
    run_id = serializers.CharField(help_text="empty when the run is another team's")
    name = serializers.CharField()
    priority = serializers.IntegerField()
    slots_needed = serializers.IntegerField()
    device = serializers.CharField(help_text="cuda or cpu; empty: any")
    code = serializers.ChoiceField(
        choices=list(WAIT_CODES), allow_null=True,
        help_text="null when no plan has seen it yet, and for another team's run unless you manage the pool. "
        f"{WAIT_CODES_HELP}",
    )  # fmt: skip
    why = serializers.CharField()
    position = serializers.IntegerField()
    start = EtaSerializer(help_text="when it starts, as of the last 15 seconds")
    submitted_at = serializers.DateTimeField()


class LeavingRunSerializer(ResponseSerializer):
    node = NamedSerializer()
    run_id = serializers.CharField(help_text="empty when the run is another team's")
    run_name = serializers.CharField()
    stage = serializers.ChoiceField(
        choices=LEAVING_STAGES,
        help_text="staying: it may finish until the deadline; stopping: its jobs save and stop; uploading: its jobs "
        "have ended and its checkpoint is being uploaded",
    )


class PoolSerializer(PoolSettingsSerializer):
    blocked_reason = serializers.CharField(help_text="why you do not manage the pool; empty when you do")
    pools = serializers.ListField(child=serializers.CharField(), help_text="names of the pools that you see")
    slots = SlotSerializer(many=True)
    nodes = NodeSerializer(many=True)
    queue = QueueEntrySerializer(many=True)
    leaving = LeavingRunSerializer(many=True, help_text="runs that are still on nodes that are drained")
    quota = QuotaSerializer()
    project_quota = ProjectQuotaSerializer()
