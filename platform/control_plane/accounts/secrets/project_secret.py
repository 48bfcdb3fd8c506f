from __future__ import annotations

from django.db import models

from control_plane.core.infra import ids


class ProjectSecret(models.Model):
    """A value that a project's jobs may be given and that nobody can read back. Kept encrypted (`sealing`)."""

    id = models.CharField(primary_key=True, max_length=40, default=ids.secret_id, editable=False)
    project = models.ForeignKey("accounts.Project", on_delete=models.CASCADE, related_name="secrets")
    name = models.CharField(max_length=64)
    sealed = models.BinaryField()
    key_id = models.CharField(max_length=16)  # of the server's key that it is sealed with
    hosts = models.JSONField(default=list)  # where an import by URL may send it; nowhere when empty
    jobs = models.JSONField(
        default=list, db_default=[]
    )  # kinds of jobs that a run may give it to; none when empty
    fingerprint = models.CharField(max_length=8)  # keyed (`sealing.fingerprint`); empty: not known
    created_by = models.ForeignKey("accounts.User", on_delete=models.PROTECT)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "name"], name="one_secret_per_name")]
