from __future__ import annotations

from django.db import models


class IdempotencyKey(models.Model):
    """The answer that a POST with this Idempotency-Key got, so that a repeat gets the same one."""

    caller = models.CharField(max_length=64)  # user id
    key = models.CharField(max_length=255)
    request_sha256 = models.CharField(max_length=64)
    status = models.PositiveSmallIntegerField(null=True)  # null while the first request is in flight
    body = models.JSONField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["caller", "key"], name="one_answer_per_idempotency_key")
        ]
        indexes = [models.Index(fields=["created_at"])]


class LiveTopic(models.Model):
    """The last number given out on a topic. Its row lock is what makes `seq` gapless and in commit order."""

    topic = models.CharField(max_length=200, primary_key=True)
    seq = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.topic} at {self.seq}"


class StreamFrame(models.Model):
    """One frame of the live stream, kept for replay. Written only by `live.publish`."""

    pk = models.CompositePrimaryKey("topic", "seq")
    topic = models.CharField(max_length=200)
    seq = models.BigIntegerField()
    type = models.CharField(max_length=20)
    # A newer frame with the same key says all that an older one said; "" where every frame counts.
    replaces = models.CharField(max_length=200, default="")
    at = models.DateTimeField()
    data = models.TextField()  # JSON as text: it is only ever passed on, and text may hold what jsonb refuses

    def __str__(self) -> str:
        return f"{self.topic} {self.seq} {self.type}"


class Tick(models.Model):
    """How often a tick ran and how long it took, over all workers. Written by `locks.single_instance`."""

    name = models.CharField(max_length=60, primary_key=True)
    count = models.BigIntegerField(default=0)  # that ran to their end
    failures = models.BigIntegerField(default=0)
    seconds = models.FloatField(default=0.0)  # of all together
    last_seconds = models.FloatField(default=0.0)
    last_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.name}, {self.count} times"
