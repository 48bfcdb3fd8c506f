"""All reads of runs, attempts, jobs and checkpoints."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db.models import QuerySet

from control_plane.accounts.identity.caller import Caller
from control_plane.checkpoints.models import Checkpoint, CheckpointKind, CheckpointState
from control_plane.core.api.errors import or_not_found
from control_plane.fleet import selectors as fleet
from control_plane.fleet.models import Node, Pool, SchedulingState
from control_plane.runs.eta import forecasts_of, start_of
from control_plane.runs.models import Attempt, Job, Run, RunEvent, jobs_on
from control_plane.runs.slot_requests import sort_runs
from oolong.contracts.lifecycle import AttemptStatus, JobKind, JobState, RunStatus

RELATED = (
    "dataset_version__dataset", "base_model", "initial_checkpoint__base_model", "resume_checkpoint", "created_by",
    "project__team", "parent",
)  # fmt: skip


def runs(caller: Caller) -> QuerySet[Run]:
    return Run.objects.filter(project=caller.project).select_related(*RELATED)


def run_for(caller: Caller, run_id: str) -> Run:
    """The run. 404 both for unknown runs and for runs of other projects."""
    return or_not_found(runs(caller).filter(pk=run_id).first(), "run", run_id)


def status_of(run_id: str) -> str | None:
    """The current status, without an access check."""
    return Run.objects.filter(pk=run_id).values_list("status", flat=True).first()


def events(run: Run) -> QuerySet[RunEvent]:
    return run.events.all()


def attempts(run: Run) -> QuerySet[Attempt]:
    return run.attempts.select_related("node")


def jobs(run: Run) -> QuerySet[Job]:
    """Jobs of all attempts, those of the newest attempt last."""
    return (
        Job.objects.filter(attempt__run=run)
        .select_related("attempt__node", "node")
        .order_by("attempt__number", "pk")
    )


def checkpoints(caller: Caller, run_id: str = "") -> QuerySet[Checkpoint]:
    found = Checkpoint.objects.filter(project=caller.project)
    return found.filter(run_id=run_id) if run_id else found


def newest_stored_checkpoint(run: Run) -> Checkpoint | None:
    return newest_stored_checkpoints([run]).get(run.pk)


def resumable_checkpoint(run: Run) -> Checkpoint | None:
    """The checkpoint from which the next attempt resumes: the newest stored training state, else the initial one."""
    own = Checkpoint.objects.filter(run_id=run.pk, state=CheckpointState.STORED, kind=CheckpointKind.TRAINING)
    return own.order_by("-step", "-stored_at", "-pk").first() or run.resume_checkpoint


def newest_stored_checkpoints(runs: Iterable[Run]) -> dict[str, Checkpoint]:
    """Run ID → newest stored checkpoint, in one query."""
    newest = (
        Checkpoint.objects.filter(run_id__in=[run.pk for run in runs], state=CheckpointState.STORED)
        .order_by("run_id", "-step", "-stored_at", "-pk")
        .distinct("run_id")
    )
    return {checkpoint.run_id: checkpoint for checkpoint in newest}


def live_attempt(run: Run) -> Attempt | None:
    return run.attempts.exclude(status=AttemptStatus.ENDED).select_related("node").first()


def nodes_of(attempt: Attempt) -> set[str]:
    """IDs of the nodes on which the attempt has or had jobs."""
    remote = attempt.jobs.exclude(node=None).values_list("node_id", flat=True)
    return {attempt.node_id, *(node for node in remote if node is not None)}


def held_ports(node: Node) -> set[int]:
    """Ports of active attempts on the node, including engines that joined later. A run may outlast a full round of the
    port range."""
    live = Attempt.objects.filter(node=node).exclude(status=AttemptStatus.ENDED)
    held = {port for ports in live.values_list("ports", flat=True) for port in ports.values()}
    joined = jobs_on(node).exclude(attempt__status=AttemptStatus.ENDED).filter(engine_port__gt=0)
    return held | set(joined.values_list("engine_port", flat=True))


def next_rollout_index(attempt: Attempt) -> int:
    """The index of the next engine or evaluator that joins an active attempt. No index is reused."""
    return 1 + max(attempt.jobs.filter(kind=JobKind.ROLLOUT).values_list("index", flat=True))


def queue() -> list[Run]:
    """Queued runs of all projects."""
    return list(
        Run.objects.filter(status=RunStatus.QUEUED)
        .select_related(*RELATED)
        .order_by("-priority", "created_at", "pk")
    )


def pool(caller: Caller, pool: Pool) -> dict[str, Any]:
    """Slots, nodes, quota and queue of a pool as one team sees them, for PoolSerializer. Other teams' runs are
    nameless."""
    entries = []
    # In the order of the last plan; runs that no plan has seen yet come last.
    queued = sort_runs(run for run in queue() if run.pool == pool.pk)
    queued.sort(key=lambda run: (run.queue_position is None, run.queue_position))
    forecasts, shown = forecasts_of(queued), fleet.pool(caller, pool)
    for position, run in enumerate(queued, start=1):
        own = run.project.team_id == caller.project.team_id
        entries.append(
            {
                "run_id": run.pk if own else "",
                "name": run.name if own else "another team's run",
                "priority": run.priority,
                "slots_needed": run.slots_needed,
                "device": (run.spec.get("placement") or {}).get("device") or "",
                "code": (run.pending_code or None)
                if run.pending_reason and (own or shown["may_manage"])
                else None,
                "why": (run.pending_reason or "not looked at yet") if own else "",
                "position": run.queue_position or position,
                "start": start_of(run, forecasts.get(run.pk)),
                "submitted_at": run.created_at,
            }
        )
    return {**shown, "queue": entries, "leaving": _leaving(caller, pool)}


def may_stay_until_deadline(attempt: Attempt) -> bool:
    """Whether a drain of its node lets the attempt finish until the deadline: only one without a trainer may."""
    return attempt.node.drain_deadline is not None and all(
        job.kind != JobKind.TRAINER for job in attempt.jobs.all()
    )


def _leaving(caller: Caller, pool: Pool) -> list[dict[str, Any]]:
    """Runs on nodes that are drained, for LeavingRunSerializer."""
    attempts = (
        Attempt.objects.filter(node__pool=pool, node__intent=SchedulingState.DRAINING)
        .exclude(status=AttemptStatus.ENDED)
        .select_related("node", "run__project")
        .prefetch_related("jobs")
        .order_by("node__name", "run_id")
    )
    found = []
    for attempt in attempts:
        own = attempt.run.project.team_id == caller.project.team_id
        jobs = attempt.jobs.all()
        stopping = attempt.reason or any(job.stop_asked_at and not job.leaving_at for job in jobs)
        stays = may_stay_until_deadline(attempt) and not stopping
        ended = all(job.state == JobState.EXITED for job in jobs)
        found.append(
            {
                "node": attempt.node,
                "run_id": attempt.run_id if own else "",
                "run_name": attempt.run.name if own else "another team's run",
                "stage": "uploading" if ended else "staying" if stays else "stopping",
            }
        )
    return found
