"""What people make of runs: reward tests, playgrounds, saved views, templates, sweeps."""

from __future__ import annotations

from functools import cached_property

from django.db import models

from control_plane.accounts.models import Project, Team, User
from control_plane.assets.models import DatasetVersion
from control_plane.core.infra import ids
from control_plane.experiments.sweep_plan import SweepPlan
from control_plane.runs.models import Run
from oolong.contracts.lifecycle import RunStatus

TRIAL_STATES = ("waiting", "running", "succeeded", "stopped", "failed", "skipped")


class RewardTest(models.Model):
    """What the test of a reward said: bound to the reward's very source and options, and to a dataset version."""

    id = models.CharField(primary_key=True, max_length=40, default=ids.reward_test_id, editable=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="reward_tests")
    run = models.OneToOneField(
        Run, on_delete=models.CASCADE, related_name="reward_test"
    )  # of kind reward_test
    reward = models.CharField(max_length=300)  # as people read it: name@3, exact_match
    reward_key = models.CharField(max_length=64)  # sha256 of source, or name, and options
    dataset_version = models.ForeignKey(DatasetVersion, on_delete=models.PROTECT, related_name="+")
    samples_sha256 = models.CharField(max_length=64, default="", blank=True)
    samples_bytes = models.PositiveIntegerField(default=0)
    result = models.CharField(max_length=8, default="", blank=True)  # green, amber, red; empty before the end
    report = models.JSONField(null=True)
    created_by = models.ForeignKey(User, on_delete=models.PROTECT)
    created_at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["project", "reward_key"])]


class Playground(models.Model):
    """A chat with one model, or two side by side: a run of kind playground for each."""

    id = models.CharField(primary_key=True, max_length=40, default=ids.playground_id, editable=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="playgrounds")
    created_by = models.ForeignKey(User, on_delete=models.PROTECT)
    created_at = models.DateTimeField()


class PlaygroundSide(models.Model):
    playground = models.ForeignKey(Playground, on_delete=models.CASCADE, related_name="sides")
    index = models.PositiveIntegerField()
    run = models.OneToOneField(Run, on_delete=models.CASCADE, related_name="playground_side")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["playground", "index"], name="side_of_playground")]


class SavedView(models.Model):
    """What somebody looks for among the runs, under a name."""

    id = models.CharField(primary_key=True, max_length=40, default=ids.view_id, editable=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+")
    owner = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    name = models.CharField(max_length=120)
    query = models.JSONField()  # parameters of the run list: name → values
    # Columns that the dashboard shows with it; null: those that the reader has chosen.
    columns = models.JSONField(null=True)
    shared = models.BooleanField(default=False)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "owner", "name"], name="view_name_of_owner")
        ]


class RunTemplate(models.Model):
    """A named part of a spec, in versions: of a project, or of all projects of a team."""

    id = models.CharField(primary_key=True, max_length=40, default=ids.template_id, editable=False)
    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="+")
    project = models.ForeignKey(
        Project, on_delete=models.CASCADE, null=True, related_name="+"
    )  # null: the team's
    name = models.CharField(max_length=61)
    description = models.TextField(default="", blank=True)
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    created_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["team", "project", "name"], name="template_name_in_place", nulls_distinct=False
            )
        ]

    @property
    def of_team(self) -> bool:
        return self.project_id is None

    @property
    def ordered_versions(self) -> list[RunTemplateVersion]:
        return sorted(self.versions.all(), key=lambda version: version.number)

    @property
    def newest(self) -> RunTemplateVersion:
        return self.ordered_versions[-1]

    @property
    def ref(self) -> str:
        return f"{self.name}@{self.newest.number}"


class RunTemplateVersion(models.Model):
    template = models.ForeignKey(RunTemplate, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    spec = models.JSONField()  # a part of a RunSpec; never changes
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    created_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["template", "number"], name="template_version_number")]


class Sweep(models.Model):
    """Runs of one spec with some of its fields varied."""

    id = models.CharField(primary_key=True, max_length=40, default=ids.sweep_id, editable=False)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="sweeps")
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    name = models.CharField(max_length=120)
    spec = models.JSONField()  # as it was given; each trial sets its own values into it
    plan = models.JSONField()  # method, parameters, samples, seed, objective, stop
    max_parallel = models.PositiveIntegerField()
    status = models.CharField(max_length=10)  # sweeps.SweepStatus
    message = models.TextField(default="", blank=True)
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [models.Index(fields=["status"])]

    @cached_property
    def parsed_plan(self) -> SweepPlan:
        return SweepPlan.model_validate(self.plan)


class SweepTrial(models.Model):
    sweep = models.ForeignKey(Sweep, on_delete=models.CASCADE, related_name="trials")
    number = models.PositiveIntegerField()
    values = models.JSONField()  # JSON pointer → value
    run = models.OneToOneField(Run, on_delete=models.CASCADE, null=True, related_name="trial")
    rests = models.BooleanField(default=False)  # the sweep paused its run, and will resume it
    skipped = models.CharField(max_length=400, default="", blank=True)  # why it never became a run

    class Meta:
        constraints = [models.UniqueConstraint(fields=["sweep", "number"], name="trial_number_in_sweep")]

    @property
    def state(self) -> str:
        """One of TRIAL_STATES."""
        if self.run is None:
            return "skipped" if self.skipped else "waiting"
        if not self.run.has_ended:
            return "running"
        ends = {RunStatus.SUCCEEDED: "succeeded", RunStatus.FAILED: "failed"}
        return ends.get(RunStatus(self.run.status), "stopped")

    @property
    def objective(self) -> float | None:
        """The newest value of the sweep's objective in the trial's run."""
        if self.run is None:
            return None
        value = self.run.metrics.get(self.sweep.parsed_plan.objective.metric)
        return float(value) if isinstance(value, int | float) else None
