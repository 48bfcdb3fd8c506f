"""Applies telemetry of jobs to runs. Called inside telemetry's ingest transaction, which has locked the Run row first
(see the lock order in common.live)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from django.db import connection

from control_plane.checkpoints import registry as catalog
from control_plane.checkpoints.models import Checkpoint
from control_plane.checkpoints.serializers import CheckpointSerializer
from control_plane.core.stream import event_stream
from control_plane.experiments.models import RewardTest
from control_plane.runs.evaluation import evaluation_metrics
from control_plane.runs.events import record_event
from control_plane.runs.models import Attempt, Job, Run
from control_plane.runs.slot_usage import slot_usage
from control_plane.runs.token_ledger import read_token_ledger
from oolong.contracts.lifecycle import JobKind
from oolong.contracts.rollout import BOOT_MILESTONES, is_task_id
from oolong.contracts.telemetry import CheckpointLine, Note, Points, Progress

_COLUMNS = {
    "policy/version": "policy_version",
    "reward/mean": "reward_mean",
    "staleness/mean": "staleness_mean",
}

SEARCHABLE_PREFIXES = (
    "reward/",
    "staleness/",
    "response_length/",
    "policy/",
    "group/",
    "mismatch/",
    "loss/",
    "sft/",
    "dpo/",
)


BOOT_FAILED, BOOT_SUCCEEDED = "engine_boot_failed", "engine_serves"  # kinds of rollout workers' notes
MAX_BOOT_MESSAGE_LENGTH = 2500  # of a boot failure, including the end of its log

_SAVE_STEPS = """
UPDATE runs_run SET metrics = new.metrics::jsonb, train_step = new.train_step, policy_version = new.policy_version,
       reward_mean = new.reward_mean, staleness_mean = new.staleness_mean
FROM unnest(%(ids)s::text[], %(metrics)s::text[], %(steps)s::bigint[], %(versions)s::bigint[], %(rewards)s::float8[],
            %(staleness)s::float8[]) AS new(id, metrics, train_step, policy_version, reward_mean, staleness_mean)
WHERE runs_run.id = new.id
"""
_SAVE_OFFSETS = """
UPDATE runs_job SET outbox_read = outbox_read || new.read::jsonb
FROM unnest(%s::text[], %s::text[]) AS new(id, read) WHERE runs_job.id = new.id
"""


def record_steps(
    measured: Iterable[tuple[Run, int, dict[str, float]]], events: event_stream.EventBatch
) -> None:
    """Update runs with their newest train steps: (run, step, values of that step)."""
    changed = {run.pk: run for run, step, values in measured if _apply_step(run, step, values)}
    if not changed:
        return
    runs = [changed[identity] for identity in sorted(changed)]
    with connection.cursor() as cursor:
        cursor.execute(
            _SAVE_STEPS,
            {
                "ids": [run.pk for run in runs],
                "metrics": [msgspec.json.encode(run.metrics).decode() for run in runs],
                "steps": [run.train_step for run in runs],
                "versions": [run.policy_version for run in runs],
                "rewards": [run.reward_mean for run in runs],
                "staleness": [run.staleness_mean for run in runs],
            },
        )
    for run in runs:
        events.add(
            f"runs:{run.project_id}",
            "progress",
            {
                "id": run.pk, "train_step": run.train_step, "total_train_steps": run.steps_planned,
                "policy_version": run.policy_version, "reward_mean": run.reward_mean,
                "staleness_mean": run.staleness_mean,
            },
        )  # fmt: skip


def _apply_step(run: Run, step: int, values: dict[str, float]) -> bool:
    """Set the run's columns. False when nothing changed."""
    newer = step >= run.train_step
    fields: dict[str, Any] = {}
    searchable = {name: value for name, value in values.items() if _is_searchable(name, newer=newer)}
    if searchable:
        fields["metrics"] = run.metrics | searchable
    if step > run.train_step:
        fields["train_step"] = step
    for name, column in _COLUMNS.items():
        if newer and name in values:
            fields[column] = int(values[name]) if column == "policy_version" else values[name]
    for column, value in fields.items():
        setattr(run, column, value)
    return bool(fields)


def _is_searchable(name: str, *, newer: bool) -> bool:
    """Whether runs can be searched by this value. Evaluations may be of versions older than the newest step."""
    return name.startswith("eval/") or (newer and name.startswith(SEARCHABLE_PREFIXES))


def record_progress(job: Job, line: Progress, events: event_stream.EventBatch) -> None:
    run = job.attempt.run
    run.progress = {"phase": line.phase, "done": line.done, "total": line.total, "message": line.message}
    run.save(update_fields=["progress"])
    events.add(f"run:{run.pk}", "progress", {"job": job.name, **run.progress})


def record_note(job: Job, line: Note) -> None:
    if line.kind in (BOOT_FAILED, BOOT_SUCCEEDED):
        _record_boot(job, line)
    record_event(
        job.attempt.run, line.kind, f"{job.name}: {line.message}",
        at=_timestamp(line.at), attempt_number=job.attempt.number,
    )  # fmt: skip


def _record_boot(job: Job, line: Note) -> None:
    """Record the engines whose last boot failed (runs.boot)."""
    attempt = job.attempt
    failures = {name: why for name, why in attempt.boot.get("failed_boots", {}).items() if name != job.name}
    if line.kind == BOOT_FAILED:
        failures[job.name] = line.message[:MAX_BOOT_MESSAGE_LENGTH]
    if failures != attempt.boot.get("failed_boots", {}):
        attempt.boot = {**attempt.boot, "failed_boots": failures}
        attempt.save(update_fields=["boot"])


def record_checkpoint_line(job: Job, line: CheckpointLine) -> Checkpoint:
    """A checkpoint was committed on its node: create its LOCAL row once."""
    attempt, run = job.attempt, job.attempt.run
    checkpoint, created = Checkpoint.objects.get_or_create(
        attempt_id=attempt.pk,
        manifest_sha256=line.manifest_sha256,
        defaults={
            "project": run.project, "run_id": run.pk, "run_name": run.name, "attempt_number": attempt.number,
            "node_id": attempt.node_id, "step": line.step, "final": line.final, "bytes": line.bytes,
            "kind": catalog.kind_of(run.kind, final=line.final),
            "parent": attempt.resume_checkpoint, **run.checkpoint_content, "created_at": _timestamp(line.at),
            "metrics": {"reward_mean": run.reward_mean, "staleness_mean": run.staleness_mean},
        },
    )  # fmt: skip
    if created:
        message = f"checkpoint of step {line.step} committed on the node"
        record_event(run, "checkpoint_local", message, at=_timestamp(line.at), attempt_number=attempt.number)
        event_stream.publish(f"run:{run.pk}", "checkpoint", CheckpointSerializer.render(checkpoint))
    elif line.final and not checkpoint.final:
        checkpoint.final, checkpoint.kind = True, catalog.kind_of(run.kind, final=True)
        checkpoint.save(update_fields=["final", "kind"])
    return checkpoint


def record_summary(run: Run, attempt: Attempt, name: str, value: dict[str, Any]) -> None:
    """Store a summary of the run; the newest attempt wins."""
    if run.summary_attempts.get(name, 0) > attempt.number:
        return
    run.summary[name] = value
    run.summary_attempts[name] = attempt.number
    run.save(update_fields=["summary", "summary_attempts"])
    event_stream.publish(f"run:{run.pk}", "state", {"name": f"summary/{name}", "value": value})
    if name == "reward_test" and run.kind == "reward_test":
        RewardTest.objects.filter(run=run).update(report=value, result=str(value.get("result", ""))[:8])
    if name == "evaluation" and run.kind == "eval" and run.initial_checkpoint_id is not None:
        catalog.note_measured(run.initial_checkpoint_id, evaluation_metrics(value))


def record_pipeline(job: Job, document: Mapping[str, Any]) -> None:
    """Apply the controller's pipeline state, whose shape is not validated."""
    match document:
        case {"tokens": {"generated": int()} as tokens}:
            record_tokens(job, tokens)
    match document:
        case {"milestones": dict(milestones)} if job.kind == JobKind.CONTROLLER:
            _record_milestones(job.attempt, milestones)
    match document:
        case {"evaluator_wanted": str(wanted)} if job.kind == JobKind.CONTROLLER:
            _record_evaluator_wanted(job.attempt, wanted)


def _record_milestones(attempt: Attempt, milestones: Mapping[str, Any]) -> None:
    """Record boot milestones (runs.boot). The first report of each milestone counts."""
    known = attempt.boot.get("milestones", {})
    new = {
        name: milestones[name]
        for name in BOOT_MILESTONES
        if name not in known and isinstance(milestones.get(name), (int, float))
    }
    if new:
        attempt.boot = {**attempt.boot, "milestones": {**known, **new}}
        attempt.save(update_fields=["boot"])


def _record_evaluator_wanted(attempt: Attempt, wanted: str) -> None:
    if wanted == attempt.evaluator_wanted:
        return
    if wanted and not is_task_id(wanted):
        return
    attempt.evaluator_wanted = wanted
    attempt.save(update_fields=["evaluator_wanted"])


def record_tokens(job: Job, tokens: Mapping[str, Any]) -> None:
    """Record the run's token ledger so far; the next attempt's ledger starts from it. Older reports change nothing."""
    attempt, found = job.attempt, read_token_ledger(tokens)
    if found is None or found.generated < attempt.tokens_generated:
        return
    new = {
        "tokens_generated": found.generated, "tokens_trained": found.trained,
        "tokens_wasted": sum(found.dropped.values()) + found.lost,
        "tokens_dropped": found.dropped, "tokens_lost": found.lost, "tokens_in_flight": found.in_flight,
    }  # fmt: skip
    if all(getattr(attempt, name) == value for name, value in new.items()):
        return
    for name, value in new.items():
        setattr(attempt, name, value)
    attempt.save(update_fields=list(new))


def record_slot_usage(job: Job, points: Sequence[Points]) -> None:
    """Add the time that the job spent by phase."""
    usage = slot_usage(job.kind, points, measured_to=job.measured_to)
    if not usage:
        return
    job.working_seconds += usage.working
    job.waiting_seconds += usage.waiting
    job.syncing_seconds += usage.syncing
    if usage.measured_to is not None:
        job.measured_to = usage.measured_to
    job.save(update_fields=["working_seconds", "waiting_seconds", "syncing_seconds", "measured_to"])


def record_read_offsets(reached: Iterable[tuple[Job, str, int]]) -> None:
    """Record how many bytes of jobs' files are stored: outbox files, or "output.log#<incarnation>"."""
    offsets: dict[str, dict[str, int]] = {}
    for job, file, offset in reached:
        if offset > job.outbox_read.get(file, 0):
            job.outbox_read[file] = offsets.setdefault(job.pk, {})[file] = offset
    if offsets:
        jobs = sorted(offsets)
        with connection.cursor() as cursor:
            cursor.execute(
                _SAVE_OFFSETS, (jobs, [msgspec.json.encode(offsets[job]).decode() for job in jobs])
            )


def _timestamp(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)
