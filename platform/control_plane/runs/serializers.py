"""What requests for runs may hold, and what answers do."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from control_plane.accounts.identity.api import NamedSerializer
from control_plane.core.api.request_parsing import StrictSerializer
from control_plane.core.api.schema import MODEL_KINDS, RUN_KINDS, RUN_STATUSES, FieldErrorSerializer
from control_plane.core.api.schema_run_spec import REFERENCE, RunSpecField
from control_plane.fleet.api import NodeSerializer, SlotSerializer
from control_plane.fleet.pool_api import PoolSettingsSerializer, QuotaSerializer
from control_plane.runs.attempt_status import CONDITIONS
from control_plane.runs.boot import STATES as BOOT_STATES
from control_plane.runs.boot import TITLES

CONDITIONS_HELP = "what is noteworthy beside the status: " + ", ".join(
    f"{name} ({meaning})" for name, meaning in CONDITIONS.items()
)


class SpecSerializer(StrictSerializer):
    spec = serializers.DictField(
        help_text="a RunSpec, or with a template the part of one that differs; its fields are in the RunSpec reference"
    )
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

    @classmethod
    def rules(cls) -> dict[str, Any]:
        whole = {"properties": {"spec": REFERENCE}}
        return {**super().rules(), "anyOf": [{"required": ["template"]}, whole]}


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
    conditions = serializers.ListField(child=serializers.CharField(), help_text=CONDITIONS_HELP)
    pending_reason = serializers.CharField(help_text="one line, while it waits")
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
    spec = RunSpecField()
    dataset = DatasetRefSerializer()
    model = RunModelSerializer()
    created_by = serializers.CharField()
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


class RunPatchSerializer(StrictSerializer):
    spec = RunSpecField(required=False, help_text="of a draft: replaces its spec")
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

    not_empty = True


class BootStageSerializer(serializers.Serializer[Any]):
    name = serializers.ChoiceField(choices=list(TITLES))
    title = serializers.CharField()
    state = serializers.ChoiceField(choices=BOOT_STATES)
    started_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)
    detail = serializers.CharField(help_text="what it waits for, how far it is, or why it failed")


class BootSerializer(serializers.Serializer[Any]):
    attempt_number = serializers.IntegerField(help_text="of the newest attempt")
    done = serializers.BooleanField()
    stages = BootStageSerializer(many=True)


class StalenessSerializer(serializers.Serializer[Any]):
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


class RunDetailSerializer(RunSerializer):
    metrics_seq = serializers.IntegerField(help_text="subscribe to run:<id> after this number")
    boot = BootSerializer(
        allow_null=True, help_text="how the newest attempt comes up, stage by stage; null for a draft"
    )
    staleness = StalenessSerializer(
        allow_null=True, help_text="configured against realized; null for kinds of run without it"
    )


class LintFindingSerializer(FieldErrorSerializer):
    severity = serializers.ChoiceField(choices=["error", "warning"])
    advice = serializers.CharField()


class ValidationSerializer(serializers.Serializer[Any]):
    valid = serializers.BooleanField()
    errors = FieldErrorSerializer(many=True)
    warnings = LintFindingSerializer(
        many=True, help_text="odd, and allowed; the rules are in the lint reference"
    )
    resolved = RunSpecField(allow_null=True, help_text="the spec with every default filled in")


class PlannedJobSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    kind = serializers.CharField()
    slots = serializers.IntegerField()


class PlannedPlaceSerializer(serializers.Serializer[Any]):
    starts_now = serializers.BooleanField()
    blocked_reason = serializers.CharField()
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
    fault = serializers.CharField(help_text="why its file cannot be used, with the file's name; else empty")


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


class QueueEntrySerializer(serializers.Serializer[Any]):
    run_id = serializers.CharField(help_text="empty when the run is another team's")
    name = serializers.CharField()
    priority = serializers.IntegerField()
    slots_needed = serializers.IntegerField()
    why = serializers.CharField()
    position = serializers.IntegerField()
    submitted_at = serializers.DateTimeField()


class PoolSerializer(PoolSettingsSerializer):
    blocked_reason = serializers.CharField(help_text="why you do not manage the pool; empty when you do")
    pools = serializers.ListField(child=serializers.CharField(), help_text="names of the pools that you see")
    slots = SlotSerializer(many=True)
    nodes = NodeSerializer(many=True)
    queue = QueueEntrySerializer(many=True)
    quota = QuotaSerializer()
