"""Queued runs get their slots: the scheduler decides, a transaction per run makes its attempt, jobs and leases."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction

from control_plane.accounts.identity.caller import Caller
from control_plane.accounts.tokens.token_hashing import new_secret
from control_plane.fleet import selectors as fleet_selectors
from control_plane.fleet import services as fleet
from control_plane.fleet.access import team_may_use
from control_plane.fleet.idle_slots import Leftover
from control_plane.fleet.models import Node, Pool
from control_plane.fleet.scheduler import Request, Snapshot, plan
from control_plane.runs.elastic_engines import add_engines, spec_to_start, wants_engines
from control_plane.runs.evaluators import add_evaluators, send_home, wants_evaluators
from control_plane.runs.events import announce_run, move_run, note
from control_plane.runs.locking import lock_run
from control_plane.runs.models import Attempt, Job, Run
from control_plane.runs.plan_jobs import plan_jobs, port_names
from control_plane.runs.queue_preemption import take_slots_back, teams_to_spare
from control_plane.runs.reward_test_policy import untested_reward
from control_plane.runs.selectors import held_ports, queue, resumable_checkpoint
from control_plane.runs.slot_requests import (
    protocol_needed,
    request_of,
    runs_own_loss,
    slot_needs,
    trainer_ranks,
)
from control_plane.runs.termination import verdict_of
from oolong.contracts.lifecycle import EndReason, RunStatus
from oolong.contracts.run_spec import RunSpec
from oolong.logs import about
from oolong.tracing import span

log = logging.getLogger(__name__)


def place_jobs(*, now: datetime) -> int:
    """Give queued runs their slots, in the scheduler's order, pool by pool; note for the others why they wait."""
    waiting = queue()
    if not waiting and not wants_engines() and not wants_evaluators():
        return 0
    send_home(now=now)
    placed = 0
    for pool in Pool.objects.order_by("name").values_list("name", flat=True):
        placed += _place_in(pool, {run.pk: run for run in waiting if run.pool == pool}, now=now)
    return placed


def _place_in(pool: str, waiting: dict[str, Run], *, now: datetime) -> int:
    snapshot = _snapshot(pool, waiting.values(), now=now)
    decided = plan(snapshot)
    placed = 0
    for placement in decided.placements:
        try:
            with (
                about(run=placement.request),
                span("start run", oolong__run=placement.request, oolong__node=placement.node),
                transaction.atomic(),
            ):
                placed += _place(placement.request, placement.node, placement.slots, now=now)
        except IntegrityError:
            # Somebody else sold one of the slots meanwhile; the next tick plans anew.
            log.warning("run %s could not be placed on %s", placement.request, placement.node, exc_info=True)
    for run_id, why in decided.waiting.items():
        run = waiting[run_id]
        if run.pending_reason != why or run.queue_position != decided.positions[run_id]:
            with transaction.atomic():
                _note_waiting(run_id, why, decided.positions[run_id], now=now)
    take_slots_back(decided, snapshot, waiting, now=now)
    left, spared = Leftover(decided, snapshot.limits), teams_to_spare(decided, snapshot, waiting)
    add_engines(left, pool=pool, spared=spared, now=now)
    add_evaluators(left, pool=pool, spared=spared, now=now)
    return placed


def _snapshot(
    pool: str, runs: Iterable[Run], *extra: Request, now: datetime, without: Node | None = None
) -> Snapshot:
    views = fleet_selectors.node_views(pool)
    return Snapshot(
        now=now,
        nodes=[view for view in views if without is None or view.id != without.pk],
        queue=[*(request_of(run) for run in runs), *extra],
        used=fleet_selectors.used_slots(pool),
        limits=fleet_selectors.limits(pool),
        pool=pool,
        teams=fleet_selectors.teams_that_may_use(pool),
    )


def fits_elsewhere(run: Run, node: Node, *, now: datetime) -> bool:
    """Whether the run, put into the queue as it is, would be placed at once on another node of its pool."""
    ahead = [other for other in queue() if other.pool == run.pool]
    decided = plan(_snapshot(run.pool, ahead, request_of(run), now=now, without=node))
    return any(placement.request == run.pk for placement in decided.placements)


def preview(caller: Caller, spec: RunSpec, *, model_path: str = "", now: datetime) -> dict[str, Any]:
    """Where a run of this spec would stand if it were submitted now. Nothing is written."""
    pool, document = spec.placement.pool, spec.model_dump(mode="json")
    asked = Request(
        id="preview", name=spec.name, team=caller.project.team_id, priority=spec.placement.priority,
        slots=spec.slots_needed, submitted_at=now, protocol=protocol_needed(spec.kind, document),
        model_path=model_path, isolated=runs_own_loss(document),
        trainer_ranks=trainer_ranks(document), **slot_needs(spec.placement),
    )  # fmt: skip
    ahead = [other for other in queue() if other.pool == pool]
    decided = plan(_snapshot(pool, ahead, asked, now=now))
    starts = any(placement.request == asked.id for placement in decided.placements)
    return {
        "starts_now": starts,
        "blocked_reason": decided.waiting.get(asked.id, ""),
        "queue_position": decided.positions.get(asked.id),
    }


def _note_waiting(run_id: str, why: str, position: int, *, now: datetime) -> None:
    run = lock_run(run_id)
    if run.status != RunStatus.QUEUED:
        return
    # A countdown changes every second; only a new kind of reason is an event.
    said_before = run.pending_reason.split(" in ")[0]
    run.pending_reason, run.queue_position = why[:400], position
    run.save(update_fields=["pending_reason", "queue_position"])
    if why.split(" in ")[0] != said_before:
        note(run, "waiting", why, at=now)
        announce_run(run)
        fleet.announce_queue()


def _place(run_id: str, node_id: str, slots: tuple[str, ...], *, now: datetime) -> bool:
    """A new attempt with its jobs and leases, all or nothing. The lease's unique index guards against a race."""
    run = lock_run(run_id)
    node = Node.objects.select_for_update(of=("self",)).select_related("pool").get(pk=node_id)
    if run.status != RunStatus.QUEUED or not node.takes_work or node.pool is None or run.pool != node.pool_id:
        return False
    if not team_may_use(node.pool_id, run.project.team_id):
        return False  # the next tick says why it waits
    spec = spec_to_start(run)
    if message := _not_allowed_any_more(run, spec, node.pool):
        fields = verdict_of(EndReason.CONFIG_REJECTED, message)
        move_run(run, RunStatus.FAILED, now=now, message=message, **fields)
        fleet.announce_queue()
        return False
    resume = resumable_checkpoint(run)
    names = port_names(spec)
    ports = fleet.allocate_ports(node, len(names), held=held_ports(node))
    attempt = Attempt.objects.create(
        run=run, number=run.attempt_number + 1, epoch=run.epoch + 1, node=node, token=new_secret(""),
        ports=dict(zip(names, ports, strict=True)),
        resume_checkpoint=resume, created_at=now, boot={"queued_at": run.status_at.timestamp()},
    )  # fmt: skip
    plans = plan_jobs(spec, slots)
    jobs = [
        Job.objects.create(
            attempt=attempt, name=job.name, kind=job.kind, index=job.index, slots=list(job.slots),
            restarts=job.restarts, grace_seconds=job.grace_seconds,
        )
        for job in plans
    ]  # fmt: skip
    fleet.grant_leases(
        node=node, team=run.project.team, holder=attempt.pk, epoch=attempt.epoch, run=run.pk, run_name=run.name,
        grants=[fleet.Grant(slot, job.pk, job.name) for job in jobs for slot in job.slots], now=now,
    )  # fmt: skip
    fleet.ring([node.pk])
    move_run(
        run, RunStatus.STARTING, now=now, message=f"attempt {attempt.number} on {node.name}",
        attempt_number=attempt.number, epoch=attempt.epoch, pending_reason="", queue_position=None, not_before=None,
        started_at=run.started_at or now, reason="", reason_message="", fault="",
        train_step=resume.step if resume else 0,
    )  # fmt: skip
    fleet.announce_leases()
    return True


def _not_allowed_any_more(run: Run, spec: RunSpec, pool: Pool) -> str:
    """What pool or project have forbidden while the run waited; empty when it may start."""
    if spec.algorithm.loss_function is not None and not pool.trainer_code:
        return f"trainer_code of pool {pool.name!r} was turned off while the run waited"
    if run.attempt_number or run.dataset_version is None:
        return ""  # who trains already goes on: a recovery is no new run
    used = {version.ref: version for version in run.functions.select_related("function")}
    untested = untested_reward(run.project, spec, used.get(spec.reward.function or ""), run.dataset_version)
    return untested.message if untested is not None else ""
