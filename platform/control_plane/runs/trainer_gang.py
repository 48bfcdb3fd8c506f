"""Trainers whose ranks are on several nodes (decision 0068).

The attempt's node is the head: it has the controller and rank 0. A follower is a trainer job on another node. No
trainer continues without one of its nodes, so what happens to any of them happens to the attempt.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from control_plane.fleet.models import Liveness, Node, SchedulingState
from control_plane.runs.attempt_status import Failed
from control_plane.runs.models import Attempt, Job
from oolong.contracts.lifecycle import EndReason, JobKind

RENDEZVOUS = "rendezvous"  # the port at which the ranks meet, at the head's peer address
# What a trainer ends with when it loses the ranks of another node.
_MAY_FOLLOW_A_LOSS = (EndReason.TRAINER_CRASHED, EndReason.CONTROLLER_CRASHED)


def followers(attempt: Attempt) -> list[Job]:
    """The attempt's trainer jobs on other nodes than its own, in the order of their node ranks."""
    jobs = [job for job in attempt.jobs.all() if job.is_follower]
    return sorted(jobs, key=lambda job: job.index)


def nodes_of_trainer(attempt: Attempt) -> list[Node]:
    """The nodes without which the attempt cannot continue, its own first."""
    if not attempt.spans_nodes:
        return [attempt.node]
    found = attempt.jobs.filter(kind=JobKind.TRAINER).exclude(node=None).select_related("node")
    return [attempt.node, *(job.placed_on for job in found.order_by("index"))]


def node_to_leave(attempt: Attempt, *, now: datetime) -> Node:
    """Of the nodes of its trainer, the one because of which the attempt has to leave first; else its own."""
    return min(nodes_of_trainer(attempt), key=lambda node: _urgency(node, now=now))


def _urgency(node: Node, *, now: datetime) -> int:
    draining = node.intent == SchedulingState.DRAINING
    conditions = (
        node.liveness == Liveness.LOST,
        draining and node.drain_deadline is not None and now >= node.drain_deadline,
        node.liveness != Liveness.READY,
        draining,
    )
    return next((rank for rank, holds in enumerate(conditions) if holds), len(conditions))


def is_ended_by_provider(attempt: Attempt) -> bool:
    """Whether the provider of a node ends it about now, and with it, by signals of its own, the attempt's jobs."""
    return any(
        node.ends_at is not None and node.intent == SchedulingState.DRAINING
        for node in nodes_of_trainer(attempt)
    )


def lost_node(attempt: Attempt) -> Node | None:
    return next((node for node in nodes_of_trainer(attempt) if node.liveness == Liveness.LOST), None)


def node_behind_crash(attempt: Attempt, failed: Failed, jobs: Sequence[Job], *, now: datetime) -> Node | None:
    """A node that has been silent since the trainer crashed. Ranks crash when they lose those of another node, seconds
    before that node is known to be unresponsive: until then, or until it reports, the crash has no known cause."""
    if not attempt.spans_nodes or failed.cause not in _MAY_FOLLOW_A_LOSS:
        return None
    ends = [
        job.ended_at for job in jobs if job.kind in (JobKind.TRAINER, JobKind.CONTROLLER) and job.ended_at
    ]
    since = min(ends, default=now)
    return next((node for node in nodes_of_trainer(attempt) if node.last_seen_at < since), None)
