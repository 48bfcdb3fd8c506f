"""All reads of pools and nodes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Count, F, Prefetch, Q, Sum, Value
from django.db.models.functions import Coalesce, Extract, Power

from control_plane.accounts.identity.caller import Caller
from control_plane.accounts.models import Project, Team
from control_plane.accounts.tokens.token_hashing import NODE_PREFIX, digest
from control_plane.fleet import allocations, maintenance, snapshot
from control_plane.fleet.access import manage_denied_reason, managed_pools, pools_of, teams_of, visible_pools
from control_plane.fleet.models import (
    Lease,
    Liveness,
    MaintenanceWindow,
    Node,
    Pool,
    PoolAdmin,
    ProjectQuota,
    Quota,
    Reservation,
    Slot,
)
from control_plane.fleet.reservations import BORROW_LEAD, HORIZON
from control_plane.fleet.snapshot import NodeSnapshot, SlotSnapshot, TeamQuota

FORGOTTEN_AFTER = 8  # half-lives


def node_of_credential(text: str) -> Node | None:
    if not text.startswith(NODE_PREFIX):
        return None
    return Node.objects.filter(credential_sha256=digest(text)).first()


def node_snapshots(pool: str) -> list[NodeSnapshot]:
    """A pool's nodes as the scheduler sees them. A slot is free when it is healthy, has no open lease, and no process
    of others runs on it."""
    snapshots = []
    for node in _nodes_with_slots().filter(pool=pool):
        slots = sorted(
            (slot for slot in node.slots.all() if slot.healthy), key=lambda slot: _natural(slot.name)
        )
        accepts = node.takes_work
        snapshots.append(
            NodeSnapshot(
                node.pk, node.name,
                free=tuple(_slot_snapshot(slot) for slot in slots if not slot.open_leases and not slot.occupied_by),
                held=tuple(_slot_snapshot(slot) for slot in slots if slot.open_leases),
                accepts=accepts, state="" if accepts else node.status.lower(),
                model_roots=tuple(node.model_roots),
                isolates_jobs=node.isolates_jobs,
                returns_at=node.maintenance.ends_at if node.maintenance is not None else None,
                peer_network=node.peer_network,
            )
        )  # fmt: skip
    return snapshots


def _slot_snapshot(slot: Slot) -> SlotSnapshot:
    return SlotSnapshot(slot.name, slot.device, slot.memory_bytes, slot.model)


def reservations(pool: str, *, now: datetime) -> list[snapshot.Reservation]:
    """The reservations and maintenance windows of a pool that affect what is placed now."""
    near = {"pool": pool, "starts_at__lte": now + HORIZON, "ends_at__gt": now}
    found = [
        snapshot.Reservation(
            one.pk, one.starts_at, one.ends_at, title_of(one), team=one.team_id, project=one.project_id or "",
            slots=one.slots, nodes=tuple(one.nodes), device=one.device, allocation=one.allocation,
        )
        for one in Reservation.objects.filter(**near).select_related("team", "project").order_by("pk")
    ]  # fmt: skip
    for window in MaintenanceWindow.objects.filter(**near).select_related("pool").order_by("pk"):
        nodes = tuple(maintenance.nodes_of(window))
        found.append(
            snapshot.Reservation(window.pk, window.starts_at, window.ends_at, window.reason, nodes=nodes)
        )
    ending = Node.objects.filter(pool=pool, ends_at__gt=now, ends_at__lte=now + HORIZON)
    return [*found, *(_end_of(node) for node in ending.order_by("pk"))]


def _end_of(node: Node) -> snapshot.Reservation:
    """What its provider ends is like a node in maintenance that does not return."""
    starts_at = allocations.drain_starts_at(node)
    assert starts_at is not None
    title = f"its {node.provider} job {node.provider_job} ends"
    lead = min(BORROW_LEAD, (starts_at - node.enrolled_at) / 2)
    return snapshot.Reservation(
        node.pk, starts_at, starts_at + 2 * HORIZON, title, nodes=(node.pk,), lead=lead
    )


def title_of(reservation: Reservation) -> str:
    """For whom it is, in messages: "team blue"."""
    if reservation.project is None:
        return f"team {reservation.team.name}"
    return f"project {reservation.project.name} of team {reservation.team.name}"


def is_any_reserved(*, now: datetime) -> bool:
    """Whether a reservation keeps slots of a pool now or soon."""
    return Reservation.objects.filter(starts_at__lte=now + HORIZON, ends_at__gt=now).exists()


def model_roots(project: Project) -> set[str]:
    """Model directories that nodes offer to a project: of every node in its team's pools that is not LOST."""
    nodes = Node.objects.filter(pool__in=pools_of(project.team_id)).exclude(liveness=Liveness.LOST)
    return {root for roots in nodes.values_list("model_roots", flat=True) for root in roots}


def leased_slots(pool: str) -> dict[tuple[str, str], str]:
    """(node, slot name) → the run that holds the slot."""
    leases = Lease.objects.filter(released_at=None, slot__node__pool=pool)
    return {(node, slot): run for node, slot, run in leases.values_list("slot__node", "slot__name", "run")}


def used_slots(pool: str) -> dict[str, int]:
    """Team → slots held."""
    return _open_leases(pool, by="team")


def used_slots_by_project(pool: str) -> dict[str, int]:
    return _open_leases(pool, by="project")


def _open_leases(pool: str, *, by: str) -> dict[str, int]:
    rows = Lease.objects.filter(released_at=None, slot__node__pool=pool).values(by).annotate(held=Count("pk"))
    return {row[by]: row["held"] for row in rows if row[by] is not None}


def team_quotas(pool: str) -> dict[str, TeamQuota]:
    return {
        quota.team_id: TeamQuota(quota.nominal_slots, quota.limit_slots, quota.lending_limit)
        for quota in Quota.objects.filter(pool=pool)
    }


def project_quotas(pool: str) -> dict[str, snapshot.ProjectQuota]:
    return {
        quota.project_id: snapshot.ProjectQuota(quota.nominal_slots, quota.limit_slots)
        for quota in ProjectQuota.objects.filter(pool=pool)
    }


def decayed_slot_hours(pool: str, *, now: datetime) -> dict[str, float]:
    """Team → hours of slots that it held, each worth half after a half-life. The integral of 0.5^(age/h) from the start
    to the end of a lease is h/ln 2 · (0.5^(age of the end/h) - 0.5^(age of the start/h))."""
    half_life = timedelta(hours=settings.ENVIRONMENT.fair_share_half_life_hours)

    def weight(at: Any) -> Power:
        return Power(0.5, Extract(Value(now) - at, "epoch") / Value(half_life.total_seconds()))

    rows = (
        Lease.objects.filter(Q(released_at=None) | Q(released_at__gt=now - FORGOTTEN_AFTER * half_life))
        .filter(slot__node__pool=pool, granted_at__lte=now)
        .values("team")
        .annotate(share=Sum(weight(Coalesce("released_at", Value(now))) - weight(F("granted_at"))))
    )
    return {row["team"]: row["share"] * half_life.total_seconds() / 3600 / math.log(2) for row in rows}


def teams_that_may_use(pool: str) -> frozenset[str]:
    return frozenset(teams_of(pool).values_list("pk", flat=True))


def leased_jobs(node: Node) -> list[str]:
    """IDs of jobs that hold slots of the node."""
    return list(
        Lease.objects.filter(slot__node=node, released_at=None).values_list("job", flat=True).distinct()
    )


def quotas(pool: Pool, teams: Iterable[Team]) -> list[dict[str, Any]]:
    """What each of these teams holds of the pool, and may hold at most, for QuotaSerializer."""
    quota_of, used = {quota.team_id: quota for quota in Quota.objects.filter(pool=pool)}, used_slots(pool.pk)
    return [
        {**vars(quota_of.get(team.pk) or Quota()), "team": team, "used_slots": used.get(team.pk, 0)}
        for team in teams
    ]


def quotas_of_pool(pool: Pool) -> list[dict[str, Any]]:
    """Of a pool that is open to all teams, every team of the installation."""
    return quotas(pool, teams_of(pool.pk).order_by("name", "id"))


def project_shares(pool: Pool, projects: Iterable[Project]) -> list[dict[str, Any]]:
    """What each of these projects holds of the pool and its quota there, for ProjectQuotaSerializer."""
    quota_of = {quota.project_id: quota for quota in ProjectQuota.objects.filter(pool=pool)}
    used = used_slots_by_project(pool.pk)
    return [
        {
            **vars(quota_of.get(project.pk) or ProjectQuota()),
            "project": project,
            "used_slots": used.get(project.pk, 0),
        }
        for project in projects
    ]


def admins_of_pool(pool: Pool) -> list[PoolAdmin]:
    return list(PoolAdmin.objects.filter(pool=pool).select_related("user").order_by("user__username"))


def pools(caller: Caller) -> list[dict[str, Any]]:
    """The pools that the caller sees, for PoolSettingsSerializer."""
    managed = set(managed_pools(caller).values_list("pk", flat=True))
    return [{**vars(pool), "may_manage": pool.pk in managed} for pool in visible_pools(caller)]


def pool(caller: Caller, pool: Pool) -> dict[str, Any]:
    """The pool without its queue, for PoolSerializer. Names of other teams' runs are not shown to this one."""
    team = caller.project.team
    nodes = list(_nodes_with_slots().filter(pool=pool).order_by("name", "id"))
    slots = [slot for node in nodes for slot in node.slots.all()]
    for slot in slots:
        slot.held_by = _holder(slot.open_leases[0], team) if slot.open_leases else None
    blocked_reason = manage_denied_reason(caller, pool)
    if blocked_reason:
        for slot in slots:  # a command line may contain a secret
            slot.occupied_by = [{**process, "command": ""} for process in slot.occupied_by]
    return {
        **vars(pool),
        "may_manage": not blocked_reason,
        "blocked_reason": blocked_reason,
        "pools": visible_pools(caller).values_list("name", flat=True),
        "nodes": nodes,
        "slots": slots,
        "quota": quotas(pool, [team])[0],
        "project_quota": project_shares(pool, [caller.project])[0],
    }


def _holder(lease: Lease, team: Team) -> dict[str, str]:
    if lease.team_id == team.pk:
        return {"run_id": lease.run, "run_name": lease.run_name, "job": lease.job_name}
    return {"run_id": "", "run_name": "another team's run", "job": lease.job_name.partition(" ")[0]}


def _nodes_with_slots() -> Any:
    leases = Prefetch("leases", Lease.objects.filter(released_at=None), to_attr="open_leases")
    slots = Prefetch("slots", Slot.objects.filter(present=True).order_by("name").prefetch_related(leases))
    return Node.objects.select_related("maintenance").prefetch_related(slots)


def _natural(name: str) -> tuple[str, int]:
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or 0)


def gpu_models(pool: str) -> list[str]:
    """Device names of the GPUs of a pool, most frequent first."""
    slots = Slot.objects.filter(node__pool=pool, device="cuda").exclude(model="")
    return [row["model"] for row in slots.values("model").annotate(n=Count("pk")).order_by("-n", "model")]
