"""Describe runs in single lines."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from oolong.client.models import BootStage, Eta, Run

MARKS = {"done": "✓", "active": "…", "failed": "✗", "stopped": "-", "waiting": " "}

RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="id of the run (run_…)")]


def state_of(run: Run) -> str:
    """Status, conditions and their cause, in one line."""
    cause = _cause(run)
    return f"{status_of(run)}: {cause}" if cause else status_of(run)


def _cause(run: Run) -> str:
    pending = "" if run.ended else run.pending_reason
    return _first_line(pending or run.reason_message or run.reason or "")


def _first_line(message: str) -> str:
    """A message without the log lines that may follow it."""
    return message.partition("\n")[0]


def status_of(run: Run) -> str:
    """`RUNNING`, `RUNNING (DEGRADED)` or `QUEUED (position 2)`."""
    position = [f"position {run.queue_position}"] if run.status == "QUEUED" and run.queue_position else []
    beside = ", ".join([*position, *run.conditions])
    return f"{run.status} ({beside})" if beside else run.status


def boot_lines(run: Run) -> list[str]:
    """The boot as a checklist with durations, to print below `state_of`; empty once it is done."""
    if run.boot is None or run.boot.done:
        return []
    return [stage_line(stage, shown=_cause(run)) for stage in run.boot.stages]


def stage_line(stage: BootStage, *, shown: str = "") -> str:
    """One line of the checklist, with the latest detail but without the cause that is already `shown`."""
    seconds = stage_seconds(stage)
    parts = [f"{MARKS.get(stage.state, '?')} {stage.title}"]
    if seconds is not None:
        parts.append(f"{seconds:.0f} s")
    if detail := _detail(stage, shown):
        parts.append(detail)
    return "  ".join(parts)


def _detail(stage: BootStage, shown: str) -> str:
    detail = _first_line(stage.detail)
    return detail.replace(shown, "").strip(" :") if shown else detail


def stage_seconds(stage: BootStage) -> float | None:
    """Duration of the stage; of the active one the time so far, by the local clock."""
    if stage.started_at is None:
        return None
    if stage.ended_at is None:
        if stage.state != "active":
            return None
        return max(0.0, (datetime.now(UTC) - stage.started_at).total_seconds())
    return (stage.ended_at - stage.started_at).total_seconds()


def eta_text(eta: Eta) -> str:
    """`2026-01-01 12:20 UTC, by 13:05 UTC with 90 %`; what is unknown is said as unknown."""
    if eta.p50 is None and eta.p90 is None:
        return f"unknown: {eta.message}" if eta.message else "unknown"
    if eta.p50 is None:
        return f"at the latest {_minute(eta.p90)}"
    late = "" if eta.p90 is None else f", by {_minute(eta.p90)} with 90 %"
    return f"about {_minute(eta.p50)}{late}"


def _minute(at: datetime | None) -> str:
    return "" if at is None else f"{at:%Y-%m-%d %H:%M} UTC"


def step_of(run: Run) -> str:
    return f"{run.train_step}/{run.total_train_steps}" if run.total_train_steps else str(run.train_step)


def progress_line(run: Run) -> str:
    parts = [state_of(run)]
    if run.train_step:
        parts.append(f"step {step_of(run)}")
    elif (stage := active_stage(run)) is not None:
        detail = _detail(stage, _cause(run))
        parts.append(f"boot: {stage.title.lower()}" + (f" ({detail})" if detail else ""))
    elif run.progress is not None and not run.ended:
        parts.append(
            f"{run.progress.phase} {run.progress.done}/{run.progress.total} {run.progress.message}".rstrip()
        )
    if run.reward_mean is not None:
        parts.append(f"reward {run.reward_mean:.3f}")
    if run.staleness_mean is not None:
        parts.append(f"staleness {run.staleness_mean:.2f}")
    return "  ".join(parts)


def active_stage(run: Run) -> BootStage | None:
    """The active boot stage; None when the boot is done or the run waits for slots, which its status explains."""
    stages = run.boot.stages if run.boot is not None else []
    found = next((stage for stage in stages if stage.state == "active"), None)
    return None if found is None or found.name == "queue" else found


def staleness_words(run: Run) -> str | None:
    """Realized against configured."""
    if run.staleness is None or run.staleness_mean is None:
        return None if run.staleness_mean is None else f"{run.staleness_mean:.2f}"
    words = f"{run.staleness_mean:.2f} (max {run.staleness.max}, {run.staleness.on_straggler})"
    return f"{words}: {run.staleness.message}" if run.staleness.message else words
