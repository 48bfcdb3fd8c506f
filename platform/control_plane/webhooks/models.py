"""Webhooks, their events, and each delivery with its attempts."""

from __future__ import annotations

from datetime import datetime

from django.db import models

from control_plane.accounts.models import Project, User
from control_plane.core.infra import ids


class Webhook(models.Model):
    id = models.CharField(primary_key=True, max_length=40, default=ids.webhook_id, editable=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="webhooks")
    created_by = models.ForeignKey(User, on_delete=models.PROTECT)
    name = models.CharField(max_length=120)
    url = models.CharField(max_length=2000)
    events = models.JSONField(default=list)  # patterns of event_types: ["run.*", "alert.fired"]
    # Both sealed (common.sealing): the one that signs, and for a while after a rotation the one before it.
    secret = models.BinaryField()
    secret_key_id = models.CharField(max_length=40)
    previous_secret = models.BinaryField(null=True)
    previous_key_id = models.CharField(max_length=40, default="", blank=True)
    previous_until = models.DateTimeField(null=True)
    enabled = models.BooleanField(default=True)
    disabled_reason = models.CharField(max_length=400, default="", blank=True)
    failing_since = models.DateTimeField(null=True)  # since when every try has failed
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "name"], name="webhook_name_in_project")]


class WebhookEvent(models.Model):
    """Something that happened, stored in the same transaction, and only if a webhook subscribes to it."""

    id = models.CharField(primary_key=True, max_length=40, default=ids.webhook_event_id, editable=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+")
    type = models.CharField(max_length=60)
    data = models.JSONField()
    at = models.DateTimeField()


class DeliveryState(models.TextChoices):
    PENDING = "PENDING"
    DELIVERED = "DELIVERED"  # answered with a 2xx
    FAILED = "FAILED"  # given up


class Delivery(models.Model):
    id = models.CharField(primary_key=True, max_length=40, default=ids.webhook_delivery_id, editable=False)
    webhook = models.ForeignKey(Webhook, on_delete=models.CASCADE, related_name="deliveries")
    event = models.ForeignKey(WebhookEvent, on_delete=models.CASCADE, related_name="deliveries")
    state = models.CharField(max_length=10, default=DeliveryState.PENDING)
    tries = models.PositiveIntegerField(default=0)
    next_at = models.DateTimeField()  # of a pending one
    claim = models.CharField(max_length=40, default="", blank=True)  # who sends it now; its answer counts
    claimed_until = models.DateTimeField(null=True)
    message = models.CharField(max_length=400, default="", blank=True)  # why it failed
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    @property
    def due_at(self) -> datetime | None:
        return self.next_at if self.state == DeliveryState.PENDING else None

    class Meta:
        indexes = [
            models.Index(
                fields=["next_at"],
                condition=models.Q(state=DeliveryState.PENDING),
                name="webhook_delivery_due",
            )
        ]


class DeliveryTry(models.Model):
    delivery = models.ForeignKey(Delivery, on_delete=models.CASCADE, related_name="log")
    number = models.PositiveIntegerField()
    at = models.DateTimeField()
    status = models.PositiveIntegerField(null=True)  # null: there was no answer
    milliseconds = models.PositiveIntegerField()
    error = models.CharField(max_length=400, default="", blank=True)
    excerpt = models.TextField(default="", blank=True)  # the beginning of the answer

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["delivery", "number"], name="one_webhook_try_per_number")
        ]
