"""Remote engines: engines of a run on other nodes than its trainer's (decision 0066).

They are elastic engines on slots that were idle, so the attempt continues without any of them: an engine that fails, or
whose node is drained, lost or silent, leaves the run. Its groups are generated on other engines, and another one joins
where a slot is idle.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from control_plane.fleet import services as fleet
from control_plane.fleet.models import Liveness, Node, SchedulingState
from control_plane.fleet.placement import meets_requirements
from control_plane.fleet.snapshot import NodeSnapshot, Request
from control_plane.runs.attempt_status import WORKING
from control_plane.runs.events import publish_run, record_event, set_condition
from control_plane.runs.locking import for_each_locked
from control_plane.runs.models import Attempt, Job, Run
from control_plane.runs.selectors import live_attempt
from control_plane.runs.termination import stop_engine
from oolong.contracts.lifecycle import AttemptStatus, EndReason, JobKind, JobState
from oolong.contracts.run_spec import RunSpec

# How long an attempt does not use a node on which an engine of it failed: doubled by each failure.
RETRY_AFTER, MAX_RETRY_AFTER = timedelta(minutes=5), timedelta(hours=2)
ENGINES_UNRESPONSIVE = (
    "ENGINES_UNRESPONSIVE"  # a condition: a node with remote engines of the run does not respond
)
_HARMLESS = ("", EndReason.COMPLETED, EndReason.STOPPED_BY_USER)


def may_have_remote_engines(spec: RunSpec, node: Node) -> bool:
    """Whether engines on other nodes may join an attempt on this node. Agent sessions reach the trainer's node only."""
    return spec.kind == "rl" and not spec.serves_sessions and bool(node.peer_address)


def nodes_for_engines(
    attempt: Attempt, request: Request, nodes: Sequence[NodeSnapshot], *, now: datetime
) -> tuple[str, ...]:
    """The attempt's node, then the nodes of its pool that reach it and where its engines can run, by name."""
    home = next((node for node in nodes if node.id == attempt.node_id), None)
    if home is None or not home.peer_network or not attempt.certificate:
        return (attempt.node_id,)
    failures = _failures(attempt)
    others = (
        node.id
        for node in sorted(nodes, key=lambda node: (node.name, node.id))
        if node is not home and node.accepts and node.peer_network == home.peer_network
        if meets_requirements(node, request) and not is_avoided(failures.get(node.id, ()), now=now)
    )
    return (home.id, *others)


def is_avoided(failures: Sequence[datetime], *, now: datetime) -> bool:
    """Whether an attempt does not use a node yet on which engines of it failed at these times."""
    if not failures:
        return False
    return now - max(failures) < min(MAX_RETRY_AFTER, RETRY_AFTER * 2 ** (len(failures) - 1))


def _failures(attempt: Attempt) -> dict[str, list[datetime]]:
    """Node → when engines of the attempt failed there."""
    found: dict[str, list[datetime]] = {}
    for job in attempt.jobs.filter(kind=JobKind.ROLLOUT, state=JobState.EXITED).exclude(node=None):
        if _has_failed(job) and job.node_id is not None and job.ended_at is not None:
            found.setdefault(job.node_id, []).append(job.ended_at)
    return found


def _has_failed(job: Job) -> bool:
    return job.reason not in _HARMLESS or (job.reason == "" and job.exit_code != 0)


def record_exit(job: Job, *, now: datetime) -> None:
    """A remote engine has exited: say so in the run's events unless it was asked to, or the run has ended."""
    if job.leaving_at is None and _has_failed(job):
        why = job.message or job.reason or f"code {job.exit_code}"
        message = f"{job.name} on {job.placed_on.name} left: {why}; its groups continue on other engines"
        record_event(job.attempt.run, "engines", message, at=now, attempt_number=job.attempt.number)


def review_remote_engines(*, now: datetime) -> None:
    """Remote engines stop on nodes that are drained, and are given up on nodes that are lost or revoked."""
    active = Job.objects.filter(kind=JobKind.ROLLOUT).exclude(node=None).exclude(state=JobState.EXITED)
    away = active.exclude(attempt__status=AttemptStatus.ENDED).exclude(
        node__liveness=Liveness.READY, node__intent__in=[SchedulingState.ACTIVE, SchedulingState.CORDONED]
    )
    conditioned = Run.objects.filter(conditions__contains=[ENGINES_UNRESPONSIVE], status__in=WORKING)
    run_ids = {*away.values_list("attempt__run_id", flat=True), *conditioned.values_list("pk", flat=True)}
    for_each_locked(sorted(run_ids), lambda run: _review(run, now=now))


def _review(run: Run, *, now: datetime) -> None:
    attempt = live_attempt(run)
    if attempt is None:
        return
    engines = attempt.jobs.filter(kind=JobKind.ROLLOUT).exclude(node=None)
    jobs = engines.exclude(state=JobState.EXITED).select_related("node")
    silent = []
    for job in jobs.order_by("pk"):
        node = job.placed_on
        if node.liveness == Liveness.LOST:
            _give_up(run, job, now=now)
        elif node.intent == SchedulingState.DRAINING and job.leaving_at is None:
            stop_engine(run, job, f"{node.name} is drained", now=now)
        elif node.liveness == Liveness.UNRESPONSIVE:
            silent.append(node.name)
    if run.status in WORKING:
        named = ", ".join(sorted(set(silent)))
        message = f"{named} does not respond; its groups continue on other engines" if silent else ""
        set_condition(
            run, ENGINES_UNRESPONSIVE, bool(silent), now=now, message=message or "all engines respond again"
        )


def _give_up(run: Run, job: Job, *, now: datetime) -> None:
    node = job.placed_on
    job.attempt.run = run  # the locked row
    job.state, job.reason, job.ended_at = JobState.EXITED, EndReason.NODE_LOST, now
    job.message = f"{node.name} {'was revoked' if node.is_revoked else 'is lost'}"
    job.save(update_fields=["state", "reason", "message", "ended_at"])
    fleet.release_jobs([job.pk], now=now)  # as the leases of the node
    record_exit(job, now=now)
    publish_run(run)
