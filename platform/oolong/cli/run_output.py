"""How runs are named and told in one line."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from oolong.client.models import BootStage, Run

MARKS = {"done": "✓", "active": "…", "failed": "✗", "stopped": "-", "waiting": " "}

RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="id of the run (run_…)")]


def state_of(run: Run) -> str:
    """Status, conditions and what explains them, in one line."""
    if run.pending_reason and not run.ended:
        return f"{status_of(run)}: {_first_line(run.pending_reason)}"
    if run.reason_message or run.reason:
        return f"{status_of(run)}: {_first_line(run.reason_message or run.reason)}"
    return status_of(run)


def _first_line(message: str) -> str:
    """A message without the log lines that may follow it."""
    return message.partition("\n")[0]


def status_of(run: Run) -> str:
    """`RUNNING`, `RUNNING (DEGRADED)` or `QUEUED (position 2)`."""
    position = [f"position {run.queue_position}"] if run.status == "QUEUED" and run.queue_position else []
    beside = ", ".join([*position, *run.conditions])
    return f"{run.status} ({beside})" if beside else run.status


def boot_lines(run: Run) -> list[str]:
    """The boot as a checklist with durations; empty once it is done."""
    if run.boot is None or run.boot.done:
        return []
    return [stage_line(stage) for stage in run.boot.stages]


def stage_line(stage: BootStage) -> str:
    """One line of the checklist. The detail of an open stage is its newest one."""
    seconds = stage_seconds(stage)
    parts = [f"{MARKS.get(stage.state, '?')} {stage.title}"]
    if seconds is not None:
        parts.append(f"{seconds:.0f} s")
    if stage.detail:
        parts.append(_first_line(stage.detail))
    return "  ".join(parts)


def stage_seconds(stage: BootStage) -> float | None:
    """How long it took; of the active one how long it has taken so far, by this machine's clock."""
    if stage.started_at is None:
        return None
    if stage.ended_at is None:
        if stage.state != "active":
            return None
        return max(0.0, (datetime.now(UTC) - stage.started_at).total_seconds())
    return (stage.ended_at - stage.started_at).total_seconds()


def step_of(run: Run) -> str:
    return f"{run.train_step}/{run.total_train_steps}" if run.total_train_steps else str(run.train_step)


def progress_line(run: Run) -> str:
    parts = [state_of(run)]
    if run.train_step:
        parts.append(f"step {step_of(run)}")
    elif (stage := active_stage(run)) is not None:
        parts.append(
            f"boot: {stage.title.lower()}" + (f" ({_first_line(stage.detail)})" if stage.detail else "")
        )
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
    """What a boot is at; None once it is done, and while the run waits for slots, which its status explains."""
    stages = run.boot.stages if run.boot is not None else []
    found = next((stage for stage in stages if stage.state == "active"), None)
    return None if found is None or found.name == "queue" else found


def staleness_words(run: Run) -> str | None:
    """Realized against configured."""
    if run.staleness is None or run.staleness_mean is None:
        return None if run.staleness_mean is None else f"{run.staleness_mean:.2f}"
    words = f"{run.staleness_mean:.2f} (max {run.staleness.max}, {run.staleness.on_straggler})"
    return f"{words}: {run.staleness.message}" if run.staleness.message else words
