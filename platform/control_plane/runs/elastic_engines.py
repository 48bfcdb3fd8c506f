"""Elastic engines: changes the number of engines of a running run.

At each scheduler tick, a run that wants more engines gets idle slots: on its node, then on nodes that reach it
(runs.remote_engines). A run that wants fewer stops its youngest engines. Workers pull their claims, so other engines do
not notice.

An engine that joined a running run did not wait in the queue, so its slot is borrowed: when a queued run needs the
slot, the engine is preempted (runs.slot_holders) and joins again when a slot is idle. The engines with which the
attempt started stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from django.db import transaction

from control_plane.fleet import services as fleet
from control_plane.fleet.access import team_may_use
from control_plane.fleet.models import Node
from control_plane.fleet.snapshot import Loan, LoanRequest, NodeSnapshot
from control_plane.runs.drain import on_silent_node
from control_plane.runs.events import publish_run, record_event, set_condition
from control_plane.runs.locking import lock_run
from control_plane.runs.models import Attempt, Job, Run
from control_plane.runs.plan_jobs import GRACE_SECONDS, IN_PLACE_RESTARTS
from control_plane.runs.remote_engines import nodes_for_engines
from control_plane.runs.selectors import held_ports, live_attempt, next_rollout_index
from control_plane.runs.slot_requests import request_of, sort_runs
from control_plane.runs.termination import stop_engine
from oolong.contracts.lifecycle import AttemptStatus, JobKind, JobState, RunStatus
from oolong.contracts.run_spec import RunSpec

ENGINES_WAITING = "ENGINES_WAITING"  # a condition: the run wants more engines than it finds idle slots


def spec_of_next_attempt(run: Run) -> RunSpec:
    """The run's spec with the number of engines of its next attempt: the spec's own number, or fewer when fewer are
    requested. Additional engines join later, on idle slots."""
    spec = RunSpec.model_validate(run.spec)
    wanted = run.live.get("engines")
    if spec.kind != "rl" or wanted is None or wanted >= spec.rollout.engines:
        return spec
    return spec.model_copy(update={"rollout": spec.rollout.model_copy(update={"engines": wanted})})


def scale_engines(run: Run, attempt: Attempt | None, wanted: int, *, now: datetime) -> None:
    """Apply a new number of engines. The caller has locked the run and set `run.live`."""
    run.slots_needed = spec_of_next_attempt(run).slots_needed
    run.save(update_fields=["slots_needed"])
    if attempt is None or run.status not in (RunStatus.STARTING, RunStatus.RUNNING):
        return
    staying = _active_engines(attempt)
    leaving = staying[wanted:]
    if leaving:
        Job.objects.filter(pk__in=[job.pk for job in leaving]).update(leaving_at=now, stop_asked_at=now)
        names = ", ".join(job.name for job in leaving)
        record_event(run, "engines", f"{names} stops; {wanted} continue", at=now, engines=wanted)
    if len(staying) >= wanted:
        set_condition(run, ENGINES_WAITING, False, now=now)


def joined_engines(pool: str) -> list[Job]:
    """Running engines that joined runs of the pool after their start, oldest first."""
    found = (
        Job.objects.filter(kind=JobKind.ROLLOUT, engine_port__gt=0, evaluates="", attempt__node__pool=pool)
        .exclude(state=JobState.EXITED)
        .exclude(attempt__status=AttemptStatus.ENDED)
        .select_related("attempt__run__project", "attempt__node", "node")
    )
    return list(found.order_by("pk"))


def reclaim_engine(job: Job, *, now: datetime) -> bool:
    """Stop an engine that joined later, because a queued run needs its slot. False when it is stopping already."""
    with transaction.atomic():
        run = lock_run(job.attempt.run_id)
        return stop_engine(run, job, "a run in the queue needs its slot", now=now)


def engine_requests(pool: str, nodes: Sequence[NodeSnapshot], *, now: datetime) -> list[LoanRequest]:
    """Attempts of the pool that want more engines, in the order of the queue. `nodes` are those of the pool."""
    found = []
    devices = {node.id: slot.device for node in nodes for slot in (*node.free, *node.held)}
    for run in _runs_wanting_engines(pool):
        attempt = live_attempt(run)
        if attempt is not None and (missing := _missing(run, attempt)) > 0:
            # All engines of an attempt compute on the same kind of device.
            request = replace(request_of(run), device=devices.get(attempt.node_id, ""))
            where = nodes_for_engines(attempt, request, nodes, now=now)
            found.append(LoanRequest(attempt.pk, "engines", request, where, missing))
    return found


def release_excess_engines(pool: str, *, now: datetime) -> None:
    """Stop engines beyond the requested number. A run that has all of them again, because a node responds again, waits
    for none."""
    for run in _runs_wanting_engines(pool):
        with transaction.atomic():
            locked = lock_run(run.pk)
            attempt = live_attempt(locked)
            if attempt is None or (missing := _missing(locked, attempt)) > 0:
                continue
            if missing < 0 or ENGINES_WAITING in locked.conditions:
                scale_engines(locked, attempt, locked.live["engines"], now=now)


def _runs_wanting_engines(pool: str) -> list[Run]:
    running = Run.objects.filter(
        status=RunStatus.RUNNING, live__engines__gte=1, spec__placement__pool=pool
    ).select_related("project__team", "base_model", "initial_checkpoint__base_model")
    return sort_runs(running)


def any_run_wants_engines() -> bool:
    return Run.objects.filter(status=RunStatus.RUNNING, live__engines__gt=1).exists()


def join_engines(loan: Loan, *, now: datetime) -> int:
    """Add rollout jobs with leases and ports to an active attempt, up to the requested number. Returns how many; 0 when
    the run or node has changed. Raises IntegrityError when a slot was leased concurrently."""
    with transaction.atomic():
        run = lock_run(Attempt.objects.values_list("run_id", flat=True).get(pk=loan.request.attempt))
        attempt = Attempt.objects.select_related("node").get(pk=loan.request.attempt)
        if run.status != RunStatus.RUNNING or attempt.status == AttemptStatus.ENDED:
            return 0
        if not team_may_use(attempt.node.pool_id, run.project.team_id):
            return 0
        missing = max(0, _missing(run, attempt))
        by_node: dict[str, list[str]] = {}
        for node_id, slot in loan.slots[:missing]:
            by_node.setdefault(node_id, []).append(slot)
        joined = 0
        nodes = {
            node.pk: node for node in Node.objects.select_for_update().filter(pk__in=by_node).order_by("pk")
        }
        for node_id, slots in by_node.items():
            node = nodes[node_id]
            if node.takes_work and node.pool_id == attempt.node.pool_id:
                _create_jobs(run, attempt, node, slots, now=now)
                joined += len(slots)
        short = joined < missing
        message = "all requested engines have joined"
        if short:
            where = (
                f"{attempt.node.name} and the nodes that reach it"
                if attempt.peer_address
                else attempt.node.name
            )
            message = f"waits for more idle slots on {where}, for {run.live['engines']} engines"
        set_condition(run, ENGINES_WAITING, short, now=now, message=message)
        if joined:
            publish_run(run)
            fleet.publish_lease_change()
        return joined


def _create_jobs(run: Run, attempt: Attempt, node: Node, slots: Sequence[str], *, now: datetime) -> None:
    spec = RunSpec.model_validate(run.spec)
    remote = node.pk != attempt.node_id
    first = next_rollout_index(attempt)
    kinds = ["engine", "session"] if spec.serves_sessions else ["engine"]
    ports = fleet.allocate_ports(node, len(slots) * len(kinds), held=held_ports(node))
    grants = []
    for index, slot in enumerate(slots, start=first):
        own = {kind: ports.pop(0) for kind in kinds}
        job = Job.objects.create(
            attempt=attempt, name=f"rollout-{index}", kind=JobKind.ROLLOUT, index=index, slots=[slot],
            restarts=IN_PLACE_RESTARTS, grace_seconds=GRACE_SECONDS, engine_port=own["engine"],
            session_port=own.get("session", 0), node=node if remote else None,
        )  # fmt: skip
        if not remote:
            attempt.ports |= {f"{kind}-{index}": port for kind, port in own.items()}
        grants.append(fleet.Grant(slot, job.pk, job.name))
    attempt.save(update_fields=["ports"])
    fleet.grant_leases(
        node=node, project=run.project, holder=attempt.pk, epoch=attempt.epoch, run=run.pk, run_name=run.name,
        grants=grants, now=now,
    )  # fmt: skip
    fleet.notify_nodes([node.pk])
    names = ", ".join(grant.job_name for grant in grants)
    record_event(
        run, "engines", f"{names} joins on {', '.join(slots)} of {node.name}", at=now, slots=list(slots)
    )


def _missing(run: Run, attempt: Attempt) -> int:
    """How many engines the attempt lacks; negative when it has too many."""
    wanted: int = run.live["engines"]
    return wanted - len(_active_engines(attempt))


def _active_engines(attempt: Attempt) -> list[Job]:
    """The attempt's engines that are not stopping, oldest first, without evaluators. Those on nodes that do not respond
    do not count: others replace them."""
    found = attempt.jobs.filter(kind=JobKind.ROLLOUT, leaving_at=None).exclude(state=JobState.EXITED)
    return [job for job in found.select_related("node").order_by("index") if not on_silent_node(job)]
