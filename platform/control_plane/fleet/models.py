"""Pools, nodes, slots and the leases on them. Nothing here depends on what a run does with a slot."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from control_plane.accounts.models import Project, Team, User
from control_plane.core.infra import ids
from oolong.contracts.agent import JobIsolation
from oolong.contracts.lifecycle import AttemptStatus

DEFAULT_POOL = "default"
DRAINED = "DRAINED"  # status of a DRAINING node that no run needs any more
QUARANTINED = "QUARANTINED"  # status of a quarantined node
REVOKED = "REVOKED"  # status of a node whose credential was revoked


class Liveness(models.TextChoices):
    READY = "READY"
    UNRESPONSIVE = "UNRESPONSIVE"  # no heartbeat for longer than the lease
    LOST = "LOST"  # no heartbeat for so long that the node has ended its own jobs


class SchedulingState(models.TextChoices):
    ACTIVE = "ACTIVE"
    CORDONED = "CORDONED"  # no new jobs start
    DRAINING = "DRAINING"  # no new jobs start, and its runs move to other nodes


def liveness_choices() -> list[tuple[str, str]]:
    return Liveness.choices


def scheduling_state_choices() -> list[tuple[str, str]]:
    return SchedulingState.choices


class Pool(models.Model):
    """Nodes that certain teams may use. A node sees the data and secrets of its jobs, so every team that may use a pool
    must trust the people who enroll nodes into it."""

    name = models.CharField(primary_key=True, max_length=60)
    all_teams = models.BooleanField(default=False, db_default=False)  # False: only the teams bound to it
    # Whether uploaded loss functions, which run inside the trainer, are allowed.
    trainer_code = models.BooleanField(default=False, db_default=False)
    teams = models.ManyToManyField(Team, through="PoolTeam", related_name="pools")


class PoolTeam(models.Model):
    """The team may use the pool."""

    pool = models.ForeignKey(Pool, on_delete=models.CASCADE)
    team = models.ForeignKey(Team, on_delete=models.CASCADE)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["pool", "team"], name="team_bound_once")]


class SlotPrice(models.Model):
    """What an hour of a slot costs from now on. A lease keeps the price of the moment at which it was granted."""

    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="prices")
    device = models.CharField(max_length=16)  # cpu | cuda
    gpu_model = models.CharField(max_length=200, default="", blank=True)  # empty: models without a price
    per_hour = models.DecimalField(max_digits=12, decimal_places=4)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["pool", "device", "gpu_model"], name="price_of_slots")]


class PoolAdmin(models.Model):
    """The user manages the pool: enrolls, cordons, drains and revokes nodes, and sets quotas."""

    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="admins")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="pools_administered")
    appointed_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["pool", "user"], name="pool_admin_once")]


class Reservation(models.Model):
    """Slots of a pool that are reserved for a team from a start to an end (fleet.reservations)."""

    id = models.CharField(primary_key=True, max_length=40, default=ids.reservation_id, editable=False)
    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="reservations")
    team = models.ForeignKey(Team, on_delete=models.CASCADE)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, null=True)  # None: all of the team
    slots = models.PositiveIntegerField(default=0)  # on any nodes; 0: all slots of `nodes`
    nodes = models.JSONField(default=list)  # IDs
    device = models.CharField(max_length=16, default="", blank=True)  # of the slots; "": any
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField(db_index=True)
    reason = models.CharField(max_length=200, default="", blank=True)
    allocation = models.JSONField(default=dict)  # snapshot.Reservation.allocation
    created_by = models.CharField(max_length=150)  # username
    created_at = models.DateTimeField(auto_now_add=True)


class MaintenanceWindow(models.Model):
    """A time in which nodes are maintained: they are empty at its start (fleet.maintenance)."""

    id = models.CharField(primary_key=True, max_length=40, default=ids.maintenance_id, editable=False)
    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="maintenance_windows")
    nodes = models.JSONField(default=list)  # IDs; empty: every node of the pool
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField(db_index=True)
    reason = models.CharField(max_length=200)
    drained = models.JSONField(default=list)  # IDs of nodes that it has drained, each once
    created_by = models.CharField(max_length=150)  # username
    created_at = models.DateTimeField(auto_now_add=True)


class Node(models.Model):
    id = models.CharField(primary_key=True, max_length=40, default=ids.node_id, editable=False)
    # None for a revoked node, which is kept only for the history of its attempts.
    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="nodes", null=True)
    name = models.CharField(max_length=120)
    credential_sha256 = models.CharField(max_length=64, unique=True)
    hostname = models.CharField(max_length=255, default="", blank=True)
    agent_version = models.CharField(max_length=60, default="", blank=True)
    boot_id = models.CharField(max_length=80, default="", blank=True)
    cpu_count = models.PositiveIntegerField(default=0)
    memory_bytes = models.BigIntegerField(default=0)
    disk_free_bytes = models.BigIntegerField(default=0)
    liveness = models.CharField(max_length=16, choices=liveness_choices, default=Liveness.READY)
    intent = models.CharField(max_length=16, choices=scheduling_state_choices, default=SchedulingState.ACTIVE)
    drain_deadline = models.DateTimeField(
        null=True
    )  # of a DRAINING node: when runs that are left are stopped
    # The window that drains the node and ends the drain; None when a person has changed its state since.
    maintenance = models.ForeignKey(
        MaintenanceWindow, on_delete=models.SET_NULL, null=True, related_name="drained_nodes"
    )
    quarantined_at = models.DateTimeField(null=True)  # no new jobs start until an admin releases the node
    quarantine_reason = models.CharField(max_length=400, default="", db_default="", blank=True)
    quarantine_released_at = models.DateTimeField(null=True)  # earlier failures do not count again
    model_roots = models.JSONField(default=list)  # directories of models that it offers
    job_isolation = models.CharField(
        max_length=12, default="none", db_default="none"
    )  # contracts.JobIsolation
    job_isolation_reason = models.CharField(max_length=400, default="", db_default="", blank=True)
    # Where jobs on other nodes reach those of this one; "": they cannot.
    peer_address = models.CharField(max_length=45, default="", db_default="", blank=True)
    peer_network = models.CharField(
        max_length=60, default="", db_default="", blank=True
    )  # nodes of a pool with the same one reach each other
    provider = models.CharField(max_length=20, default="manual", db_default="manual")  # contracts.Provider
    provider_job = models.CharField(max_length=120, default="", db_default="", blank=True)
    partition = models.CharField(max_length=120, default="", db_default="", blank=True)
    account = models.CharField(max_length=120, default="", db_default="", blank=True)
    ends_at = models.DateTimeField(null=True)  # when the provider ends it (fleet.allocations)
    enrolled_at = models.DateTimeField(auto_now_add=True)
    last_seen_at = models.DateTimeField()
    desired_revision = models.BigIntegerField(
        default=0
    )  # incremented when the node's desired state may have changed
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
        """Whether new jobs can start on the node."""
        return (
            self.liveness == Liveness.READY
            and self.intent == SchedulingState.ACTIVE
            and self.quarantined_at is None
        )

    @property
    def isolates_jobs(self) -> bool:
        """Whether user code may run inside a trainer on the node."""
        return self.job_isolation in ISOLATED

    @property
    def status(self) -> str:
        """The status that people see. Liveness outranks the scheduling state; a drain is done when no run needs the
        node."""
        if self.is_revoked:
            return REVOKED
        if self.liveness != Liveness.READY:
            return self.liveness
        if self.intent == SchedulingState.DRAINING and not self.is_needed:
            return DRAINED
        if self.quarantined_at is not None and self.intent != SchedulingState.DRAINING:
            return QUARANTINED
        return Liveness.READY if self.intent == SchedulingState.ACTIVE else self.intent

    @property
    def is_needed(self) -> bool:
        """Whether a slot of the node is leased, or an attempt there has not ended: it may still upload a checkpoint."""
        leased = Lease.objects.filter(slot__node=self, released_at=None)
        return leased.exists() or self.attempts.exclude(status=AttemptStatus.ENDED).exists()


ISOLATED = frozenset({JobIsolation.UID.value, JobIsolation.USERNS.value})


class Slot(models.Model):
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="slots")
    name = models.CharField(max_length=80)  # "cpu-0", or the GPU's UUID
    device = models.CharField(max_length=16)
    model = models.CharField(max_length=200, default="", blank=True)
    memory_bytes = models.BigIntegerField(default=0)
    healthy = models.BooleanField(default=True)
    reason = models.CharField(max_length=400, default="", blank=True)
    present = models.BooleanField(default=True)  # False when the last inventory did not list it
    # The newest readings of its node; None: not measured.
    utilization = models.FloatField(null=True)  # 0 to 1
    memory_used_bytes = models.BigIntegerField(null=True)
    celsius = models.FloatField(null=True)
    # Processes of others: contracts.agent.SlotProcess.
    occupied_by = models.JSONField(default=list, db_default=[])

    class Meta:
        constraints = [models.UniqueConstraint(fields=["node", "name"], name="slot_name_on_node")]


class Lease(models.Model):
    """A holder's timed right to one slot. The partial unique index prevents leasing a slot twice."""

    id = models.CharField(primary_key=True, max_length=40, default=ids.lease_id, editable=False)
    slot = models.ForeignKey(Slot, on_delete=models.PROTECT, related_name="leases")
    team = models.ForeignKey(Team, on_delete=models.PROTECT)
    # None for leases that a version without project quotas granted during an upgrade.
    project = models.ForeignKey(Project, on_delete=models.SET_NULL, null=True, db_index=False)
    holder = models.CharField(max_length=40)  # attempt id
    epoch = models.PositiveIntegerField()
    job = models.CharField(max_length=40)  # job id
    job_name = models.CharField(max_length=40)
    run = models.CharField(max_length=40)  # for display
    run_name = models.CharField(max_length=120)
    granted_at = models.DateTimeField()
    expires_at = models.DateTimeField()  # renewed by each heartbeat of the node
    released_at = models.DateTimeField(null=True)
    price_per_hour = models.DecimalField(max_digits=12, decimal_places=4, null=True)  # null: had no price

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["slot"], condition=Q(released_at=None), name="one_open_lease_per_slot"
            )
        ]
        indexes = [
            models.Index(fields=["holder"]),
            models.Index(fields=["job"]),
            models.Index(fields=["released_at"], name="lease_released_at"),
        ]


class JoinToken(models.Model):
    sha256 = models.CharField(primary_key=True, max_length=64)
    pool = models.ForeignKey(Pool, on_delete=models.CASCADE)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True)
    node = models.ForeignKey(Node, on_delete=models.SET_NULL, null=True)


class Quota(models.Model):
    """A team's share of a pool; snapshot.TeamQuota says what it means."""

    team = models.ForeignKey(Team, on_delete=models.CASCADE)
    pool = models.ForeignKey(Pool, on_delete=models.CASCADE)
    nominal_slots = models.PositiveIntegerField(default=0, db_default=0)
    limit_slots = models.PositiveIntegerField(null=True)  # null: no limit
    lending_limit = models.PositiveIntegerField(null=True)  # null: all of the unused nominal slots

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "pool"], name="one_quota_per_team_and_pool")]


class ProjectQuota(models.Model):
    """A project's share of what its team may hold in a pool; snapshot.ProjectQuota says what it means."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE)
    pool = models.ForeignKey(Pool, on_delete=models.CASCADE)
    nominal_slots = models.PositiveIntegerField(default=0)
    limit_slots = models.PositiveIntegerField(null=True)  # null: no limit but the team's

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "pool"], name="one_quota_per_project_and_pool")
        ]


class Watch(models.Model):
    """When the liveness check last ran and when the web process was last alive, so that nodes are not blamed for our
    own outages."""

    name = models.CharField(primary_key=True, max_length=20, default="pool")
    swept_at = models.DateTimeField(null=True)
    receiver_at = models.DateTimeField(null=True)
    suspended_until = models.DateTimeField(null=True)
