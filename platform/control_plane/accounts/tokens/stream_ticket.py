from __future__ import annotations

from django.db import models


class StreamTicket(models.Model):
    """A way into one stream for a client that can send no header: good once, for a minute. Kept as SHA-256."""

    sha256 = models.CharField(primary_key=True, max_length=64)
    user = models.ForeignKey("accounts.User", on_delete=models.CASCADE)
    project = models.ForeignKey("accounts.Project", on_delete=models.CASCADE)
    token = models.ForeignKey(
        "accounts.ApiToken", null=True, on_delete=models.CASCADE
    )  # it was asked for with
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True)
