"""How runs look in the API and on the stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from control_plane.checkpoints.models import Checkpoint
from control_plane.core.infra.clock import rfc3339
from control_plane.core.stream import event_stream
from control_plane.runs.boot import boot_as_json
from control_plane.runs.models import Attempt, Job, Run, RunEvent
from control_plane.runs.selectors import newest_stored_checkpoint, newest_stored_checkpoints
from control_plane.runs.staleness import staleness_as_json
from oolong.contracts.lifecycle import OUTCOMES, EndReason, RunStatus
from oolong.contracts.rollout import version_of_task

LIVE_FIELDS = ("max_staleness", "max_concurrent_groups", "learning_rate", "engines")


def runs_as_json(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """A page of runs; their latest checkpoints are fetched together."""
    latest = newest_stored_checkpoints(runs)
    return [_run_as_json(run, latest.get(run.pk)) for run in runs]


def run_as_json(run: Run) -> dict[str, Any]:
    """A run as lists and the stream show it: everything but `metrics_seq`."""
    return _run_as_json(run, newest_stored_checkpoint(run))


def _run_as_json(run: Run, latest: Checkpoint | None) -> dict[str, Any]:
    return {
        "id": run.pk,
        "name": run.name,
        "kind": run.kind,
        "status": str(run.status),
        "status_at": rfc3339(run.status_at),
        "reason": str(run.reason),
        "reason_message": run.reason_message,
        "advice": OUTCOMES[EndReason(run.reason)].advice if run.reason else "",
        "fault": str(run.fault),
        "conditions": run.conditions,
        "pending_reason": run.pending_reason,
        "queue_position": run.queue_position,
        "priority": run.priority,
        "slots_needed": run.slots_needed,
        "attempt_number": run.attempt_number,
        "train_step": run.train_step,
        "total_train_steps": run.steps_planned,
        "policy_version": run.policy_version,
        "progress": run.progress,
        "reward_mean": run.reward_mean,
        "staleness_mean": run.staleness_mean,
        "spec": run.spec,
        "dataset": _dataset(run),
        "model": model_as_json(run),
        "created_by": run.created_by.username,
        "created_at": rfc3339(run.created_at),
        "started_at": rfc3339(run.started_at),
        "ended_at": rfc3339(run.ended_at),
        "paused_seconds": run.paused_seconds,
        "live": {name: run.live.get(name) for name in LIVE_FIELDS},
        "notes": run.notes,
        "tags": run.tags,
        "parent": (
            {"id": run.parent.pk, "name": run.parent.name, "relation": run.relation} if run.parent else None
        ),
        "latest_checkpoint": {"id": latest.pk, "step": latest.step} if latest else None,
        "summary": run.summary,
    }


def run_detail_as_json(run: Run) -> dict[str, Any]:
    """With the stream's position: subscribe to run:<id> after it and nothing is missed."""
    return {
        "metrics_seq": event_stream.current_seq(f"run:{run.pk}"),
        **run_as_json(run),
        "boot": boot_as_json(run),
        "staleness": staleness_as_json(run),
    }


def event_as_json(event: RunEvent) -> dict[str, Any]:
    return {
        "id": f"evt_{event.pk:012d}",
        "kind": event.kind,
        "message": event.message,
        "attempt_number": event.attempt_number,
        "at": rfc3339(event.at),
        "data": event.data,
    }


def attempt_as_json(attempt: Attempt) -> dict[str, Any]:
    return {
        "id": attempt.pk,
        "number": attempt.number,
        "epoch": attempt.epoch,
        "status": str(attempt.status),
        "node": {"id": attempt.node_id, "name": attempt.node.name},
        "reason": str(attempt.reason),
        "message": attempt.message,
        "resume_checkpoint": attempt.resume_checkpoint_id,
        "created_at": rfc3339(attempt.created_at),
        "running_at": rfc3339(attempt.running_at),
        "ended_at": rfc3339(attempt.ended_at),
    }


def job_as_json(job: Job) -> dict[str, Any]:
    return {
        "id": job.pk,
        "name": job.name,
        "kind": job.kind,
        "attempt_number": job.attempt.number,
        "state": str(job.state),
        "node": {"id": job.attempt.node_id, "name": job.attempt.node.name},
        "slots": job.slots,
        "evaluates": version_of_task(job.evaluates) if job.evaluates else None,
        "incarnation": job.incarnation,
        "pid": job.pid,
        "exit_code": job.exit_code,
        "reason": str(job.reason),
        "message": job.message,
        "started_at": rfc3339(job.started_at),
        "ended_at": rfc3339(job.ended_at),
    }


def _dataset(run: Run) -> dict[str, Any]:
    if run.dataset_version is None:  # a draft: as it is written
        return {"id": "", "ref": run.spec["dataset"]["version"]}
    return {"id": run.dataset_version_id, "ref": run.dataset_version.ref}


def model_as_json(run: Run) -> dict[str, Any]:
    if run.status == RunStatus.DRAFT:
        written = run.spec["model"]
        kind = "base_model" if written["base_model"] is not None else "checkpoint"
        return {"kind": kind, "id": "", "name": written[kind]}
    if run.base_model is not None:
        return {"kind": "base_model", "id": run.base_model.pk, "name": run.base_model.name}
    assert run.initial_checkpoint is not None
    checkpoint = run.initial_checkpoint
    return {
        "kind": "checkpoint", "id": checkpoint.pk,
        "name": f"{checkpoint.run_name} step {checkpoint.step}",
    }  # fmt: skip
