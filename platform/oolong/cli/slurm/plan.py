"""Decides which Slurm jobs to submit and to cancel, and which nodes to remove: a pure function."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from oolong.cli.slurm.types import Limits, Plan, PoolNode, QueuedRun, Situation

# Runs that wait for these reasons start once there are more slots. Others wait for a quota, a budget or their time.
NEEDS_SLOTS = frozenset({"never_fits", "capacity", "behind", "reserved", "maintenance"})
PENDING = "PENDING"
# Slurm lists a job in these states for a while, but its processes are ending.
ENDING = frozenset(
    {"COMPLETING", "STAGE_OUT", "CANCELLED", "COMPLETED", "FAILED", "TIMEOUT", "PREEMPTED", "NODE_FAIL"}
)
SETTLE = timedelta(seconds=15)  # until the queue is planned with the slots of a new node
SILENCE = timedelta(seconds=20)  # a living agent reports more often


@dataclass
class _Supply:
    """Slots that the queue was not planned with yet."""

    job: str  # "": to be submitted
    pending: bool
    free: int
    used: bool = False


def plan(situation: Situation, limits: Limits) -> Plan:
    node_of = {node.job: node for node in situation.nodes}
    alive = [job for job in situation.jobs if job.state not in ENDING]
    supplies = _supplies(situation, limits, node_of)
    unsuitable, notes, submit = set(situation.unsuitable), [], 0
    unsuitable &= {run.key for run in situation.queue}
    left = max(0, limits.max_nodes - len(alive))
    for run in situation.queue:
        if run.code is not None and run.code not in NEEDS_SLOTS:
            continue
        if run.device not in ("", limits.device):
            continue
        if run.slots > limits.slots:
            notes.append(
                f"{run.name} needs {run.slots} slots on one node, and a node of this provider has {limits.slots}"
            )
            continue
        if run.key in unsuitable or _did_not_help(run, situation):
            unsuitable.add(run.key)
            notes.append(f"{run.name} fits no node of this provider: see why it waits in the pool's queue")
            continue
        supply = next((one for one in supplies if one.free >= run.slots), None)
        if supply is None and run.code is not None and submit < left:
            submit += 1
            supply = _Supply("", pending=True, free=limits.slots)
            supplies.append(supply)
        elif supply is None and run.code is not None:
            notes.append(f"{run.name} waits: --max-nodes {limits.max_nodes} Slurm jobs are there already")
        if supply is not None:
            supply.free, supply.used = supply.free - run.slots, True
    listed = {job.id for job in situation.jobs}
    gone = situation.own - listed
    return Plan(
        submit=submit,
        cancel=tuple(one.job for one in supplies if one.job and one.pending and not one.used),
        remove=tuple(
            node.id
            for node in situation.nodes
            if node.job in gone and situation.now - node.last_seen_at >= SILENCE
        ),
        admit=tuple(job.id for job in alive if job.state != PENDING and job.id not in node_of),
        forget=tuple(sorted(gone - set(node_of))),
        unsuitable=frozenset(unsuitable),
        notes=tuple(notes),
    )


def _supplies(situation: Situation, limits: Limits, node_of: dict[str, PoolNode]) -> list[_Supply]:
    """Nodes that have just joined first, then jobs that run, then pending ones, the oldest first."""
    fresh, starting, pending = [], [], []
    for job in sorted(situation.jobs, key=lambda job: (len(job.id), job.id)):
        node = node_of.get(job.id)
        if job.state in ENDING:
            continue
        if job.state == PENDING:
            pending.append(_Supply(job.id, pending=True, free=limits.slots))
        elif node is None:
            starting.append(_Supply(job.id, pending=False, free=limits.slots))
        elif node.status == "READY" and situation.now - node.enrolled_at < SETTLE:
            fresh.append(_Supply(job.id, pending=False, free=node.free_slots))
    return [*fresh, *starting, *pending]


def _did_not_help(run: QueuedRun, situation: Situation) -> bool:
    """Whether it cannot run on an idle node of this provider, for another reason than its slots: a model of GPU, a
    directory. Another node of the same kind would not help either."""
    return run.code == "never_fits" and any(
        node.job in situation.own
        and node.status == "READY"
        and node.all_free
        and node.free_slots >= run.slots
        and situation.now - node.enrolled_at >= SETTLE
        for node in situation.nodes
    )
