"""Lines of jobs become rows and frames, and what they say of a run reaches the run. The caller's transaction holds the
runs and moves the offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from control_plane.core.stream import event_stream
from control_plane.runs import telemetry_hooks as runs
from control_plane.runs.models import Job, Run
from control_plane.telemetry.ingest import bulk_insert
from control_plane.telemetry.ingest.lines import ReadLine
from oolong.contracts import telemetry as contract
from oolong.contracts.lifecycle import JobKind

# These touch rows of their own run only, so that transactions over several runs cannot wait in a circle.
OF_ONE_RUN = (
    contract.Points,
    contract.Histogram,
    contract.StateSnapshot,
    contract.Progress,
    contract.TrajectoryLine,
)
# The trainer measures reward and time of a step, the controller its staleness.
_MEASURES_STEPS = (JobKind.TRAINER, JobKind.CONTROLLER)

Kind = TypeVar("Kind", bound=contract.Line)


@dataclass(frozen=True)
class Taken:
    """Lines of a file of a job that are to be stored."""

    job: Job
    file: str
    lines: list[ReadLine]

    @property
    def source(self) -> str:
        return bulk_insert.source_of(self.job, self.file)

    def of(self, kind: type[Kind]) -> list[Kind]:
        return [read.line for read in self.lines if isinstance(read.line, kind)]


def store(taken: Sequence[Taken]) -> list[bulk_insert.Conflict]:
    """The caller holds the runs; of pieces of several runs no line concerns anything beyond its own."""
    conflicts = bulk_insert.insert_points(
        [(one.job, one.source, line) for one in taken for line in one.of(contract.Points)]
    )
    told = event_stream.Frames()
    for one in taken:
        conflicts += bulk_insert.insert_histograms(one.job, one.source, one.of(contract.Histogram))
        bulk_insert.put_documents(one.job, one.of(contract.StateSnapshot))
        bulk_insert.insert_trajectories(one.job, one.of(contract.TrajectoryLine))
        for read in one.lines:
            if frame := _frame(one.job, one.source, read.line):
                told.add(f"run:{one.job.attempt.run_id}", *frame)
    # From here on topics are locked until the commit: the run's own first, the list of runs last.
    if not all(isinstance(read.line, OF_ONE_RUN) for one in taken for read in one.lines):
        told.publish()
    for one in taken:
        runs.record_spent(one.job, one.of(contract.Points))
        _tell_run(one, told)
    runs.record_steps([step for one in taken if (step := _newest_step(one))], told)
    told.publish()
    return conflicts


def _tell_run(taken: Taken, told: event_stream.Frames) -> None:
    job = taken.job
    progress: contract.Progress | None = None
    for read in taken.lines:
        match read.line:
            case contract.Progress() as progress:
                pass
            case contract.Note() as line:
                runs.record_note(job, line)
            case contract.CheckpointLine() as line:
                runs.record_checkpoint_line(job, line)
            case contract.StateSnapshot(name="pipeline", value=value):
                runs.record_pipeline(job, value)
            case contract.Summary(name=name, value=value):
                runs.record_summary(job.attempt.run, job.attempt, name, value)
    if progress is not None:
        runs.record_progress(job, progress, told)


def _newest_step(taken: Taken) -> tuple[Run, int, dict[str, float]] | None:
    """Of a job that measures steps: the newest one, with the newest value of each metric."""
    if taken.job.kind not in _MEASURES_STEPS:
        return None
    steps: dict[int, dict[str, float]] = {}
    for line in taken.of(contract.Points):
        if line.axis == "step":
            finite = {name: value for name, value in line.values.items() if value is not None}
            steps.setdefault(line.x, {}).update(finite)
    newest: dict[str, float] = {}
    for step in sorted(steps):
        newest |= steps[step]
    return (taken.job.attempt.run, max(steps), newest) if steps else None


def _frame(job: Job, source: str, line: contract.AnyLine) -> tuple[str, Mapping[str, Any]] | None:
    number = job.attempt.number
    match line:
        case contract.Points():
            return "points", {
                "axis": line.axis,
                "x": line.x,
                "attempt": number,
                "source": bulk_insert.with_part(source, line.source),
                "at": line.at,
                "values": line.values,
            }
        case contract.Histogram():
            return "histogram", {
                "name": line.name, "x": line.x, "attempt": number, "source": source, "counts": line.counts,
            }  # fmt: skip
        case contract.StateSnapshot():
            return "state", {"name": line.name, "at": line.at, "value": line.value}
        case contract.TrajectoryLine():
            return "trajectory", {
                "step": line.step, "group_id": line.group_id, "reward": line.reward, "attempt": number,
            }  # fmt: skip
        case _:
            return None  # runs.records announces these itself
