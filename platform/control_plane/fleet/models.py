"""Nodes, their slots, and who holds them. Nothing here knows what a run does with a slot."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from control_plane.accounts.models import Team, User
from control_plane.core.infra import ids
from oolong.contracts.agent import JobIsolation

DEFAULT_POOL = "default"
DRAINED = "DRAINED"  # status of a node that is DRAINING and that nothing holds any more
REVOKED = "REVOKED"  # status of a node whose credential was revoked


class Liveness(models.TextChoices):
    READY = "READY"
    UNRESPONSIVE = "UNRESPONSIVE"  # silent for longer than the lease
    LOST = "LOST"  # silent for so long that it has ended its own jobs


class Intent(models.TextChoices):
    ACTIVE = "ACTIVE"
    CORDONED = "CORDONED"  # gets nothing new
    DRAINING = "DRAINING"  # gets nothing new, and its runs move away


def liveness_choices() -> list[tuple[str, str]]:
    return Liveness.choices


def intent_choices() -> list[tuple[str, str]]:
    return Intent.choices


class Pool(models.Model):
    """Nodes that certain teams may use. A node sees the data and secrets of the jobs placed on it, so the people who
    enroll nodes into a pool must be trusted by every team that may use it."""

    name = models.CharField(primary_key=True, max_length=60)
    all_teams = models.BooleanField(default=False, db_default=False)  # else only the teams bound to it
    # Runs may bring losses of their own, which run inside the trainer.
    trainer_code = models.BooleanField(default=False, db_default=False)
    teams = models.ManyToManyField(Team, through="PoolTeam", related_name="pools")


class PoolTeam(models.Model):
    """The team may use the pool."""

    pool = models.ForeignKey(Pool, on_delete=models.CASCADE)
    team = models.ForeignKey(Team, on_delete=models.CASCADE)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["pool", "team"], name="team_bound_once")]


class PoolAdmin(models.Model):
    """The user manages the pool: enrolls, cordons, drains and revokes its nodes, and sets quotas."""

    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="admins")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="pools_administered")
    appointed_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["pool", "user"], name="pool_admin_once")]


class Node(models.Model):
    id = models.CharField(primary_key=True, max_length=40, default=ids.node_id, editable=False)
    # None once its credential was revoked: it belongs nowhere, and stays for the history of its attempts alone.
    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="nodes", null=True)
    name = models.CharField(max_length=120)
    credential_sha256 = models.CharField(max_length=64, unique=True)
    hostname = models.CharField(max_length=255, default="", blank=True)
    agent_version = models.CharField(max_length=60, default="", blank=True)
    protocol = models.PositiveSmallIntegerField(
        default=1, db_default=1
    )  # contracts.agent.PROTOCOL of its agent
    boot_id = models.CharField(max_length=80, default="", blank=True)
    cpu_count = models.PositiveIntegerField(default=0)
    memory_bytes = models.BigIntegerField(default=0)
    disk_free_bytes = models.BigIntegerField(default=0)
    liveness = models.CharField(max_length=16, choices=liveness_choices, default=Liveness.READY)
    intent = models.CharField(max_length=16, choices=intent_choices, default=Intent.ACTIVE)
    model_roots = models.JSONField(null=True)  # directories of models that it offers; null: not said
    job_isolation = models.CharField(
        max_length=12, default="none", db_default="none"
    )  # contracts.JobIsolation
    job_isolation_reason = models.CharField(max_length=400, default="", db_default="", blank=True)
    enrolled_at = models.DateTimeField(auto_now_add=True)
    last_seen_at = models.DateTimeField()
    desired_revision = models.BigIntegerField(
        default=0
    )  # grows whenever the node's desired state may have changed
    next_port = models.PositiveIntegerField(default=0)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(pool__isnull=False) | Q(liveness=Liveness.LOST), name="revoked_node_is_lost"
            )
        ]

    @property
    def is_revoked(self) -> bool:
        return self.pool_id is None

    @property
    def takes_work(self) -> bool:
        """It is heard of, and whoever runs it wants something new to go there."""
        return self.liveness == Liveness.READY and self.intent == Intent.ACTIVE

    @property
    def isolates_jobs(self) -> bool:
        """Whether code of a user may run inside a trainer there."""
        return self.job_isolation in ISOLATED

    @property
    def status(self) -> str:
        """One word for people: silence outranks intent, and a drain is done once nothing holds a slot."""
        if self.is_revoked:
            return REVOKED
        if self.liveness != Liveness.READY:
            return self.liveness
        if self.intent == Intent.DRAINING and not self.is_held:
            return DRAINED
        return Liveness.READY if self.intent == Intent.ACTIVE else self.intent

    @property
    def is_held(self) -> bool:
        """Whether any of its slots is leased."""
        return Lease.objects.filter(slot__node=self, released_at=None).exists()


ISOLATED = frozenset({JobIsolation.UID.value, JobIsolation.USERNS.value})


class Slot(models.Model):
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="slots")
    name = models.CharField(max_length=80)  # "cpu-0", or the GPU's UUID
    device = models.CharField(max_length=16)
    model = models.CharField(max_length=200, default="", blank=True)
    memory_bytes = models.BigIntegerField(default=0)
    healthy = models.BooleanField(default=True)
    reason = models.CharField(max_length=400, default="", blank=True)
    present = models.BooleanField(default=True)  # false when the last inventory did not name it

    class Meta:
        constraints = [models.UniqueConstraint(fields=["node", "name"], name="slot_name_on_node")]


class Lease(models.Model):
    """A holder's timed right to one slot. The partial unique index is what makes selling a slot twice impossible."""

    id = models.CharField(primary_key=True, max_length=40, default=ids.lease_id, editable=False)
    slot = models.ForeignKey(Slot, on_delete=models.PROTECT, related_name="leases")
    team = models.ForeignKey(Team, on_delete=models.PROTECT)
    holder = models.CharField(max_length=40)  # attempt id
    epoch = models.PositiveIntegerField()
    job = models.CharField(max_length=40)  # job id
    job_name = models.CharField(max_length=40)
    run = models.CharField(max_length=40)  # for display
    run_name = models.CharField(max_length=120)
    granted_at = models.DateTimeField()
    expires_at = models.DateTimeField()  # renewed by each heartbeat of the node
    released_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["slot"], condition=Q(released_at=None), name="one_open_lease_per_slot"
            )
        ]
        indexes = [models.Index(fields=["holder"]), models.Index(fields=["job"])]


class JoinToken(models.Model):
    sha256 = models.CharField(primary_key=True, max_length=64)
    pool = models.ForeignKey(Pool, on_delete=models.CASCADE)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True)
    node = models.ForeignKey(Node, on_delete=models.SET_NULL, null=True)


class Quota(models.Model):
    team = models.ForeignKey(Team, on_delete=models.CASCADE)
    pool = models.ForeignKey(Pool, on_delete=models.CASCADE)
    limit_slots = models.PositiveIntegerField(null=True)  # null: no limit

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "pool"], name="one_quota_per_team_and_pool")]


class Watch(models.Model):
    """When the sweep last ran and when the web process last lived: silence that was ours must not blame a node."""

    name = models.CharField(primary_key=True, max_length=20, default="pool")
    swept_at = models.DateTimeField(null=True)
    receiver_at = models.DateTimeField(null=True)
    suspended_until = models.DateTimeField(null=True)
