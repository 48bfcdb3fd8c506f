"""Checkpoints of runs, the aliases that name them, promotion gates, and retention."""

from __future__ import annotations

from django.db import models

from control_plane.accounts.models import Project, User
from control_plane.assets.models import BaseModel
from control_plane.core.infra import ids


class CheckpointState(models.TextChoices):
    LOCAL = "LOCAL"  # committed on its node
    STORED = "STORED"  # in the blob store: serves recovery elsewhere and download
    DELETED = "DELETED"  # its bytes are gone; the row and its place in the lineage stay


class CheckpointKind(models.TextChoices):
    TRAINING = "training"  # a training state: its run resumes from it, and other runs start with its weights
    WEIGHTS = "weights"  # of a warm start: runs begin with it, and none continues from it


class CheckpointContent(models.TextChoices):
    MODEL = "model"  # all weights
    ADAPTER = "adapter"  # a LoRA adapter for the weights that its run started from


def checkpoint_content_choices() -> list[tuple[str, str]]:
    return CheckpointContent.choices


def checkpoint_kind_choices() -> list[tuple[str, str]]:
    return CheckpointKind.choices


def checkpoint_state_choices() -> list[tuple[str, str]]:
    return CheckpointState.choices


class Checkpoint(models.Model):
    """A committed checkpoint of a run. It knows its run by id only: runs refer to checkpoints."""

    id = models.CharField(primary_key=True, max_length=40, default=ids.checkpoint_id, editable=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="checkpoints")
    run_id = models.CharField(max_length=40, db_index=True)
    run_name = models.CharField(max_length=120)
    attempt_id = models.CharField(max_length=40)
    attempt_number = models.PositiveIntegerField()
    node_id = models.CharField(max_length=40)
    step = models.PositiveIntegerField()
    kind = models.CharField(
        max_length=16,
        choices=checkpoint_kind_choices,
        default=CheckpointKind.TRAINING,
        db_default=CheckpointKind.TRAINING,
    )
    content = models.CharField(
        max_length=8,
        choices=checkpoint_content_choices,
        default=CheckpointContent.MODEL,
        db_default=CheckpointContent.MODEL,
    )
    # Of an adapter: the checkpoint that its run started from, if it was one, and the base model below all adapters,
    # if there is one.
    base_checkpoint = models.ForeignKey("self", on_delete=models.PROTECT, null=True, related_name="adapters")
    base_model = models.ForeignKey(BaseModel, on_delete=models.PROTECT, null=True, related_name="+")
    final = models.BooleanField(default=False)
    manifest_sha256 = models.CharField(max_length=64)
    tar_sha256 = models.CharField(max_length=64, default="", blank=True)
    bytes = models.BigIntegerField()  # of the directory while LOCAL, of the tar once STORED
    state = models.CharField(max_length=8, choices=checkpoint_state_choices, default=CheckpointState.LOCAL)
    metrics = models.JSONField(default=dict)
    parent = models.ForeignKey("self", on_delete=models.SET_NULL, null=True)
    pinned = models.BooleanField(default=False)  # never freed by a policy
    created_at = models.DateTimeField()
    stored_at = models.DateTimeField(null=True)
    deleted_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["attempt_id", "manifest_sha256"], name="checkpoint_once_per_attempt"
            )
        ]

    @property
    def run(self) -> dict[str, str]:
        return {"id": self.run_id, "name": self.run_name}

    @property
    def base(self) -> dict[str, str] | None:
        """What an adapter is for."""
        if self.base_checkpoint is not None:
            one = self.base_checkpoint
            name, sha256 = f"{one.run_name} step {one.step}", one.manifest_sha256
            return {"kind": "checkpoint", "id": one.pk, "name": name, "sha256": sha256}
        if self.base_model is not None:
            return {
                "kind": "base_model",
                "name": self.base_model.name,
                **base_model_identity(self.base_model),
            }
        return None

    @property
    def alias_names(self) -> list[str]:
        return sorted(alias.name for alias in self.aliases.all())


def base_model_identity(model: BaseModel) -> dict[str, str]:
    """The id, and the hash of its files' names and hashes, or of its archive where that is all that is known."""
    return {"id": model.pk, "sha256": model.manifest_sha256 or model.sha256}


class CheckpointAlias(models.Model):
    """A name that means one checkpoint at a time: best, prod."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="checkpoint_aliases")
    name = models.CharField(max_length=60)
    checkpoint = models.ForeignKey(Checkpoint, on_delete=models.PROTECT, related_name="aliases")
    protected = models.BooleanField(default=False)  # moved only with checkpoints:admin
    evidence = models.JSONField(null=True)  # how it passed the alias's gate when it was moved here
    updated_by = models.ForeignKey(User, on_delete=models.PROTECT)
    updated_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "name"], name="alias_name_in_project")]


class AliasGate(models.Model):
    """What a checkpoint must pass before the alias may mean it, unless a role moves it."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="alias_gates")
    alias = models.CharField(max_length=60)
    spec = (
        models.JSONField()
    )  # of the eval run, resolved: dataset version and reward are pinned; without its model
    assertions = models.JSONField()  # ["eval/accuracy >= 0.8"]
    updated_by = models.ForeignKey(User, on_delete=models.PROTECT)
    updated_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "alias"], name="one_gate_per_alias")]


class RetentionPolicy(models.Model):
    """Which checkpoints a project keeps; without a row, all."""

    project = models.OneToOneField(Project, on_delete=models.CASCADE, related_name="retention_policy")
    rules = models.JSONField()  # of retention.Policy
    automatic = models.BooleanField(default=False)  # applied by the clean-up, not only when asked


class CheckpointUpload(models.Model):
    """An upload of a checkpoint's tar in parts. Which parts are here is read from the disk, not from a row."""

    id = models.CharField(primary_key=True, max_length=40, default=ids.upload_id, editable=False)
    checkpoint = models.ForeignKey(Checkpoint, on_delete=models.CASCADE, related_name="uploads")
    node_id = models.CharField(max_length=40)
    tar_sha256 = models.CharField(max_length=64)
    bytes = models.BigIntegerField()
    epoch = models.PositiveIntegerField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["checkpoint", "tar_sha256"], name="one_upload_per_checkpoint_tar")
        ]


def model_path_of(model: BaseModel | None, start: Checkpoint | None) -> str:
    """The directory on nodes of a run's base model, or of that of the checkpoint it starts from; "" for one in the
    store."""
    if model is None and start is not None:
        model = start.base_model
    return model.path if model is not None else ""
