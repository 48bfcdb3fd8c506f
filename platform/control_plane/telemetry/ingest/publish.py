"""Publish persisted lines: events for the live stream, and what they change in their runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from control_plane.core.stream import event_stream as live
from control_plane.runs import telemetry_hooks
from control_plane.runs.models import Job, Run
from control_plane.telemetry.ingest import bulk_insert
from control_plane.telemetry.ingest.persist import FreshLines
from oolong.contracts import telemetry as contract
from oolong.contracts.lifecycle import JobKind

# Lines that change rows of their own run only: a transaction over several runs takes no others, so that two of them
# cannot wait for each other.
SINGLE_RUN_LINES = (
    contract.Points,
    contract.Histogram,
    contract.StateSnapshot,
    contract.Progress,
    contract.TrajectoryLine,
    contract.Spans,
)
# The trainer measures reward and time of a step, the controller its staleness.
_STEP_JOBS = (JobKind.TRAINER, JobKind.CONTROLLER)


def publish(batch: Sequence[FreshLines]) -> None:
    """The caller holds the runs. A batch of several runs has SINGLE_RUN_LINES only."""
    events = live.EventBatch()
    for fresh in batch:
        for parsed in fresh.good:
            if event := _event(fresh.job, fresh.source, parsed.line):
                events.add(f"run:{fresh.job.attempt.run_id}", *event)
    # Topics stay locked until the commit: the run's own first, the list of runs last.
    if not all(isinstance(parsed.line, SINGLE_RUN_LINES) for fresh in batch for parsed in fresh.good):
        events.publish()
    for fresh in batch:
        telemetry_hooks.record_slot_usage(fresh.job, fresh.of_type(contract.Points))
        _update_run(fresh, events)
    telemetry_hooks.record_steps([step for fresh in batch if (step := _newest_step(fresh))], events)
    events.publish()


def _update_run(fresh: FreshLines, events: live.EventBatch) -> None:
    job = fresh.job
    progress: contract.Progress | None = None
    for parsed in fresh.good:
        match parsed.line:
            case contract.Progress() as progress:
                pass
            case contract.Note() as line:
                telemetry_hooks.record_note(job, line)
            case contract.CheckpointLine() as line:
                telemetry_hooks.record_checkpoint_line(job, line)
            case contract.StateSnapshot(name="pipeline", value=value):
                telemetry_hooks.record_pipeline(job, value)
            case contract.Summary(name=name, value=value):
                telemetry_hooks.record_summary(job.attempt.run, job.attempt, name, value)
    if progress is not None:
        telemetry_hooks.record_progress(job, progress, events)


def _newest_step(fresh: FreshLines) -> tuple[Run, int, dict[str, float]] | None:
    """Of a job that measures steps: the newest step, with the newest value of each metric."""
    if fresh.job.kind not in _STEP_JOBS:
        return None
    steps: dict[int, dict[str, float]] = {}
    for line in fresh.of_type(contract.Points):
        if line.axis == "step":
            finite = {name: value for name, value in line.values.items() if value is not None}
            steps.setdefault(line.x, {}).update(finite)
    newest: dict[str, float] = {}
    for step in sorted(steps):
        newest |= steps[step]
    return (fresh.job.attempt.run, max(steps), newest) if steps else None


def _event(job: Job, source: str, line: contract.AnyLine) -> tuple[str, Mapping[str, Any]] | None:
    attempt = job.attempt.number
    match line:
        case contract.Points():
            return "points", {
                "axis": line.axis,
                "x": line.x,
                "attempt": attempt,
                "source": bulk_insert.with_part(source, line.source),
                "at": line.at,
                "values": line.values,
            }
        case contract.Histogram():
            return "histogram", {
                "name": line.name, "x": line.x, "attempt": attempt, "source": source, "counts": line.counts,
            }  # fmt: skip
        case contract.StateSnapshot():
            return "state", {"name": line.name, "at": line.at, "value": line.value}
        case contract.TrajectoryLine():
            return "trajectory", {
                "step": line.step, "group_id": line.group_id, "reward": line.reward, "attempt": attempt,
            }  # fmt: skip
        case _:
            return None  # runs.telemetry_hooks publishes these itself
