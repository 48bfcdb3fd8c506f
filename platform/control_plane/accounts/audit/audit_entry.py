from __future__ import annotations

from django.db import models


class AuditEntry(models.Model):
    """Who did what to what, from where. Rows are only ever added: triggers of the database refuse the rest.

    The entries of a project are a chain (`audit.seal`); those of no project are one too. There are no foreign
    keys: an entry outlives what it speaks of.
    """

    at = models.DateTimeField()
    action = models.CharField(max_length=80)  # run.create, login.failed
    actor_kind = models.CharField(max_length=20)
    actor_id = models.CharField(max_length=40)
    actor_name = models.CharField(max_length=120)
    token_id = models.CharField(max_length=40)
    address = models.CharField(max_length=64)
    request_id = models.CharField(max_length=64)
    project = models.CharField(max_length=40)  # "" for what belongs to the installation
    target_kind = models.CharField(max_length=40)
    target_id = models.CharField(max_length=200)
    target_name = models.CharField(max_length=200)
    message = models.TextField()
    data = models.JSONField(default=dict)
    number = models.BigIntegerField(null=True)  # place in the project's chain; null until sealed
    sha256 = models.CharField(max_length=64, default="")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "number"], name="one_audit_chain_per_project")
        ]
        indexes = [
            models.Index(fields=["project", "id"]),
            models.Index(fields=["project", "actor_id", "id"]),
            models.Index(fields=["id"], condition=models.Q(number=None), name="audit_not_sealed"),
        ]

    @property
    def entry_id(self) -> str:
        return f"aud_{self.pk:012d}"

    @property
    def project_event_id(self) -> str:
        return f"pevt_{self.pk:012d}"

    @property
    def project_event_kind(self) -> str:
        return self.action.removeprefix("project.")
