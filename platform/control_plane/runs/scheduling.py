"""Schedules queued runs: plans each pool, then creates attempt, jobs and leases in one transaction per run."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import datetime, timedelta

from django.db import IntegrityError, transaction

from control_plane.accounts.tokens.token_hashing import new_secret
from control_plane.fleet import selectors as fleet_selectors
from control_plane.fleet import services as fleet
from control_plane.fleet.access import team_may_use
from control_plane.fleet.models import Node, Pool, Reservation
from control_plane.fleet.scheduler import plan
from control_plane.fleet.snapshot import Placement, Plan, Request, Snapshot, Wait
from control_plane.runs.attempt_certificate import create_certificate
from control_plane.runs.budgets import exhausted
from control_plane.runs.elastic_engines import (
    any_run_wants_engines,
    engine_requests,
    join_engines,
    release_excess_engines,
    spec_of_next_attempt,
)
from control_plane.runs.evaluators import (
    any_evaluator_wanted_or_active,
    evaluator_requests,
    join_evaluator,
    release_finished,
)
from control_plane.runs.events import publish_run, record_event, transition_run
from control_plane.runs.locking import lock_run
from control_plane.runs.models import Attempt, Job, Run, RunForecast
from control_plane.runs.node_failures import avoid_failed_nodes
from control_plane.runs.plan_jobs import plan_jobs, port_names
from control_plane.runs.remote_engines import may_have_remote_engines
from control_plane.runs.reward_test_policy import untested_reward_error
from control_plane.runs.selectors import held_ports, queue, resumable_checkpoint
from control_plane.runs.slot_holders import preempt, slot_holders
from control_plane.runs.slot_requests import request_of
from control_plane.runs.termination import termination_fields
from control_plane.runs.trainer_gang import RENDEZVOUS
from oolong.contracts.lifecycle import EndReason, RunStatus
from oolong.contracts.run_spec import RunSpec
from oolong.logs import about
from oolong.tracing import span

log = logging.getLogger(__name__)

FRESH_FOR = timedelta(minutes=2)  # a forecast, of which one is made every 15 seconds
MAX_REASON = 400  # characters of Run.pending_reason
PROMISE_STEP = timedelta(seconds=5)  # by which a reserved start has to be earlier to be recorded


def schedule_runs(*, now: datetime) -> int:
    """Start queued runs pool by pool, and record for the others why they wait. Returns how many runs started."""
    waiting = queue()
    idle = not waiting and not any_run_wants_engines() and not any_evaluator_wanted_or_active()
    if idle and not fleet_selectors.is_any_reserved(now=now):
        return 0
    release_finished(now=now)
    placed = 0
    for pool in Pool.objects.order_by("name").values_list("name", flat=True):
        release_excess_engines(pool, now=now)
        snapshot = snapshot_of(pool, [run for run in waiting if run.pool == pool], now=now)
        loan_requests = [*engine_requests(pool, snapshot.nodes, now=now), *evaluator_requests(pool)]
        snapshot = replace(snapshot, loan_requests=loan_requests)
        placed += _apply(plan(snapshot), {run.pk: run for run in waiting}, now=now)
    return placed


def _apply(decisions: Plan, queued: Mapping[str, Run], *, now: datetime) -> int:
    """Write a plan to the database. Returns how many runs started."""
    placed = 0
    for placement in decisions.placements:
        with _skip_if_leased(placement.request), about(run=placement.request), transaction.atomic():
            with span("start run", oolong__run=placement.request, oolong__node=placement.node):
                placed += _start_attempt(placement, now=now)
    for run_id, position in decisions.positions.items():
        run, wait = queued[run_id], decisions.waiting[run_id]
        known = (run.pending_reason, run.pending_code, run.queue_position)
        if known != (wait.message[:MAX_REASON], wait.code, position):
            with transaction.atomic():
                _record_pending(run_id, wait, position, now=now)
    for run_id, at in decisions.promises.items():
        promised = queued[run_id].promised_start_at
        if promised is None or at < promised - PROMISE_STEP:
            Run.objects.filter(pk=run_id, status=RunStatus.QUEUED).update(promised_start_at=at)
    for reservation, slots in decisions.allocations.items():
        Reservation.objects.filter(pk=reservation).exclude(allocation=slots).update(allocation=slots)
    for preemption in decisions.preemptions:
        preempt(preemption, now=now)
    for loan in decisions.loans:
        with _skip_if_leased(loan.request.attempt):
            if loan.request.purpose == "engines":
                join_engines(loan, now=now)
            elif loan.slots:
                join_evaluator(loan, now=now)
    return placed


@contextmanager
def _skip_if_leased(holder: str) -> Iterator[None]:
    """The unique index on leases rejects a slot that was leased concurrently; the next tick plans again."""
    try:
        yield
    except IntegrityError:
        log.warning("a slot for %s was leased concurrently", holder, exc_info=True)


def snapshot_of(
    pool: str, runs: Iterable[Run], *extra: Request, now: datetime, without: Node | None = None
) -> Snapshot:
    """The pool as the scheduler sees it, with these requests in its queue."""
    nodes = fleet_selectors.node_snapshots(pool)
    predictions = _Predictions(now)
    requests = [*(predictions.with_length(request_of(run)) for run in runs), *extra]
    requests = avoid_failed_nodes(requests, now=now)
    reservations = fleet_selectors.reservations(pool, now=now)
    compete = len({request.team for request in requests}) > 1
    return Snapshot(
        now=now,
        nodes=[node for node in nodes if without is None or node.id != without.pk],
        queue=requests,
        used=fleet_selectors.used_slots(pool),
        quotas=fleet_selectors.team_quotas(pool),
        slot_hours=fleet_selectors.decayed_slot_hours(pool, now=now) if compete else {},
        pool=pool,
        teams=fleet_selectors.teams_that_may_use(pool),
        holders=slot_holders(pool, now=now, reserved=bool(reservations)),
        reservations=reservations,
        project_used=fleet_selectors.used_slots_by_project(pool),
        project_quotas=fleet_selectors.project_quotas(pool),
        exhausted=exhausted(pool, now=now),
        free_at=predictions.free_at(fleet_selectors.leased_slots(pool)),
    )


class _Predictions:
    """The newest forecasts, as far as they are fresh. What is unknown allows no backfill."""

    def __init__(self, now: datetime) -> None:
        self._rows = {
            run: (length, ends)
            for run, length, ends in RunForecast.objects.filter(
                made_at__gt=now - FRESH_FOR, made_at__lte=now + FRESH_FOR
            ).values_list("run_id", "duration_p90", "end_p50_at")
        }
        self._now = now

    def with_length(self, request: Request) -> Request:
        length, _ = self._rows.get(request.id, (None, None))
        return replace(request, predicted_seconds=length)

    def free_at(self, held: Mapping[tuple[str, str], str]) -> dict[tuple[str, str], datetime]:
        """`held` are the runs that hold slots: (node, slot) → run."""
        found = {}
        for slot, run in held.items():
            _, ends = self._rows.get(run, (None, None))
            if ends is not None:
                found[slot] = max(ends, self._now)
        return found


def can_reschedule(run: Run, node: Node, *, now: datetime) -> bool:
    """Whether the run would start at once on another node of its pool if it were queued now."""
    ahead = [other for other in queue() if other.pool == run.pool]
    snapshot = snapshot_of(run.pool, ahead, request_of(run), now=now, without=node)
    if run.placement.nodes > 1:
        snapshot = _without_slots_of(run, snapshot)
    decisions = plan(snapshot)
    return any(placement.request == run.pk for placement in decisions.placements)


def _without_slots_of(run: Run, snapshot: Snapshot) -> Snapshot:
    """The pool once the run has left the nodes that are left to it, which it needs for its next attempt too."""
    leased = fleet_selectors.leased_slots(run.pool)
    own = {slot for slot, holder in leased.items() if holder == run.pk}
    nodes = []
    for node in snapshot.nodes:
        freed = tuple(slot for slot in node.held if (node.id, slot.name) in own)
        held = tuple(slot for slot in node.held if slot not in freed)
        nodes.append(replace(node, free=(*node.free, *freed), held=held))
    team, project = run.project.team_id, run.project_id
    return replace(
        snapshot,
        nodes=nodes,
        used={**snapshot.used, team: snapshot.used.get(team, 0) - len(own)},
        project_used={**snapshot.project_used, project: snapshot.project_used.get(project, 0) - len(own)},
        holders=[holder for holder in snapshot.holders if holder.id != run.pk],
    )


def _record_pending(run_id: str, wait: Wait, position: int, *, now: datetime) -> None:
    run, reason = lock_run(run_id), wait.message[:MAX_REASON]
    if run.status != RunStatus.QUEUED:
        return
    is_new = run.pending_reason != reason
    run.pending_reason, run.pending_code, run.queue_position = reason, wait.code, position
    run.save(update_fields=["pending_reason", "pending_code", "queue_position"])
    if is_new:
        record_event(run, "waiting", reason, at=now, code=wait.code)
        publish_run(run)
        fleet.publish_queue_change()


def _start_attempt(placement: Placement, *, now: datetime) -> bool:
    """Create an attempt with its jobs and leases, all or nothing. The unique index on leases guards against races."""
    run = lock_run(placement.request)
    named = Node.objects.filter(pk__in=[name for name, _ in placement.parts]).order_by("pk")
    nodes = {node.pk: node for node in named.select_for_update(of=("self",)).select_related("pool")}
    node = nodes[placement.node]
    if run.status != RunStatus.QUEUED or node.pool is None:
        return False
    if not all(one.takes_work and one.pool_id == run.pool for one in nodes.values()):
        return False
    if placement.others and not _reach_each_other(list(nodes.values())):
        return False  # an address has changed since; the next tick plans again
    if not team_may_use(node.pool_id, run.project.team_id):
        return False  # the next tick records why it waits
    spec = spec_of_next_attempt(run)
    if message := _no_longer_allowed(run, spec, node.pool):
        fields = termination_fields(EndReason.CONFIG_REJECTED, message)
        transition_run(run, RunStatus.FAILED, now=now, message=message, **fields)
        fleet.publish_queue_change()
        return False
    resume = resumable_checkpoint(run)
    last = run.attempts.order_by("-number").first()
    preempted = last is not None and last.reason == EndReason.PREEMPTED
    waited = (now - run.status_at).total_seconds() if preempted else 0.0
    names, peer = port_names(spec), {}
    if may_have_remote_engines(spec, node):
        names.append("weights")
        certificate = create_certificate(run.pk, now=now)
        peer = {"peer_address": node.peer_address, **asdict(certificate)}
    if placement.others:
        names.append(RENDEZVOUS)
        peer = {"peer_address": node.peer_address, **peer}
    ports = fleet.allocate_ports(node, len(names), held=held_ports(node))
    attempt = Attempt.objects.create(
        run=run, number=run.attempt_number + 1, epoch=run.epoch + 1, node=node, token=new_secret(""),
        ports=dict(zip(names, ports, strict=True)),
        **peer,
        resume_checkpoint=resume, created_at=now, boot={"queued_at": run.status_at.timestamp()},
    )  # fmt: skip
    plans = plan_jobs(spec, placement.slots, placement.others)
    jobs = [
        Job.objects.create(
            attempt=attempt, name=job.name, kind=job.kind, index=job.index, slots=list(job.slots),
            restarts=job.restarts, grace_seconds=job.grace_seconds, node_id=job.node,
        )
        for job in plans
    ]  # fmt: skip
    for name, one in nodes.items():
        here = [job for job in jobs if (job.node_id or node.pk) == name]
        fleet.grant_leases(
            node=one, project=run.project, holder=attempt.pk, epoch=attempt.epoch, run=run.pk, run_name=run.name,
            grants=[fleet.Grant(slot, job.pk, job.name) for job in here for slot in job.slots], now=now,
        )  # fmt: skip
    fleet.notify_nodes(list(nodes))
    where = " and ".join(nodes[name].name for name, _ in placement.parts)
    transition_run(
        run, RunStatus.STARTING, now=now, message=f"attempt {attempt.number} on {where}",
        attempt_number=attempt.number, epoch=attempt.epoch, pending_reason="", queue_position=None, not_before=None,
        promised_start_at=None,
        started_at=run.started_at or now, reason="", reason_message="", fault="",
        train_step=resume.step if resume else 0, paused_seconds=run.paused_seconds + waited,
    )  # fmt: skip
    fleet.publish_lease_change()
    return True


def _reach_each_other(nodes: Collection[Node]) -> bool:
    return all(node.peer_address for node in nodes) and len({node.peer_network for node in nodes}) == 1


def _no_longer_allowed(run: Run, spec: RunSpec, pool: Pool) -> str:
    """What the pool or the project has forbidden while the run waited; empty when the run may start."""
    if spec.algorithm.loss_function is not None and not pool.trainer_code:
        return f"trainer_code of pool {pool.name!r} was turned off while the run waited"
    if run.attempt_number or run.dataset_version is None:
        return ""  # a recovery or retry continues an allowed run
    used = {version.ref: version for version in run.functions.select_related("function")}
    untested = untested_reward_error(
        run.project, spec, used.get(spec.reward.function or ""), run.dataset_version
    )
    return untested.message if untested is not None else ""
