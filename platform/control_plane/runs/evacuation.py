"""Moves runs off a node that is drained or revoked, and ends there what cannot move.

A run with a trainer saves a checkpoint and returns to the queue as `preempted`, so that no drain makes a run fail. Runs
without a trainer have nothing to save: an evaluation starts over on another node, playgrounds and reward tests end.
With a deadline they may finish until then.
"""

from __future__ import annotations

from datetime import datetime

from django.db.models import Q

from control_plane.fleet.models import Liveness, Node
from control_plane.runs.attempt_status import WORKING
from control_plane.runs.events import set_condition
from control_plane.runs.locking import for_each_locked
from control_plane.runs.models import Attempt, Job, Run
from control_plane.runs.reconciler import reconcile_run
from control_plane.runs.selectors import may_stay_until_deadline
from control_plane.runs.spec_resolution import DEDICATED_ENDPOINTS
from control_plane.runs.termination import fail_attempt, request_preemption, request_stop, shorten_grace
from oolong.contracts.lifecycle import AttemptStatus, EndReason, JobKind, RunStatus

NODE_DRAINING = "NODE_DRAINING"  # a condition: the run may stay on its node until the deadline of the drain


def evacuate_node(node: Node, *, now: datetime) -> None:
    """Fence the attempts on a revoked node and queue their runs for other nodes. Locked runs wait for the next tick."""
    trained_there = Job.objects.filter(node=node, kind=JobKind.TRAINER).values("attempt")
    found = Attempt.objects.filter(Q(node=node) | Q(pk__in=trained_there))
    live = found.exclude(status=AttemptStatus.ENDED).order_by("run_id")

    def leave(run: Run) -> None:
        reconcile_run(run, now=now)  # ends the attempt
        reconcile_run(run, now=now)  # fences it, and the run goes back to the queue

    for_each_locked(list(live.values_list("run_id", flat=True)), leave)


def leave_draining_node(run: Run, attempt: Attempt, node: Node, *, now: datetime) -> None:
    """Before the deadline: runs with a trainer leave at once, which leaves them time to save and upload."""
    if not may_stay_until_deadline(attempt):
        leave_node(run, attempt, f"{node.name} is drained", now=now)
        return
    until = f"{node.drain_deadline:%Y-%m-%d %H:%M} UTC"
    message = f"{node.name} is drained: the run may stay until {until}, then it {_end_of(run)}"
    set_condition(run, NODE_DRAINING, True, now=now, message=message)


def leave_node(run: Run, attempt: Attempt, why: str, *, now: datetime) -> None:
    """Move a run that is STARTING or RUNNING to another node, after a checkpoint if it has trained. Playgrounds and
    reward tests end. No effect on a run that is leaving already."""
    if run.kind in DEDICATED_ENDPOINTS:
        request_stop(run, EndReason.PREEMPTED, why, now=now)
    elif attempt.reason:
        return
    elif run.status == RunStatus.STARTING:  # nothing to save, and jobs that have not started must not start
        fail_attempt(run, attempt, EndReason.PREEMPTED, why, now=now)
    else:
        request_preemption(run, attempt, why, now=now)


def end_at_deadline(run: Run, attempt: Attempt, node: Node, *, now: datetime) -> None:
    """Stop the jobs that are left, whatever they still had to save. A run continues from its last stored checkpoint."""
    why = f"the deadline to drain {node.name} has passed"
    if run.status in WORKING and run.kind in DEDICATED_ENDPOINTS:
        request_stop(run, EndReason.PREEMPTED, why, now=now)
    elif run.status in WORKING and (node.liveness != Liveness.READY or not attempt.reason):
        fail_attempt(run, attempt, EndReason.PREEMPTED, why, now=now)
    shorten_grace(run, why, now=now)


def _end_of(run: Run) -> str:
    return "ends" if run.kind in DEDICATED_ENDPOINTS else "starts over on another node"
