"""Every write to nodes and their slots: enrollment, heartbeats, leases, cordon, drain and revoke, the sweep."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import F, QuerySet

from control_plane.accounts.identity.access_events import announce_power_change
from control_plane.accounts.models import Team
from control_plane.accounts.tokens.token_hashing import JOIN_TOKEN_PREFIX, NODE_PREFIX, digest, new_secret
from control_plane.core.api.errors import Problem, not_found
from control_plane.core.stream import event_stream
from control_plane.fleet import pools
from control_plane.fleet.liveness import Clocks, judge, suspension
from control_plane.fleet.models import (
    Intent,
    JoinToken,
    Lease,
    Liveness,
    Node,
    Pool,
    Slot,
    Watch,
)
from oolong.contracts.agent import PROTOCOL, Inventory
from oolong.contracts.model_paths import MOST_ROOTS, faults_of_path, root_of

JOIN_TOKEN_TTL = timedelta(minutes=15)
PORTS_FROM, PORTS_TO = 20_000, 32_000  # below the range that Linux gives to outgoing connections


def clocks() -> Clocks:
    environment = settings.ENVIRONMENT
    return Clocks(
        lease=timedelta(seconds=environment.node_lease_seconds),
        orphan=timedelta(seconds=environment.orphan_seconds),
    )


# --- joining ----------------------------------------------------------------------------------------------


def create_join_token(pool: Pool, *, now: datetime) -> tuple[str, datetime]:
    """A single-use token with which one node may join the pool within 15 minutes."""
    text = new_secret(JOIN_TOKEN_PREFIX)
    expires_at = now + JOIN_TOKEN_TTL
    with transaction.atomic():
        pool = pools.locked(pool.pk)
        JoinToken.objects.create(sha256=digest(text), pool=pool, expires_at=expires_at)
        pools.record("pool.join_token", pool)
    return text, expires_at


def enroll(
    *, token: str, name: str, inventory: Inventory, now: datetime, protocol: int = PROTOCOL
) -> tuple[Node, str]:
    """A new node and its credential. 401 for an unknown token, 409 for one that was used, 410 for an old one."""
    with transaction.atomic():
        # The pool first, as whoever deletes it: its tokens go with it.
        pool = (
            Pool.objects.select_for_update(of=("self",), no_key=True).filter(jointoken=digest(token)).first()
        )
        row = JoinToken.objects.select_for_update().filter(sha256=digest(token), pool=pool).first()
        if row is None or pool is None:
            raise Problem(401, "join_token_unknown", "this join token is unknown; make one on the pool page")
        if row.used_at is not None:
            raise Problem(
                409,
                "join_token_used",
                f"this join token was used at {row.used_at:%H:%M:%S}; make another",
            )
        if row.expires_at <= now:
            raise Problem(410, "join_token_expired", "this join token is older than 15 minutes; make another")
        credential = new_secret(NODE_PREFIX)
        node = Node.objects.create(
            pool=pool, name=name, credential_sha256=digest(credential), last_seen_at=now, protocol=protocol,
            next_port=random.randrange(PORTS_FROM, PORTS_TO - 500, 20),
        )  # fmt: skip
        row.used_at, row.node = now, node
        row.save(update_fields=["used_at", "node"])
        _write_inventory(node, inventory)
        pools.record("node.enroll", pool, target=("node", node.pk, node.name))
        pools.announce_pool()
    return node, credential


# --- heartbeats -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Heard:
    """What a heartbeat means beyond its content."""

    rebooted: bool  # the node came back with another boot id: every process of before is dead
    was: Liveness  # what we had thought of it


def hear(node: Node, inventory: Inventory, *, now: datetime) -> Heard:
    """Note that the node lives and what it has; renew its leases. Call inside a transaction with the row locked."""
    heard = Heard(
        rebooted=bool(node.boot_id) and node.boot_id != inventory.boot_id, was=Liveness(node.liveness)
    )
    node.liveness = Liveness.READY
    node.last_seen_at = now
    _write_inventory(node, inventory)
    open_leases = _locked(Lease.objects.filter(slot__node=node, released_at=None))
    if heard.rebooted:
        open_leases.update(released_at=now)
    else:
        open_leases.update(expires_at=now + clocks().lease)
    if heard.was != Liveness.READY:
        pools.announce_pool()
    return heard


def _write_inventory(node: Node, inventory: Inventory) -> None:
    node.hostname, node.agent_version = inventory.hostname[:255], inventory.agent_version[:60]
    node.boot_id = inventory.boot_id[:80]
    node.cpu_count, node.memory_bytes = inventory.cpu_count, inventory.memory_bytes
    node.disk_free_bytes = inventory.disk_free_bytes
    roots = inventory.model_roots
    node.model_roots = None if roots is None else _plain_roots(roots)
    node.job_isolation = inventory.job_isolation.value
    node.job_isolation_reason = inventory.job_isolation_reason[:400]
    node.save()
    known = {slot.name: slot for slot in node.slots.all()}
    for item in inventory.slots:
        wanted = {
            "device": item.device, "model": item.model[:200], "memory_bytes": item.memory_bytes,
            "healthy": item.healthy, "reason": item.reason[:400], "present": True,
        }  # fmt: skip
        slot = known.pop(item.slot, None)
        if slot is None:
            Slot.objects.create(node=node, name=item.slot, **wanted)
        elif any(getattr(slot, key) != value for key, value in wanted.items()):
            Slot.objects.filter(pk=slot.pk).update(**wanted)
    gone = [slot.pk for slot in known.values() if slot.present]
    if gone:
        Slot.objects.filter(pk__in=gone).update(present=False)


def _plain_roots(roots: list[str]) -> list[str]:
    return sorted({root for root in roots if not faults_of_path(root)})[:MOST_ROOTS]


def ring(nodes: Iterable[str]) -> None:
    """The desired state of these nodes may have changed: a waiting heartbeat answers.

    After the commit, so that it holds no lock together with others; a lost ring only delays to the next heartbeat.
    """
    rows = Node.objects.filter(pk__in=list(nodes))
    transaction.on_commit(lambda: rows.update(desired_revision=F("desired_revision") + 1) and None)


def ring_offering(path: str) -> None:
    """The nodes that may check a model at this path: one of them takes it with its next heartbeat."""
    nodes = Node.objects.filter(liveness=Liveness.READY, intent=Intent.ACTIVE)
    ring(node.pk for node in nodes if root_of(path, node.model_roots or []) is not None)


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
    team: Team,
    holder: str,
    epoch: int,
    run: str,
    run_name: str,
    now: datetime,
) -> None:
    """All or nothing; IntegrityError (nothing granted) when somebody holds one of the slots."""
    slots = {slot.name: slot for slot in node.slots.filter(name__in=[grant.slot for grant in grants])}
    Lease.objects.bulk_create(
        Lease(
            slot=slots[grant.slot], team=team, holder=holder, epoch=epoch, job=grant.job, job_name=grant.job_name,
            run=run, run_name=run_name, granted_at=now, expires_at=now + clocks().lease,
        )
        for grant in grants
    )  # fmt: skip


def release_jobs(jobs: Iterable[str], *, now: datetime) -> int:
    """Give back the slots of these jobs. The caller has proof that they are dead."""
    with transaction.atomic():
        leases = _locked(Lease.objects.filter(job__in=list(jobs), released_at=None))
        return leases.update(released_at=now)


def _locked(leases: QuerySet[Lease]) -> QuerySet[Lease]:
    """These leases, locked in the order of their ids: an UPDATE of several would take them in any order, and two that
    meet, of a heartbeat and of a job's end, could wait for each other. Call inside a transaction."""
    held = leases.select_for_update(of=("self",)).order_by("pk").only("pk")
    return Lease.objects.filter(pk__in=[lease.pk for lease in held])


def announce_queue() -> None:
    """Say on the topic `pool` that the queue changed; like announce_leases, last in its transaction."""
    event_stream.publish("pool", "event", {"kind": "queue"})


def announce_leases() -> None:
    """Say on the topic `pool` that holders changed; the last publish of a transaction (see common.live)."""
    event_stream.publish("pool", "event", {"kind": "leases"})


def allocate_ports(node: Node, count: int, *, held: Collection[int]) -> list[int]:
    """`count` ports that are none of `held`, going round the range so that one just given back is not used at once.

    The caller has locked the node's row.
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


# --- people -----------------------------------------------------------------------------------------------


def set_intent(node: Node, intent: Intent) -> Node:
    with transaction.atomic():
        node, pool = _managed(node)
        change = {"before": node.intent, "after": intent}
        pools.record("node.intent", pool, target=("node", node.pk, node.name), data=change)
        node.intent = intent
        node.save(update_fields=["intent"])
        pools.announce_pool()
    return node


def revoke(node: Node, *, now: datetime) -> Node:
    """Its credential is refused from now on, and it leaves its pool for good. Its leases end: nobody is placed there
    again. What becomes of its attempts is not known here (runs.revocation)."""
    with transaction.atomic():
        node, pool = _managed(node)
        pools.record("node.revoke", pool, target=("node", node.pk, node.name))
        node.pool, node.liveness = None, Liveness.LOST
        node.desired_revision += 1  # a heartbeat that waits is answered
        node.save(update_fields=["pool", "liveness", "desired_revision"])
        _locked(Lease.objects.filter(slot__node=node, released_at=None)).update(released_at=now)
        announce_power_change([node.pk])
        pools.announce_pool()
    return node


def refuse_revoked(node: Node) -> None:
    if node.is_revoked:
        raise revoked(node)


def revoked(node: Node) -> Problem:
    return Problem(
        403, "node_revoked",
        f"the credential of node {node.name!r} ({node.pk}) was revoked by those who manage its pool: the node is in no "
        "pool any more, and its runs go on elsewhere. To join again it needs a new join token",
    )  # fmt: skip


def _managed(node: Node) -> tuple[Node, Pool]:
    """The row, locked, and its pool. 404 when somebody has just revoked it."""
    node = Node.objects.select_for_update(of=("self",)).select_related("pool").get(pk=node.pk)
    if node.pool is None:
        raise not_found("node", node.pk)
    return node, node.pool


# --- the sweep --------------------------------------------------------------------------------------------


def sweep(*, now: datetime) -> list[Node]:
    """Judge every node by its silence. Returns those whose liveness changed."""
    try:
        watch, _ = Watch.objects.get_or_create(name="pool")
    except IntegrityError:
        return []
    until = suspension(
        now=now, swept_at=watch.swept_at, receiver_at=watch.receiver_at,
        suspended_until=watch.suspended_until, clocks=clocks(),
    )  # fmt: skip
    Watch.objects.filter(pk=watch.pk).update(swept_at=now, suspended_until=until)
    changed = []
    for node in Node.objects.exclude(liveness=Liveness.LOST):
        verdict = judge(node.last_seen_at, now=now, suspended_until=until, clocks=clocks())
        if verdict == Liveness.READY or verdict == node.liveness:
            continue  # only a heartbeat makes a node READY again
        with transaction.atomic():
            moved = Node.objects.filter(
                pk=node.pk, liveness=node.liveness, last_seen_at=node.last_seen_at
            ).update(liveness=verdict)
            if not moved:
                continue
            node.liveness = verdict
            if verdict == Liveness.LOST:
                # Orphan time plus a margin has passed: the node has ended its jobs itself.
                _locked(Lease.objects.filter(slot__node=node, released_at=None)).update(released_at=now)
            pools.announce_pool()
        changed.append(node)
    return changed
