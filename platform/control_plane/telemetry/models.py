"""What jobs report: series and points, histograms, state snapshots, trajectories, logs, and how far the server has
read each of their files."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models

from control_plane.runs.models import Attempt, Job, Run
from control_plane.telemetry.alerts import alert_rules
from control_plane.telemetry.alerts.alert_rules import AlertRule

ROWS, MIXED, CHUNKS = "rows", "mixed", "chunks"  # where the points of a series lie


class OutboxFile(models.Model):
    """How far one file of a job was read. Its row lock serializes chunks of the same file."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="outbox_files")
    name = models.CharField(max_length=120)  # "main-0.jsonl"; a log is "output.log#<incarnation>"
    offset = models.BigIntegerField(default=0)  # bytes read; what lies before it is never read again
    lines = models.BigIntegerField(default=0)
    bad_lines = models.BigIntegerField(default=0)  # invalid; the first few are run events
    conflicts = models.BigIntegerField(default=0)  # keys that came again with another value
    # Of a log only: what is kept of it differs from what was read once something was left out (see log_budget).
    kept = models.BigIntegerField(null=True)  # bytes kept, marks included; null: as many as were read
    dropped = models.BigIntegerField(default=0, db_default=0)  # bytes left out
    dropping = models.BigIntegerField(
        default=0, db_default=0
    )  # of them, of the stretch that is being left out
    allowance = models.BigIntegerField(null=True)  # bytes that may still come at once, as of
    allowance_at = models.DateTimeField(null=True)
    removed_at = models.DateTimeField(null=True)  # its text was removed: it had been kept for long enough

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "name"], name="outbox_file_of_job")]

    @property
    def incarnation(self) -> int:
        """Of a log: the restart in place that wrote it."""
        return int(self.name.rpartition("#")[2])

    @property
    def size(self) -> int:
        """Of a log: bytes that can be read."""
        return self.offset if self.kept is None else self.kept

    def __str__(self) -> str:
        return f"{self.name} of {self.job_id}, read to {self.offset}"


class MetricSeries(models.Model):
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="series")
    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="+")
    name = models.CharField(max_length=120)
    source = models.CharField(max_length=120)  # job, restart in place and part of it: "rollout-0#1/engine"
    axis = models.CharField(max_length=8)  # step, or time: whole seconds since the attempt began
    conflicts = models.BigIntegerField(default=0)
    rolled_to = models.BigIntegerField(
        null=True
    )  # rollups stand for all points below it; null: there are none
    stored_as = models.CharField(
        max_length=6, default=ROWS, db_default=ROWS
    )  # rows, mixed while it is packed, chunks

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["attempt", "name", "source", "axis"], name="one_series_per_key")
        ]
        indexes = [
            models.Index(fields=["run", "axis", "name"]),
            models.Index(
                fields=["run"], condition=~models.Q(stored_as=CHUNKS), name="telemetry_series_to_pack"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} by {self.axis} from {self.source}"


class MetricPoint(models.Model):
    pk = models.CompositePrimaryKey("series_id", "x")
    # Points are only written beside their series, in one transaction: a check per point would buy nothing.
    series = models.ForeignKey(
        MetricSeries, on_delete=models.CASCADE, related_name="points", db_constraint=False, db_index=False
    )
    x = models.BigIntegerField()
    value = models.FloatField()  # NaN: it was measured and not finite
    at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.series_id}[{self.x}] = {self.value}"


class MetricRollup(models.Model):
    """What the points of x in [start, start + width) amount to. Rollups of width 16, 256 and 4096 stand together."""

    pk = models.CompositePrimaryKey("series_id", "width", "start")
    series = models.ForeignKey(
        MetricSeries, on_delete=models.CASCADE, related_name="rollups", db_constraint=False, db_index=False
    )
    width = models.IntegerField()
    start = models.BigIntegerField()  # a multiple of width
    points = models.IntegerField()
    finite = models.IntegerField()  # of them; low, high and mean are over these, null when there are none
    low = models.FloatField(null=True)
    high = models.FloatField(null=True)
    mean = models.FloatField(null=True)
    last = models.FloatField(null=True)  # value at last_x; null when it is not finite
    last_x = models.BigIntegerField()
    last_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.series_id}[{self.start} + {self.width}]"


class MetricChunk(models.Model):
    """Up to 4096 points of a series of an ended run, column by column."""

    pk = models.CompositePrimaryKey("series_id", "first_x")
    series = models.ForeignKey(
        MetricSeries, on_delete=models.CASCADE, related_name="chunks", db_constraint=False, db_index=False
    )
    first_x = models.BigIntegerField()
    last_x = models.BigIntegerField()
    points = models.IntegerField()
    xs = ArrayField(models.BigIntegerField())  # [points], ascending
    values = ArrayField(models.FloatField())  # [points]
    ats = ArrayField(models.DateTimeField())  # [points]

    def __str__(self) -> str:
        return f"{self.series_id}[{self.first_x} .. {self.last_x}]"


class Histogram(models.Model):
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="histograms")
    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="+")
    name = models.CharField(max_length=120)
    source = models.CharField(max_length=120)
    x = models.BigIntegerField()
    counts = models.JSONField()  # bucket, a whole number as text -> count
    at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["attempt", "name", "source", "x"], name="one_histogram_per_key")
        ]
        indexes = [models.Index(fields=["run", "name", "x"])]

    def __str__(self) -> str:
        return f"{self.name}[{self.x}] from {self.source}"


class StateSnapshot(models.Model):
    """State that a job keeps overwriting, such as the ledger or the engines; the newest one wins."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="documents")
    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="+")
    name = models.CharField(max_length=120)
    at = models.DateTimeField()
    value = models.JSONField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "name"], name="one_document_per_name")]

    def __str__(self) -> str:
        return f"{self.name} of {self.run_id}"


class TrajectoryFile(models.Model):
    """A Parquet file in the blob store: the sampled trajectories of a stretch of a run, token by token."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="trajectory_files")
    sha256 = models.CharField(max_length=64)
    bytes = models.BigIntegerField()
    samples = models.PositiveIntegerField()
    created_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.samples} trajectories of {self.run_id}"


class TrajectorySample(models.Model):
    """The index of a sampled trajectory, with its texts; its tokens are in a file, or wait for one."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="trajectories")
    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="+")
    at = models.DateTimeField()
    step = models.BigIntegerField()
    group_id = models.CharField(max_length=120)
    prompt = models.TextField()
    answer = models.TextField()
    completion = models.TextField()
    reward = models.FloatField()
    policy_versions = models.JSONField()  # pairs flattened: version (-1: environment), count of tokens, ...
    version_texts = models.JSONField()  # the text of each pair, or empty
    finish_reason = models.CharField(max_length=40)
    reward_parts = models.JSONField(default=dict)  # of a composite reward: name -> the part's own score
    reward_result = models.TextField(default="")  # the reward function's reason
    reward_text = models.TextField(default="", db_default="")  # what a judge wrote
    sample_reasons = models.JSONField(default=list)
    row = models.BigIntegerField(null=True)  # of the dataset
    member = models.IntegerField(null=True)  # of the group
    score = models.FloatField(null=True)  # the reward function's own value
    tokens = models.IntegerField(null=True)  # completion tokens
    low_version = models.BigIntegerField(
        null=True
    )  # oldest and newest policy version that sampled any of them
    high_version = models.BigIntegerField(null=True)
    timeline = models.JSONField(default=dict)
    file = models.ForeignKey(TrajectoryFile, on_delete=models.SET_NULL, null=True, related_name="rows")
    file_row = models.PositiveIntegerField(null=True)

    class Meta:
        indexes = [
            models.Index(fields=["run", "id"]),
            models.Index(fields=["run", "step"], name="trajectories_by_step"),
        ]

    def __str__(self) -> str:
        return f"{self.group_id} at step {self.step}"


class TrajectoryTokens(models.Model):
    """Tokens of a sample until a tick writes them to a file."""

    sample = models.OneToOneField(
        TrajectorySample, on_delete=models.CASCADE, primary_key=True, related_name="waiting_tokens"
    )
    token_ids = models.BinaryField()  # int32, little endian
    logprobs = models.BinaryField()  # float32, little endian; as many
    token_chars = models.BinaryField(default=b"")  # int32, little endian; as many, or none
    # Of the trainer, float32, little endian; as many, or none. NaN where a token was not trained.
    trainer_logprobs = models.BinaryField(default=b"")
    advantages = models.BinaryField(default=b"")

    def __str__(self) -> str:
        return f"tokens of {self.sample_id}"


class RunSpan(models.Model):
    """What a job did from `start` to `end`: a bar in the run's timeline."""

    # Spans are written in the transaction that holds the run: a check per span would buy nothing.
    run = models.ForeignKey(
        Run, on_delete=models.CASCADE, related_name="spans", db_constraint=False, db_index=False
    )
    attempt = models.PositiveIntegerField()  # its number
    lane = models.CharField(max_length=40)  # name of the job: trainer, rollout-0
    kind = models.CharField(max_length=16)
    start = models.FloatField()  # unix seconds
    end = models.FloatField()
    version = models.BigIntegerField(null=True)
    group_id = models.CharField(max_length=120)
    member = models.IntegerField(null=True)  # of the group
    outcome = models.CharField(max_length=16)
    sampled_groups = models.IntegerField()  # one of so many groups was recorded

    class Meta:
        # A window near the run's begin reads the first, one near its end the second.
        indexes = [
            models.Index(fields=["run", "start"], name="spans_by_start"),
            models.Index(fields=["run", "end"], name="spans_by_end"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} of {self.lane} from {self.start} to {self.end}"


class LogChunk(models.Model):
    """A chunk of a job's log as it was shipped."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="log_chunks")
    incarnation = models.PositiveIntegerField()
    offset = models.BigIntegerField()  # in what is kept of the log
    data = models.BinaryField()
    at = models.DateTimeField(null=True)  # when the server got it

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["job", "incarnation", "offset"], name="one_log_chunk_per_offset")
        ]

    def __str__(self) -> str:
        return f"log of {self.job_id} from {self.offset}"


class Alert(models.Model):
    """A rule that holds for a run, from `opened_at` to `closed_at`."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="alerts")
    rule = models.CharField(max_length=40)
    message = models.CharField(max_length=400)
    train_step = models.PositiveIntegerField()
    opened_at = models.DateTimeField()
    closed_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["run", "rule"], condition=models.Q(closed_at=None), name="one_open_alert_per_rule"
            )
        ]
        indexes = [models.Index(fields=["run", "-opened_at"], name="alerts_of_a_run")]

    @property
    def public_id(self) -> str:
        return f"alert_{self.pk:012d}"

    @property
    def definition(self) -> AlertRule:
        return alert_rules.rule_of(self.rule)

    def __str__(self) -> str:
        return f"{self.rule} of {self.run_id}"
