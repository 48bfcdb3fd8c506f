"""Queued runs get their slots: the scheduler decides, a transaction per run makes its attempt, jobs and leases."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction

from control_plane.accounts.caller import Caller
from control_plane.accounts.secrets import new_secret
from control_plane.fleet import selectors as fleet_selectors
from control_plane.fleet import services as fleet
from control_plane.fleet.leftover import Leftover
from control_plane.fleet.models import Node
from control_plane.fleet.scheduler import Request, Snapshot, plan
from control_plane.runs.ending import verdict_of
from control_plane.runs.engines import add_engines, spec_to_start, wants_engines
from control_plane.runs.evaluators import add_evaluators, send_home, wants_evaluators
from control_plane.runs.events import announce_run, move_run, note
from control_plane.runs.locking import lock_run
from control_plane.runs.models import Attempt, Job, Run
from control_plane.runs.plan_jobs import plan_jobs, port_names
from control_plane.runs.selectors import held_ports, queue, resumable_checkpoint
from control_plane.runs.taking_back import take_slots_back, teams_without_evaluators
from control_plane.runs.tested_rewards import untested_reward
from oolong.contracts.agent import OLDEST_PROTOCOL, SECRETS_IN_JOBS, TESTS_AND_PLAYGROUNDS
from oolong.contracts.lifecycle import EndReason, RunStatus
from oolong.contracts.run_spec import RunSpec
from oolong.logs import about
from oolong.tracing import span

log = logging.getLogger(__name__)


def place_jobs(*, now: datetime) -> int:
    """Give queued runs their slots, in the scheduler's order; note for the others why they wait."""
    waiting = {run.pk: run for run in queue()}
    if not waiting and not wants_engines() and not wants_evaluators():
        return 0
    snapshot = Snapshot(
        now=now,
        nodes=fleet_selectors.node_views(),
        queue=[_request(run) for run in waiting.values()],
        used=fleet_selectors.used_slots(),
        limits=fleet_selectors.limits(),
    )
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
        if run.waiting_why != why or run.queue_position != decided.positions[run_id]:
            with transaction.atomic():
                _note_waiting(run_id, why, decided.positions[run_id], now=now)
    take_slots_back(decided, snapshot, waiting, now=now)
    send_home(now=now)
    left = Leftover(decided, snapshot.limits)
    add_engines(left, now=now)
    add_evaluators(left, spared=teams_without_evaluators(decided, snapshot, waiting), now=now)
    return placed


def fits_elsewhere(run: Run, node: Node, *, now: datetime) -> bool:
    """Whether the run, put into the queue as it is, would be placed at once on another node."""
    decided = plan(
        Snapshot(
            now=now,
            nodes=[view for view in fleet_selectors.node_views() if view.id != node.pk],
            queue=[*map(_request, queue()), _request(run)],
            used=fleet_selectors.used_slots(),
            limits=fleet_selectors.limits(),
        )
    )
    return any(placement.request == run.pk for placement in decided.placements)


def preview(caller: Caller, spec: RunSpec, *, model_path: str = "", now: datetime) -> dict[str, Any]:
    """Where a run of this spec would stand if it were submitted now. Nothing is written."""
    asked = Request(
        id="preview", name=spec.name, team=caller.project.team_id, priority=spec.placement.priority,
        slots=spec.slots_needed, submitted_at=now, protocol=_protocol(spec.kind, secrets=bool(spec.secrets)),
        model_path=model_path, isolated=runs_own_loss(spec.model_dump()),
    )  # fmt: skip
    decided = plan(
        Snapshot(
            now=now,
            nodes=fleet_selectors.node_views(),
            queue=[*map(_request, queue()), asked],
            used=fleet_selectors.used_slots(),
            limits=fleet_selectors.limits(),
        )
    )
    starts = any(placement.request == asked.id for placement in decided.placements)
    return {
        "starts_now": starts,
        "why_not": decided.waiting.get(asked.id, ""),
        "queue_position": decided.positions.get(asked.id),
    }


def _request(run: Run) -> Request:
    return Request(
        id=run.pk, name=run.name, team=run.project.team_id, priority=run.priority, slots=run.slots_needed,
        submitted_at=run.created_at, not_before=run.not_before,
        protocol=_protocol(run.kind, secrets=bool(run.spec.get("secrets"))),
        model_path=run.base_model.path if run.base_model is not None else "",
        isolated=runs_own_loss(run.spec),
    )  # fmt: skip


def runs_own_loss(spec: Mapping[str, Any]) -> bool:
    """Whether the trainer runs an uploaded loss. Read from the stored document: this is asked at every tick."""
    return bool((spec.get("algorithm") or {}).get("loss_function"))


def _protocol(kind: str, *, secrets: bool) -> int:
    """An older agent would start jobs without the secrets, and ends at a kind of run that it does not know."""
    if kind in ("bench", "playground"):
        return TESTS_AND_PLAYGROUNDS
    return SECRETS_IN_JOBS if secrets else OLDEST_PROTOCOL


def _note_waiting(run_id: str, why: str, position: int, *, now: datetime) -> None:
    run = lock_run(run_id)
    if run.status != RunStatus.QUEUED:
        return
    # A countdown changes every second; only a new kind of reason is an event.
    said_before = run.waiting_why.split(" in ")[0]
    run.waiting_why, run.queue_position = why[:400], position
    run.save(update_fields=["waiting_why", "queue_position"])
    if why.split(" in ")[0] != said_before:
        note(run, "waiting", why, at=now)
        announce_run(run)
        fleet.announce_queue()


def _place(run_id: str, node_id: str, slots: tuple[str, ...], *, now: datetime) -> bool:
    """A new attempt with its jobs and leases, all or nothing. The lease's unique index guards against a race."""
    run = lock_run(run_id)
    node = Node.objects.select_for_update().get(pk=node_id)
    if run.status != RunStatus.QUEUED or not node.takes_work:
        return False
    spec = spec_to_start(run)
    if message := _not_allowed_any_more(run, spec):
        fields = verdict_of(EndReason.CONFIG_REFUSED, message)
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
        attempt_number=attempt.number, epoch=attempt.epoch, waiting_why="", queue_position=None, not_before=None,
        started_at=run.started_at or now, reason="", reason_message="", fault="",
        train_step=resume.step if resume else 0,
    )  # fmt: skip
    fleet.announce_leases()
    return True


def _not_allowed_any_more(run: Run, spec: RunSpec) -> str:
    """What the project has forbidden while the run waited; empty when it may start."""
    if spec.algorithm.loss_function is not None and not run.project.trainer_code:
        return f"trainer_code of project {run.project.name!r} was turned off while the run waited"
    if run.attempt_number or run.dataset_version is None:
        return ""  # who trains already goes on: a recovery is no new run
    used = {version.ref: version for version in run.functions.select_related("function")}
    untested = untested_reward(run.project, spec, used.get(spec.reward.function or ""), run.dataset_version)
    return untested.message if untested is not None else ""
