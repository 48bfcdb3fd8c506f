"""How many engines a run has while it goes on: slots are leased into its attempt, or given back one by one.

A run that wants more takes what the queue leaves idle on its node, at the next tick of the scheduler; a run that wants
fewer asks its youngest engines to leave. Workers pull their claims, so either is nothing special to the others.

An engine that joined a running run did not wait in the queue, so its slot is borrowed: when a run in the queue needs
it, the engine leaves (runs.taking_back), and joins again when a slot is idle. The engines that the attempt was placed
with stay.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime

from django.db import IntegrityError, transaction

from control_plane.fleet import services as fleet
from control_plane.fleet.access import team_may_use
from control_plane.fleet.idle_slots import Leftover
from control_plane.fleet.models import Node
from control_plane.runs.events import announce_run, note, set_condition
from control_plane.runs.locking import lock_run
from control_plane.runs.models import Attempt, Job, Run
from control_plane.runs.plan_jobs import GRACE_SECONDS, RESTARTS_IN_PLACE
from control_plane.runs.selectors import held_ports, live_attempt, next_rollout_index
from control_plane.runs.slot_requests import in_order, request_of
from oolong.contracts.agent import JOINING_ENGINES
from oolong.contracts.lifecycle import AttemptStatus, JobKind, JobState, RunStatus
from oolong.contracts.run_spec import RunSpec

log = logging.getLogger(__name__)
WAITING = "ENGINES_WAITING"  # a condition: it wants more engines than there are idle slots on its node


def spec_to_start(run: Run) -> RunSpec:
    """The run's spec with as many engines as its next attempt begins with: the spec's own, or fewer when fewer are
    wanted by now. What is wanted beyond that joins later, from idle slots."""
    spec = RunSpec.model_validate(run.spec)
    wanted = run.live.get("engines")
    if spec.kind != "rl" or wanted is None or wanted >= spec.rollout.engines:
        return spec
    return spec.model_copy(update={"rollout": spec.rollout.model_copy(update={"engines": wanted})})


def change_engines(run: Run, attempt: Attempt | None, wanted: int, *, now: datetime) -> None:
    """Take the new number over. The run is locked, and `run.live` says it already."""
    run.slots_needed = spec_to_start(run).slots_needed
    run.save(update_fields=["slots_needed"])
    if attempt is None or run.status not in (RunStatus.STARTING, RunStatus.RUNNING):
        return
    staying = _staying(attempt)
    leaving = staying[wanted:]
    if leaving:
        Job.objects.filter(pk__in=[job.pk for job in leaving]).update(leaving_at=now, stop_asked_at=now)
        names = ", ".join(job.name for job in leaving)
        note(run, "engines", f"{names} leaves; {wanted} go on", at=now, engines=wanted)
    if len(staying) >= wanted:
        set_condition(run, WAITING, False, now=now)


def joined_engines(pool: str) -> list[Job]:
    """Engines that joined running runs of the pool and have not exited, the oldest first."""
    found = (
        Job.objects.filter(kind=JobKind.ROLLOUT, engine_port__gt=0, evaluates="", attempt__node__pool=pool)
        .exclude(state=JobState.EXITED)
        .exclude(attempt__status=AttemptStatus.ENDED)
        .select_related("attempt__run__project")
    )
    return list(found.order_by("pk"))


def take_back(job: Job, *, now: datetime) -> bool:
    """Ask an engine that joined to leave, because a run in the queue needs its slot. False when it leaves already."""
    with transaction.atomic():
        run = lock_run(job.attempt.run_id)
        staying = Job.objects.filter(pk=job.pk, leaving_at=None, stop_asked_at=None)
        if not staying.exclude(state=JobState.EXITED).update(leaving_at=now, stop_asked_at=now):
            return False
        fleet.ring([job.attempt.node_id])
        note(run, "engines", f"{job.name} leaves: a run in the queue needs its slot", at=now)
        announce_run(run)
    return True


def add_engines(left: Leftover, *, pool: str, spared: frozenset[str], now: datetime) -> int:
    """Lease slots that the queue leaves idle into the pool's attempts that want more engines, and none to the teams in
    `spared`, which would have to give it back at once."""
    added = 0
    for run in _wanting(pool):
        attempt = live_attempt(run)
        if attempt is None:
            continue
        missing = _missing(run, attempt)
        if missing < 0:
            with transaction.atomic():
                _give_back(run.pk, now=now)
        if missing <= 0:
            continue
        team = run.project.team_id
        free = left.slots(attempt.node_id, request_of(run), missing) if team not in spared else ()
        try:
            with transaction.atomic():
                joined = _join(run.pk, attempt.pk, free, now=now)
        except IntegrityError:
            # Somebody else leased one of the slots meanwhile; the next tick looks anew.
            log.warning("no engine could join run %s", run.pk, exc_info=True)
            continue
        if joined:
            left.take(attempt.node_id, team, free[:joined])
            added += joined
    return added


def _wanting(pool: str) -> list[Run]:
    running = Run.objects.filter(
        status=RunStatus.RUNNING, live__engines__gte=1, spec__placement__pool=pool
    ).select_related("project__team", "base_model")
    return in_order(running)


def wants_engines() -> bool:
    return Run.objects.filter(status=RunStatus.RUNNING, live__engines__gt=1).exists()


def _give_back(run_id: str, *, now: datetime) -> None:
    """Ask engines beyond the number that is wanted to leave."""
    run = lock_run(run_id)
    attempt = live_attempt(run)
    if attempt is not None and _missing(run, attempt) < 0:
        change_engines(run, attempt, run.live["engines"], now=now)


def _join(run_id: str, attempt_id: str, idle: Sequence[str], *, now: datetime) -> int:
    """New rollout jobs in a live attempt, with their leases and ports: as many as are wanted by now. Returns how many;
    0 when it is no longer as it was seen."""
    run = lock_run(run_id)
    attempt = Attempt.objects.select_related("node").get(pk=attempt_id)
    node = Node.objects.select_for_update().get(pk=attempt.node_id)
    if run.status != RunStatus.RUNNING or attempt.status == AttemptStatus.ENDED:
        return 0
    if not node.takes_work or not team_may_use(node.pool_id, run.project.team_id):
        return 0
    missing = max(0, _missing(run, attempt))
    slots = idle[:missing]
    short = len(slots) < missing
    if node.protocol < JOINING_ENGINES:
        slots, short = (), missing > 0
    if slots:
        _make_jobs(run, attempt, node, slots, now=now)
    said = f"it waits for more idle slots on {node.name}, for {run.live['engines']} engines"
    if node.protocol < JOINING_ENGINES:
        said = f"the agent on {node.name} is too old to take engines in; upgrade it, or place the run anew"
    set_condition(run, WAITING, short, now=now, message=said if short else "it has the engines that it wants")
    if slots:
        announce_run(run)
        fleet.announce_leases()
    return len(slots)


def _make_jobs(run: Run, attempt: Attempt, node: Node, slots: Sequence[str], *, now: datetime) -> None:
    spec = RunSpec.model_validate(run.spec)
    first = next_rollout_index(attempt)
    kinds = ["engine", "session"] if spec.serves_sessions else ["engine"]
    ports = fleet.allocate_ports(node, len(slots) * len(kinds), held=held_ports(node))
    grants = []
    for index, slot in enumerate(slots, start=first):
        own = {kind: ports.pop(0) for kind in kinds}
        job = Job.objects.create(
            attempt=attempt, name=f"rollout-{index}", kind=JobKind.ROLLOUT, index=index, slots=[slot],
            restarts=RESTARTS_IN_PLACE, grace_seconds=GRACE_SECONDS, engine_port=own["engine"],
            session_port=own.get("session", 0),
        )  # fmt: skip
        attempt.ports |= {f"{kind}-{index}": port for kind, port in own.items()}
        grants.append(fleet.Grant(slot, job.pk, job.name))
    attempt.save(update_fields=["ports"])
    fleet.grant_leases(
        node=node, team=run.project.team, holder=attempt.pk, epoch=attempt.epoch, run=run.pk, run_name=run.name,
        grants=grants, now=now,
    )  # fmt: skip
    fleet.ring([node.pk])
    names = ", ".join(grant.job_name for grant in grants)
    note(run, "engines", f"{names} joins on {', '.join(slots)} of {node.name}", at=now, slots=list(slots))


def _missing(run: Run, attempt: Attempt) -> int:
    """How many engines the attempt lacks; below zero when it has more than are wanted."""
    wanted: int = run.live["engines"]
    return wanted - len(_staying(attempt))


def _staying(attempt: Attempt) -> list[Job]:
    """The engines that the attempt has and keeps, oldest first. Evaluators are none of them."""
    found = attempt.jobs.filter(kind=JobKind.ROLLOUT, leaving_at=None).exclude(state=JobState.EXITED)
    return list(found.order_by("index"))
