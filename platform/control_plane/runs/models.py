from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Value

from control_plane.accounts.models import Project, Team, User
from control_plane.assets.models import BaseModel, DatasetVersion, FunctionVersion
from control_plane.checkpoints.models import Checkpoint, CheckpointContent, model_path_of
from control_plane.core.infra import ids
from control_plane.fleet.models import Node, Pool
from oolong.contracts.lifecycle import ENDED, OUTCOMES, AttemptStatus, EndReason, JobKind, RunStatus
from oolong.contracts.run_spec import PlacementSection

PENDING = "pending"  # a job that its node has not reported yet; the other states are lifecycle.JobState


class Run(models.Model):
    id = models.CharField(primary_key=True, max_length=40, default=ids.run_id, editable=False)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="runs")
    created_by = models.ForeignKey(User, on_delete=models.PROTECT)
    name = models.CharField(max_length=120)
    kind = models.CharField(max_length=16)
    spec = models.JSONField()  # resolved; immutable once submitted
    submitted_spec = models.JSONField(null=True)  # as it was written; null: submitted before it was kept
    # null: a draft, whose names are resolved at submission
    dataset_version = models.ForeignKey(DatasetVersion, on_delete=models.PROTECT, null=True, related_name="+")
    evaluation_version = models.ForeignKey(
        DatasetVersion, on_delete=models.PROTECT, null=True, related_name="+"
    )
    base_model = models.ForeignKey(BaseModel, on_delete=models.PROTECT, null=True, related_name="+")
    initial_checkpoint = models.ForeignKey(Checkpoint, on_delete=models.PROTECT, null=True, related_name="+")
    functions = models.ManyToManyField(FunctionVersion, related_name="+")  # named in the spec
    live = models.JSONField(default=dict)  # contracts.runtime_overrides.RuntimeOverrides
    notes = models.TextField(default="", blank=True)
    tags = models.JSONField(default=list)
    parent = models.ForeignKey("self", on_delete=models.SET_NULL, null=True, related_name="children")
    relation = models.CharField(max_length=8, default="", blank=True)  # to the parent: clone, fork, retry
    # A retry resumes from this checkpoint: weights, optimizer, data cursor and buffered groups.
    resume_checkpoint = models.ForeignKey(Checkpoint, on_delete=models.PROTECT, null=True, related_name="+")

    # Key of idempotent submission; null: none was given, or it was released.
    dedupe_key = models.CharField(max_length=200, null=True)
    dedupe_sha256 = models.CharField(max_length=64, default="", blank=True)  # of the spec as it was submitted

    status = models.CharField(max_length=16, default=RunStatus.QUEUED)
    status_at = models.DateTimeField()
    reason = models.CharField(max_length=40, default="", blank=True)
    reason_message = models.TextField(default="", blank=True)
    fault = models.CharField(max_length=16, default="", blank=True)
    conditions = models.JSONField(default=list)  # shown next to the status (runs.status.CONDITIONS)
    pending_reason = models.CharField(max_length=400, default="", blank=True)
    pending_code = models.CharField(
        max_length=20, default="", db_default="", blank=True
    )  # WaitCode of the reason
    queue_position = models.PositiveIntegerField(null=True)
    priority = models.PositiveIntegerField()
    slots_needed = models.PositiveIntegerField()
    attempt_number = models.PositiveIntegerField(default=0)
    epoch = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField()
    not_before = models.DateTimeField(null=True)  # earliest time of the next attempt
    # While it waits: the earliest start for which the scheduler has reserved slots (fleet.backfill).
    promised_start_at = models.DateTimeField(null=True)
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    paused_seconds = models.FloatField(default=0.0)  # not counted against budget.max_wall_seconds

    # From telemetry (runs.telemetry_hooks); stored here so that lists need no series.
    train_step = models.PositiveIntegerField(default=0)
    total_train_steps = models.PositiveIntegerField(default=0)
    policy_version = models.PositiveIntegerField(default=0)
    reward_mean = models.FloatField(null=True)
    staleness_mean = models.FloatField(null=True)
    progress = models.JSONField(null=True)
    metrics = models.JSONField(
        default=dict
    )  # name → newest value, of the metrics that lists can be searched by
    summary = models.JSONField(default=dict)
    summary_attempts = models.JSONField(default=dict)  # name → number of the attempt that reported it

    class Meta:
        indexes = [
            models.Index(fields=["status"]),
            models.Index(fields=["project", "status"]),
            models.Index(fields=["project", "id"]),  # a page of the list, newest first
        ]
        constraints = [
            models.UniqueConstraint(fields=["project", "dedupe_key"], name="one_run_per_dedupe_key")
        ]

    @property
    def model_path(self) -> str:
        """The directory of the base model on nodes; "" for one in the store."""
        return model_path_of(self.base_model, self.initial_checkpoint)

    @property
    def checkpoint_content(self) -> dict[str, Any]:
        """What its checkpoints hold: fields of Checkpoint."""
        if self.spec.get("model", {}).get("lora") is None:
            return {"content": CheckpointContent.MODEL}
        start = self.initial_checkpoint
        return {
            "content": CheckpointContent.ADAPTER,
            "base_checkpoint": start,
            "base_model": self.base_model if start is None else start.base_model,
        }

    @property
    def placement(self) -> PlacementSection:
        return PlacementSection.model_validate(self.spec.get("placement", {}))

    @property
    def pool(self) -> str:
        """Name of the pool in which the run is scheduled."""
        return self.placement.pool

    @property
    def trained_on(self) -> DatasetVersion:
        """The dataset version of a submitted run."""
        assert self.dataset_version is not None, f"run {self.pk} is a draft"
        return self.dataset_version

    @property
    def steps_planned(self) -> int:
        """`total_train_steps` times the number of seeds started: an SFT run with another seed continues the step
        count."""
        seeds = max(1, -(-self.train_step // self.total_train_steps)) if self.total_train_steps else 1
        return self.total_train_steps * (seeds if self.kind == "sft" else 1)

    @property
    def advice(self) -> str:
        """What the reader can do about the reason of the end."""
        return OUTCOMES[EndReason(self.reason)].advice if self.reason else ""

    @property
    def has_ended(self) -> bool:
        return self.status in ENDED


class Attempt(models.Model):
    """One placement of a run on a node. Engines that joined later, and ranks of the trainer, may be on other nodes."""

    id = models.CharField(primary_key=True, max_length=40, default=ids.attempt_id, editable=False)
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="attempts")
    number = models.PositiveIntegerField()
    epoch = models.PositiveIntegerField()
    node = models.ForeignKey(Node, on_delete=models.PROTECT, related_name="attempts")
    status = models.CharField(max_length=10, default=AttemptStatus.SCHEDULED)
    token = models.CharField(max_length=80)  # authenticates calls to its controller and reward service
    ports = models.JSONField()
    # Where jobs on other nodes reach its controller, with TLS, and ranks of its trainer meet; "": all its jobs are on
    # its node.
    peer_address = models.CharField(max_length=45, default="", db_default="", blank=True)
    certificate = models.TextField(default="", db_default="", blank=True)
    private_key = models.TextField(default="", db_default="", blank=True)  # until the attempt ends
    resume_checkpoint = models.ForeignKey(Checkpoint, on_delete=models.PROTECT, null=True, related_name="+")
    tokens_generated = models.BigIntegerField(default=0)  # of the whole run, as last reported by this attempt
    tokens_trained = models.BigIntegerField(default=0, db_default=0)
    tokens_wasted = models.BigIntegerField(default=0, db_default=0)  # dropped, or lost to recoveries
    # Null: reported before they were stored.
    tokens_dropped = models.JSONField(null=True)  # by reason
    tokens_lost = models.BigIntegerField(null=True)  # to recoveries
    tokens_in_flight = models.BigIntegerField(null=True)
    # The evaluation task for which the controller wants an evaluator (runs.evaluators).
    evaluator_wanted = models.CharField(max_length=120, default="", db_default="", blank=True)
    # Boot progress (runs.boot): queued_at, input_bytes, fetched_bytes, milestones {name: at}, failed_boots {job: why}.
    # Times are Unix seconds.
    boot = models.JSONField(default=dict, db_default=Value({}, models.JSONField()))
    reason = models.CharField(max_length=40, default="", blank=True)
    message = models.TextField(default="", blank=True)
    created_at = models.DateTimeField()
    running_at = models.DateTimeField(null=True)
    ending_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["run", "number"], name="attempt_number_in_run"),
            models.UniqueConstraint(
                fields=["run"],
                condition=~models.Q(status=AttemptStatus.ENDED),
                name="one_live_attempt_per_run",
            ),
        ]

    @property
    def spans_nodes(self) -> bool:
        """Whether ranks of its trainer are on other nodes than its own."""
        return "rendezvous" in self.ports


class Job(models.Model):
    id = models.CharField(primary_key=True, max_length=40, default=ids.job_id, editable=False)
    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="jobs")
    # Of a remote engine, and of a trainer's ranks on another node: its node. None: the attempt's node.
    node = models.ForeignKey(Node, on_delete=models.PROTECT, null=True, related_name="remote_jobs")
    name = models.CharField(max_length=40)
    kind = models.CharField(max_length=16)
    index = models.PositiveIntegerField(default=0)
    slots = models.JSONField(default=list)
    restarts = models.PositiveIntegerField(default=0)  # allowed restarts in place, within the agent's window
    state = models.CharField(max_length=12, default=PENDING)
    incarnation = models.PositiveIntegerField(default=0)
    pid = models.PositiveIntegerField(default=0)
    exit_code = models.IntegerField(null=True)
    reason = models.CharField(max_length=40, default="", blank=True)
    message = models.TextField(default="", blank=True)
    outbox = models.JSONField(default=dict)  # file → bytes written, final once the job has exited
    outbox_read = models.JSONField(default=dict)  # file → bytes stored by the server
    stop_asked_at = models.DateTimeField(null=True)
    leaving_at = models.DateTimeField(null=True)  # an engine that stops while the run continues
    engine_port = models.PositiveIntegerField(
        default=0
    )  # of an engine that joined later; 0: the port is in attempt.ports
    session_port = models.PositiveIntegerField(default=0)
    # Of an evaluator: its evaluation task (runs.evaluators).
    evaluates = models.CharField(max_length=120, default="", db_default="", blank=True)
    grace_seconds = models.FloatField(default=15.0)
    # How the job spent the time of its slots, as far as reported (runs.slot_usage).
    working_seconds = models.FloatField(default=0.0, db_default=0.0)
    waiting_seconds = models.FloatField(default=0.0, db_default=0.0)
    syncing_seconds = models.FloatField(default=0.0, db_default=0.0)
    measured_to = models.BigIntegerField(null=True)  # whole seconds since the start of the attempt
    observed_at = models.DateTimeField(null=True)  # first report
    missing_at = models.DateTimeField(null=True)  # since when its node's reports lack the job
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["attempt", "name"], name="job_name_in_attempt")]

    @property
    def is_remote(self) -> bool:
        """Whether it is an engine on another node than the trainer's. The attempt continues without it."""
        return self.node_id is not None and self.kind == JobKind.ROLLOUT

    @property
    def is_follower(self) -> bool:
        """Whether it has ranks of a trainer on another node than rank 0. The attempt ends with it."""
        return self.node_id is not None and self.kind == JobKind.TRAINER

    @property
    def placed_on(self) -> Node:
        return self.node or self.attempt.node


def jobs_on(node: Node) -> models.QuerySet[Job]:
    """Jobs of all attempts, ended or not, that were placed on this node."""
    return Job.objects.filter(models.Q(node=node) | models.Q(node=None, attempt__node=node))


class RunEvent(models.Model):
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="events")
    attempt_number = models.PositiveIntegerField(default=0)
    at = models.DateTimeField()
    kind = models.CharField(max_length=60)
    message = models.TextField(default="", blank=True)
    data = models.JSONField(default=dict)


class Budget(models.Model):
    """What a team, or one of its projects, may use in a pool in a calendar month (UTC). Null: without that limit."""

    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="budgets")
    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="budgets")
    project = models.ForeignKey(Project, on_delete=models.CASCADE, null=True, related_name="budgets")
    gpu_hours = models.DecimalField(max_digits=12, decimal_places=2, null=True)  # of GPU slots
    cost = models.DecimalField(max_digits=12, decimal_places=2, null=True)
    # As of the last check (runs.budgets): the state in the month that begins at this date.
    state = models.CharField(max_length=12, default="within")
    month = models.DateField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["pool", "team"], condition=models.Q(project=None), name="one_budget_per_team_and_pool"
            ),
            models.UniqueConstraint(fields=["pool", "project"], name="one_budget_per_project_and_pool"),
        ]


class RunForecast(models.Model):
    """When a queued run starts and when it or an active run ends (runs.forecasts). A row of its own, because telemetry
    locks those of runs."""

    run = models.OneToOneField(Run, on_delete=models.CASCADE, primary_key=True, related_name="forecast")
    made_at = models.DateTimeField()
    measure = models.CharField(max_length=200, default="", blank=True)  # what the samples count
    samples = models.JSONField(default=list)  # [[Unix seconds, done by then]], oldest first
    duration_p90 = models.FloatField(null=True)  # seconds from its start, or from now for an active run
    start_p50_at = models.DateTimeField(null=True)
    start_p90_at = models.DateTimeField(null=True)
    start_message = models.CharField(max_length=200, default="", blank=True)  # why the start is unknown
    end_p50_at = models.DateTimeField(null=True)
    end_p90_at = models.DateTimeField(null=True)
    end_source = models.CharField(max_length=16, default="", blank=True)  # durations.Source
    end_message = models.CharField(max_length=200, default="", blank=True)
