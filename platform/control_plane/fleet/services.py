"""All writes to nodes and slots: enrollment, heartbeats, leases, cordon, drain, revoke and liveness."""

from __future__ import annotations

import ipaddress
import random
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain

import msgspec
from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import F, Max, QuerySet

from control_plane.accounts.identity.access_events import publish_access_change
from control_plane.accounts.models import Project
from control_plane.accounts.tokens.token_hashing import JOIN_TOKEN_PREFIX, NODE_PREFIX, digest, new_secret
from control_plane.core.api.errors import Problem, conflict, not_found
from control_plane.core.infra.clock import rfc3339
from control_plane.core.stream import event_stream
from control_plane.fleet import allocations, pools
from control_plane.fleet.liveness import Timeouts, classify, outage_grace
from control_plane.fleet.models import (
    JoinToken,
    Lease,
    Liveness,
    Node,
    Pool,
    SchedulingState,
    Slot,
    Watch,
)
from control_plane.fleet.prices import price_of, prices_of
from oolong.contracts.agent import Inventory
from oolong.contracts.model_paths import MOST_ROOTS, faults_of_path, root_of

JOIN_TOKEN_TTL = timedelta(minutes=15)
PORTS_FROM, PORTS_TO = 20_000, 32_000  # below Linux's ephemeral port range


def timeouts() -> Timeouts:
    environment = settings.ENVIRONMENT
    return Timeouts(
        lease=timedelta(seconds=environment.node_lease_seconds),
        orphan=timedelta(seconds=environment.orphan_seconds),
    )


# --- enrollment -------------------------------------------------------------------------------------------


def create_join_token(pool: Pool, *, now: datetime) -> tuple[str, datetime]:
    """A single-use token with which one node may join the pool within 15 minutes."""
    text = new_secret(JOIN_TOKEN_PREFIX)
    expires_at = now + JOIN_TOKEN_TTL
    with transaction.atomic():
        pool = pools.lock_pool(pool.pk)
        JoinToken.objects.create(sha256=digest(text), pool=pool, expires_at=expires_at)
        pools.record_audit("pool.join_token", pool)
    return text, expires_at


def enroll(*, token: str, name: str, inventory: Inventory, now: datetime) -> tuple[Node, str]:
    """Create a node and its credential. 401 for an unknown token, 409 for a used one, 410 for an expired one."""
    with transaction.atomic():
        # Lock the pool first, in the same order as its deletion, which deletes its tokens.
        pool = (
            Pool.objects.select_for_update(of=("self",), no_key=True).filter(jointoken=digest(token)).first()
        )
        row = JoinToken.objects.select_for_update().filter(sha256=digest(token), pool=pool).first()
        if row is None or pool is None:
            raise Problem(
                401, "join_token_unknown", "this join token is unknown; create one on the pool page"
            )
        if row.used_at is not None:
            raise Problem(
                409,
                "join_token_used",
                f"this join token was used at {row.used_at:%H:%M:%S}; create another",
            )
        if row.expires_at <= now:
            raise Problem(
                410, "join_token_expired", "this join token is older than 15 minutes; create another"
            )
        credential = new_secret(NODE_PREFIX)
        node = Node.objects.create(
            pool=pool, name=name, credential_sha256=digest(credential), last_seen_at=now,
            next_port=random.randrange(PORTS_FROM, PORTS_TO - 500, 20),
        )  # fmt: skip
        row.used_at, row.node = now, node
        row.save(update_fields=["used_at", "node"])
        _write_inventory(node, inventory)
        pools.record_audit("node.enroll", pool, target=("node", node.pk, node.name))
        pools.publish_pool_change()
    return node, credential


# --- heartbeats -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HeartbeatResult:
    """What changed with a heartbeat."""

    liveness_before: Liveness
    newly_occupied: dict[str, str]  # slots on which processes of others appeared → whose


def record_heartbeat(node: Node, inventory: Inventory, *, now: datetime) -> HeartbeatResult:
    """Mark the node READY, update its inventory and renew its leases. Call inside a transaction that locked its row."""
    before, node.liveness = Liveness(node.liveness), Liveness.READY
    node.last_seen_at = now
    occupied = _write_inventory(node, inventory)
    allocations.drain_before_end(node, now=now)
    result = HeartbeatResult(liveness_before=before, newly_occupied=occupied)
    open_leases = _lock_leases(Lease.objects.filter(slot__node=node, released_at=None))
    open_leases.update(expires_at=now + timeouts().lease)
    if result.liveness_before != Liveness.READY:
        pools.publish_pool_change()
    return result


def _write_inventory(node: Node, inventory: Inventory) -> dict[str, str]:
    """Returns the slots on which processes of others appeared, with whose."""
    node.hostname, node.agent_version = inventory.hostname[:255], inventory.agent_version[:60]
    node.boot_id = inventory.boot_id[:80]
    node.cpu_count, node.memory_bytes = inventory.cpu_count, inventory.memory_bytes
    node.disk_free_bytes = inventory.disk_free_bytes
    node.model_roots = _valid_roots(inventory.model_roots)
    node.job_isolation = inventory.job_isolation.value
    node.job_isolation_reason = inventory.job_isolation_reason[:400]
    node.peer_address, node.peer_network = _valid_peer(inventory)
    node.provider, node.provider_job = inventory.provider.value, inventory.provider_job
    node.partition, node.account = inventory.partition, inventory.account
    node.ends_at = None if inventory.ends_at is None else datetime.fromtimestamp(inventory.ends_at, UTC)
    node.save()
    known = {slot.name: slot for slot in node.slots.all()}
    free_of_others = {name for name, slot in known.items() if not slot.occupied_by}
    changed: list[Slot] = []  # written at once: readings differ with most heartbeats
    for item in inventory.slots:
        fields = {
            "device": item.device, "model": item.model[:200], "memory_bytes": item.memory_bytes,
            "healthy": item.healthy, "reason": item.reason[:400], "present": True,
            "utilization": item.utilization, "memory_used_bytes": item.memory_used_bytes, "celsius": item.celsius,
            "occupied_by": [msgspec.to_builtins(process) for process in item.occupied_by],
        }  # fmt: skip
        slot = known.pop(item.slot, None)
        if slot is None:
            Slot.objects.create(node=node, name=item.slot, **fields)
        elif any(getattr(slot, key) != value for key, value in fields.items()):
            for key, value in fields.items():
                setattr(slot, key, value)
            changed.append(slot)
    if changed:
        Slot.objects.bulk_update(changed, list(fields))
    gone = [slot.pk for slot in known.values() if slot.present]
    if gone:
        Slot.objects.filter(pk__in=gone).update(present=False)
    return {
        item.slot: ", ".join(
            f"{process.user or 'somebody'} (pid {process.pid})" for process in item.occupied_by
        )
        for item in inventory.slots
        if item.occupied_by and item.slot in free_of_others
    }


def _valid_peer(inventory: Inventory) -> tuple[str, str]:
    """Address and network; both empty when the address is none that a URL can have."""
    try:
        return str(ipaddress.ip_address(inventory.peer_address)), inventory.peer_network
    except ValueError:
        return "", ""


def _valid_roots(roots: list[str]) -> list[str]:
    return sorted({root for root in roots if not faults_of_path(root)})[:MOST_ROOTS]


def notify_nodes(nodes: Iterable[str]) -> None:
    """Wake the long-polling heartbeats of these nodes, because their desired state may have changed.

    Runs after the commit, so that it never holds node locks together with others. A lost notification only delays the
    change until the next heartbeat.
    """
    rows = Node.objects.filter(pk__in=list(nodes))
    transaction.on_commit(lambda: rows.update(desired_revision=F("desired_revision") + 1) and None)


def notify_nodes_offering(path: str) -> None:
    """Notify the nodes that offer this model path; one of them begins the check with its next heartbeat."""
    nodes = Node.objects.filter(liveness=Liveness.READY, intent=SchedulingState.ACTIVE)
    notify_nodes(node.pk for node in nodes if root_of(path, node.model_roots) is not None)


# --- leases -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Grant:
    """One slot for one job."""

    slot: str
    job: str
    job_name: str


def grant_leases(
    *,
    node: Node,
    grants: list[Grant],
    project: Project,
    holder: str,
    epoch: int,
    run: str,
    run_name: str,
    now: datetime,
) -> None:
    """Lease all the slots or none. Raises IntegrityError when one of them is leased already.

    `now` is when the caller began to plan. A lease of the same slot may have ended since; the new one begins then, so
    that no moment of a slot is counted twice.
    """
    slots = {slot.name: slot for slot in node.slots.filter(name__in=[grant.slot for grant in grants])}
    ended_since = dict(
        Lease.objects.filter(slot__in=slots.values(), released_at__gt=now)
        .values_list("slot")
        .annotate(Max("released_at"))
    )
    known = list(prices_of(node.pool_id)) if node.pool_id else []
    Lease.objects.bulk_create(
        Lease(
            slot=slots[grant.slot], price_per_hour=price_of(slots[grant.slot], known),
            team_id=project.team_id, project=project, holder=holder,
            epoch=epoch, job=grant.job, job_name=grant.job_name,
            run=run, run_name=run_name,
            granted_at=ended_since.get(slots[grant.slot].pk, now), expires_at=now + timeouts().lease,
        )
        for grant in grants
    )  # fmt: skip


def release_jobs(jobs: Iterable[str], *, now: datetime) -> int:
    """Release the slots of these jobs. The caller has proof that the jobs are dead."""
    with transaction.atomic():
        leases = _lock_leases(Lease.objects.filter(job__in=list(jobs), released_at=None))
        return leases.update(released_at=now)


def _lock_leases(leases: QuerySet[Lease]) -> QuerySet[Lease]:
    """These leases, locked in the order of their IDs, inside the caller's transaction. An UPDATE of several rows locks
    them in any order, so that a heartbeat and the end of a job could deadlock."""
    held = leases.select_for_update(of=("self",)).order_by("pk").only("pk")
    return Lease.objects.filter(pk__in=[lease.pk for lease in held])


def publish_queue_change() -> None:
    """Publish on the topic `pool` that the queue changed; the last publish of a transaction (see common.live)."""
    event_stream.publish("pool", "event", {"kind": "queue"})


def publish_lease_change() -> None:
    """Publish on the topic `pool` that leases changed; the last publish of a transaction (see common.live)."""
    event_stream.publish("pool", "event", {"kind": "leases"})


def allocate_ports(node: Node, count: int, *, held: Collection[int]) -> list[int]:
    """Allocate `count` ports outside `held`, round-robin, so that a port just released is not reused at once.

    The caller holds the lock of the node's row.
    """
    ports: list[int] = []
    for port in chain(range(max(node.next_port, PORTS_FROM), PORTS_TO), range(PORTS_FROM, PORTS_TO)):
        if len(ports) == count:
            break
        if port not in held:
            ports.append(port)
    if ports:
        node.next_port = ports[-1] + 1
        node.save(update_fields=["next_port"])
    return ports


# --- operators --------------------------------------------------------------------------------------------


def set_scheduling_state(
    node: Node, state: SchedulingState, *, drain_deadline: datetime | None = None
) -> Node:
    """Set what may run on the node. The runs of a DRAINING node leave it (runs.evacuation), by `drain_deadline` at the
    latest. Of two drains the second sets the deadline, earlier or later; without one, the deadline of the first stays.
    Any other state cancels the drain."""
    with transaction.atomic():
        node, pool = lock_managed(node)
        change: dict[str, str | None] = {"before": node.intent, "after": state}
        if drain_deadline is not None:
            change["deadline"] = rfc3339(drain_deadline)
        if drain_deadline is not None or state != SchedulingState.DRAINING:
            node.drain_deadline = drain_deadline
        node.maintenance = None  # the window neither drains it again nor returns it
        pools.record_audit("node.intent", pool, target=("node", node.pk, node.name), data=change)
        node.intent = state
        node.save(update_fields=["intent", "drain_deadline", "maintenance"])
        pools.publish_pool_change()
    return node


def revoke(node: Node, *, now: datetime) -> Node:
    """Reject the node's credential, remove the node from its pool and end its leases. The runs of the node are the
    caller's concern (runs.pool_services)."""
    with transaction.atomic():
        node, pool = lock_managed(node)
        _remove_from_pool(node, pool, "node.revoke", now=now)
    return node


def leave(node: Node, *, now: datetime) -> None:
    """The node leaves its pool, and its credential ends. 409 while a run needs it: then it stays."""
    with transaction.atomic():
        node = Node.objects.select_for_update(of=("self",)).select_related("pool").get(pk=node.pk)
        if node.pool is None:
            raise node_revoked_error(node)
        if node.is_needed:
            raise conflict("node_in_use", f"a run needs node {node.name!r} ({node.pk}): try again later")
        _remove_from_pool(node, node.pool, "node.leave", now=now)


def _remove_from_pool(node: Node, pool: Pool, action: str, *, now: datetime) -> None:
    pools.record_audit(action, pool, target=("node", node.pk, node.name))
    node.pool, node.liveness = None, Liveness.LOST
    node.desired_revision += 1  # ends a long-polling heartbeat
    node.save(update_fields=["pool", "liveness", "desired_revision"])
    _lock_leases(Lease.objects.filter(slot__node=node, released_at=None)).update(released_at=now)
    publish_access_change([node.pk])
    pools.publish_pool_change()


def require_not_revoked(node: Node) -> None:
    if node.is_revoked:
        raise node_revoked_error(node)


def node_revoked_error(node: Node) -> Problem:
    return Problem(
        403, "node_revoked",
        f"a pool admin revoked the credential of node {node.name!r} ({node.pk}): the node is no longer in a pool, and "
        "its runs continue on other nodes. To join again it needs a new join token",
    )  # fmt: skip


def lock_managed(node: Node) -> tuple[Node, Pool]:
    """The locked row and its pool. 404 when the node was just revoked."""
    node = Node.objects.select_for_update(of=("self",)).select_related("pool").get(pk=node.pk)
    if node.pool is None:
        raise not_found("node", node.pk)
    return node, node.pool


# --- liveness -----------------------------------------------------------------------------------------


def update_liveness(*, now: datetime) -> list[Node]:
    """Classify every node by the time since its last heartbeat. Returns the nodes whose liveness changed."""
    try:
        watch, _ = Watch.objects.get_or_create(name="pool")
    except IntegrityError:
        return []
    until = outage_grace(
        now=now, swept_at=watch.swept_at, receiver_at=watch.receiver_at,
        suspended_until=watch.suspended_until, timeouts=timeouts(),
    )  # fmt: skip
    Watch.objects.filter(pk=watch.pk).update(swept_at=now, suspended_until=until)
    changed = []
    for node in Node.objects.exclude(liveness=Liveness.LOST):
        liveness = classify(node.last_seen_at, now=now, suspended_until=until, timeouts=timeouts())
        if liveness in (Liveness.READY, node.liveness):
            continue  # only a heartbeat makes a node READY again
        with transaction.atomic():
            updated = Node.objects.filter(
                pk=node.pk, liveness=node.liveness, last_seen_at=node.last_seen_at
            ).update(liveness=liveness)
            if not updated:
                continue
            node.liveness = liveness
            if liveness == Liveness.LOST:
                # The orphan timeout plus a margin has passed, so the node has ended its jobs.
                _lock_leases(Lease.objects.filter(slot__node=node, released_at=None)).update(released_at=now)
            pools.publish_pool_change()
        changed.append(node)
    return changed
