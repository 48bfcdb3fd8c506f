"""What runs read and leave behind. Bytes live in the blob store under their SHA-256; rows describe them."""

from __future__ import annotations

from typing import Any, cast

from django.db import models

from control_plane.accounts.models import Project, User
from control_plane.assets.storage import multipart, store
from control_plane.core.infra import ids


class Upload(models.Model):
    id = models.CharField(primary_key=True, max_length=40, default=ids.upload_id, editable=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE)
    created_by = models.ForeignKey(User, on_delete=models.PROTECT)
    filename = models.CharField(max_length=255)
    purpose = models.CharField(max_length=20)  # dataset | model
    bytes = models.BigIntegerField()
    sha256 = models.CharField(max_length=64)
    created_at = models.DateTimeField(auto_now_add=True)


class UploadSession(models.Model):
    """An upload in parts. Which parts are here is read from the disk, not from a row."""

    id = models.CharField(primary_key=True, max_length=40, default=ids.upload_session_id, editable=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE)
    created_by = models.ForeignKey(User, on_delete=models.PROTECT)
    filename = models.CharField(max_length=255)
    purpose = models.CharField(max_length=20)  # dataset | model
    bytes = models.BigIntegerField()
    sha256 = models.CharField(max_length=64, default="", blank=True)  # announced; "" when not
    fingerprint = models.CharField(
        max_length=200, default="", blank=True
    )  # by which its client finds it again
    upload = models.ForeignKey(Upload, on_delete=models.CASCADE, null=True)  # what became of it
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes = [models.Index(fields=["project", "sha256"])]

    @property
    def part_bytes(self) -> int:
        return multipart.size_for(self.bytes)

    @property
    def part_count(self) -> int:
        return multipart.count(self.bytes)

    @property
    def received_parts(self) -> list[int]:
        return [] if self.upload else store.received_parts(self.pk)


class Dataset(models.Model):
    id = models.CharField(primary_key=True, max_length=40, default=ids.dataset_id, editable=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="datasets")
    created_by = models.ForeignKey(User, on_delete=models.PROTECT)
    name = models.CharField(max_length=120)
    description = models.TextField(default="", blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "name"], name="dataset_name_in_project")]

    @property
    def newest_versions(self) -> list[DatasetVersion]:
        """All versions, newest first."""
        return sorted(self.versions.all(), key=lambda version: version.number, reverse=True)

    @property
    def latest_version(self) -> DatasetVersion | None:
        return next(iter(self.newest_versions), None)

    @property
    def alias_numbers(self) -> dict[str, int]:
        """Name → number of its version."""
        return {alias.name: alias.version.number for alias in self.aliases.all()}


class DatasetVersion(models.Model):
    """Immutable rows: a JSONL file of contracts.attempt.CanonicalRow."""

    id = models.CharField(primary_key=True, max_length=40, default=ids.dataset_version_id, editable=False)
    dataset = models.ForeignKey(Dataset, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    sha256 = models.CharField(max_length=64)  # of the canonical file
    bytes = models.BigIntegerField()
    rows = models.PositiveIntegerField()
    splits = models.JSONField()  # {"train": 20000, ...}
    with_completion = models.JSONField(default=dict)  # rows of each split that carry a demonstration
    # Rows of each split that carry a chosen and a rejected completion.
    with_pair = models.JSONField(default=dict, db_default=models.Value({}, models.JSONField()))
    sources = models.JSONField(default=dict)  # {"train": {"gsm8k": 7000, ...}}; empty without a source column
    mapping = models.JSONField()
    offsets = models.JSONField()  # byte offset of every OFFSET_STRIDE-th row
    derived = models.JSONField(null=True)  # {"from": ...} of new splits, {"merged": [...]}; null: uploaded
    created_by = models.ForeignKey(User, on_delete=models.PROTECT)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["dataset", "number"], name="version_number_in_dataset"),
            models.UniqueConstraint(fields=["dataset", "sha256"], name="same_rows_same_version"),
        ]

    @property
    def ref(self) -> str:
        return f"{self.dataset.name}@{self.number}"

    @property
    def has_answers(self) -> bool:
        """Whether its rows have an expected answer. Those of preference pairs may have none."""
        return self.mapping.get("answer_column") is not None

    def sampled_rows(self, split: str, weights: dict[str, float]) -> int | None:
        """Rows of the split that a run with these weights samples; None without such a split."""
        if not weights:
            return cast("int | None", self.splits.get(split))
        return sum(rows for name, rows in self.sources.get(split, {}).items() if weights.get(name, 0) > 0)


class DatasetAlias(models.Model):
    """A name that means one version of a dataset at a time: `name@gold`."""

    dataset = models.ForeignKey(Dataset, on_delete=models.CASCADE, related_name="aliases")
    name = models.CharField(max_length=60)
    version = models.ForeignKey(DatasetVersion, on_delete=models.PROTECT, related_name="aliases")
    updated_by = models.ForeignKey(User, on_delete=models.PROTECT)
    updated_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["dataset", "name"], name="alias_name_in_dataset")]

    @property
    def ref(self) -> str:
        return f"{self.dataset.name}@{self.version.number}"


class MeasurementState(models.TextChoices):
    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    DONE = "DONE"
    FAILED = "FAILED"


class BackgroundJob(models.Model):
    """What `background.runner` needs to know of a job: where its process runs, since when, and in which try."""

    state = models.CharField(max_length=8, default="QUEUED")
    host = models.CharField(max_length=255, default="", blank=True)  # where its process runs
    pid = models.PositiveIntegerField(default=0)
    tries = models.PositiveIntegerField(default=0, db_default=0)  # machines or nodes that took it
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True)
    touched_at = models.DateTimeField(null=True)  # when its machine or node last reported that it is alive
    ended_at = models.DateTimeField(null=True)

    class Meta:
        abstract = True


class DatasetMeasurement(BackgroundJob):
    """Token lengths of a version under the tokenizer of a base model, counted by a process of its own."""

    id = models.CharField(primary_key=True, max_length=40, default=ids.measurement_id, editable=False)
    version = models.ForeignKey(DatasetVersion, on_delete=models.CASCADE, related_name="measurements")
    model = models.ForeignKey("BaseModel", on_delete=models.CASCADE)
    created_by = models.ForeignKey(User, on_delete=models.PROTECT)
    message = models.TextField(default="", blank=True)
    bytes_seen = models.BigIntegerField(default=0)  # of the version's canonical rows
    result = models.JSONField(default=dict)  # measuring.job.Measured

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["version", "model"], name="measured_once_per_tokenizer")
        ]
        indexes = [models.Index(fields=["state"])]

    @property
    def figures(self) -> dict[str, Any]:
        """The result, or zeros until there is one."""
        return {
            "vocabulary": 0, "duplicates": 0, "conflicts": 0, "without_completion": 0, "prompts": {}, "completions": {},
            "columns": [],
            **self.result,
        }  # fmt: skip


class ValidationState(models.TextChoices):
    QUEUED = "QUEUED"
    RUNNING = "RUNNING"  # a process of its own reads the file
    VALID = "VALID"
    INVALID = "INVALID"  # the file or rows of it have faults
    FAILED = "FAILED"  # no result: the process died, or took too long


class DatasetValidation(BackgroundJob):
    """The check of an uploaded file: what it holds, and every fault. A version is made of a VALID one."""

    id = models.CharField(primary_key=True, max_length=40, default=ids.validation_id, editable=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE)
    created_by = models.ForeignKey(User, on_delete=models.PROTECT)
    upload = models.ForeignKey(Upload, on_delete=models.CASCADE)
    mapping = models.JSONField(null=True)  # null: only the columns are looked at
    format = models.CharField(max_length=20)
    compression = models.CharField(max_length=10, default="", blank=True)
    config = models.CharField(max_length=200, default="", blank=True)  # of a dataset directory with several
    stop_after = models.PositiveIntegerField(null=True)
    message = models.TextField(default="", blank=True)
    bytes_seen = models.BigIntegerField(
        default=0
    )  # of the upload, while it is RUNNING; all of them at its end
    rows_seen = models.BigIntegerField(default=0)
    result = models.JSONField(default=dict)  # parsing.job.ParseResult
    canonical_sha256 = models.CharField(max_length=64, default="", blank=True)
    report_sha256 = models.CharField(max_length=64, default="", blank=True)

    class Meta:
        indexes = [models.Index(fields=["state"])]

    @property
    def findings(self) -> dict[str, Any]:
        """The result, or empty findings until there is one."""
        empty: dict[str, Any] = {
            "isolation": "", "files": [], "rows": 0, "faults": 0, "faults_by_code": {}, "faults_cut": False,
            "errors": [], "columns": [], "sample": [], "rendered": [], "splits": {}, "duplicates": 0, "conflicts": 0,
            "first_conflicts": [], "leaks": {}, "prompt_characters": {}, "delimiter": "",
        }  # fmt: skip
        return {**empty, **self.result}


class FetchUnderWay(models.Model):
    """An import by URL that waits for a stranger's answer. One past its time was killed, and counts no more."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE)
    until = models.DateTimeField()


class ModelState(models.TextChoices):
    VALIDATING = "VALIDATING"
    READY = "READY"
    INVALID = "INVALID"
    DUPLICATE = "DUPLICATE"  # of `same_as`: the same files under the same name


class BaseModel(models.Model):
    """A Hugging Face directory: a deterministic tar in the store, or a path that nodes offer. Immutable once READY."""

    id = models.CharField(primary_key=True, max_length=40, default=ids.base_model_id, editable=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="base_models")
    created_by = models.ForeignKey(User, on_delete=models.PROTECT)
    name = models.CharField(max_length=120)
    number = models.PositiveIntegerField(null=True)  # of the version, name@2, once READY
    source = models.CharField(max_length=10)  # upload | path | hub
    origin = models.CharField(
        max_length=1000, default="", blank=True
    )  # of a hub: its address, model and commit
    path = models.CharField(max_length=1000, default="", blank=True)
    state = models.CharField(max_length=10, default=ModelState.READY, db_default=ModelState.READY.value)
    message = models.TextField(default="", db_default="", blank=True)  # why INVALID
    report = models.JSONField(null=True)  # contracts.model_report.ModelReport, without its config
    manifest_sha256 = models.CharField(
        max_length=64, default="", db_default="", blank=True
    )  # of its files' names and hashes
    same_as = models.ForeignKey("self", on_delete=models.CASCADE, null=True)
    sha256 = models.CharField(max_length=64, default="", blank=True)  # of the tar
    bytes = models.BigIntegerField(default=0)
    family = models.CharField(max_length=60, default="", blank=True)  # config.json's model_type
    parameters = models.BigIntegerField(null=True)
    config = models.JSONField(default=dict)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "name", "number"], name="model_version_once")
        ]

    @property
    def ref(self) -> str:
        return f"{self.name}@{self.number}" if self.number is not None else ""

    @property
    def findings(self) -> dict[str, Any]:
        """The report of the check, or empty findings until there is one."""
        empty: dict[str, Any] = {
            "faults": [],
            "files": [],
            "tensors": None,
            "dtypes": {},
            "tokens": None,
            "prompt": "",
        }
        return {**empty, **(self.report or {})}


class CheckState(models.TextChoices):
    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    ENDED = "ENDED"


class ModelCheck(BackgroundJob):
    """The work of checking one model: of an archive by a process here, of a path by a node that offers it."""

    id = models.CharField(primary_key=True, max_length=40, default=ids.model_check_id, editable=False)
    model = models.OneToOneField(BaseModel, on_delete=models.CASCADE, related_name="model_check")
    archive_sha256 = models.CharField(max_length=64, default="", blank=True)  # "" of a path
    path = models.CharField(max_length=1000, default="", blank=True)
    node_id = models.CharField(max_length=40, default="", blank=True)

    class Meta:
        indexes = [models.Index(fields=["state"])]


class ImportState(models.TextChoices):
    QUEUED = "QUEUED"
    RUNNING = "RUNNING"  # a node fetches it, or sends it on
    CHECKING = "CHECKING"  # it is here whole; its model is VALIDATING
    DONE = "DONE"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class ModelImport(models.Model):
    """A model that a node fetches from a hub. Catalog knows nodes by id only."""

    id = models.CharField(primary_key=True, max_length=40, default=ids.model_import_id, editable=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE)
    created_by = models.ForeignKey(User, on_delete=models.PROTECT)
    name = models.CharField(max_length=120)  # of the base model that it becomes
    hub = models.CharField(max_length=500)  # its address when this was asked
    hub_model = models.CharField(max_length=200)  # owner/name
    revision = models.CharField(max_length=200)  # as requested: branch, tag or commit
    commit = models.CharField(max_length=64, default="", blank=True)  # what the revision was
    secret = models.CharField(max_length=64, default="", blank=True)  # name of the one with the token
    state = models.CharField(max_length=9, default=ImportState.QUEUED)
    message = models.TextField(default="", blank=True)
    tries = models.PositiveIntegerField(default=0)  # nodes that took it
    node_id = models.CharField(max_length=40, default="", blank=True)
    bytes_done = models.BigIntegerField(default=0)
    bytes_total = models.BigIntegerField(default=0)
    tar_sha256 = models.CharField(max_length=64, default="", blank=True)
    tar_bytes = models.BigIntegerField(default=0)
    model = models.ForeignKey(BaseModel, on_delete=models.SET_NULL, null=True)  # what became of it
    created_at = models.DateTimeField(auto_now_add=True)
    touched_at = models.DateTimeField(null=True)  # when its node last spoke of it
    ended_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [models.Index(fields=["state"])]

    @property
    def imported_model(self) -> BaseModel | None:
        return self.model if self.state == ImportState.DONE else None


class Function(models.Model):
    """Source of users under a name: a reward, a workflow or a loss."""

    id = models.CharField(primary_key=True, max_length=40, default=ids.function_id, editable=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="functions")
    created_by = models.ForeignKey(User, on_delete=models.PROTECT)
    name = models.CharField(max_length=120)
    kind = models.CharField(max_length=20)  # contracts.user_code.SourceKind
    description = models.TextField(default="", blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    archived_at = models.DateTimeField(null=True)  # hidden from lists since; specs that name it still run

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "name"], name="function_name_in_project")]

    @property
    def newest_versions(self) -> list[FunctionVersion]:
        """All versions, newest first."""
        return sorted(self.versions.all(), key=lambda version: version.number, reverse=True)


class FunctionVersion(models.Model):
    """One immutable Python file. It is parsed here and run only on nodes."""

    id = models.CharField(primary_key=True, max_length=40, default=ids.function_version_id, editable=False)
    function = models.ForeignKey(Function, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    sha256 = models.CharField(max_length=64)
    bytes = models.PositiveIntegerField()
    options = models.JSONField(default=list)  # names that a RunSpec's options may have
    any_option = models.BooleanField(default=False)
    created_by = models.ForeignKey(User, on_delete=models.PROTECT)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["function", "number"], name="version_number_in_function"),
            models.UniqueConstraint(fields=["function", "sha256"], name="same_source_same_version"),
        ]

    @property
    def ref(self) -> str:
        return f"{self.function.name}@{self.number}"
