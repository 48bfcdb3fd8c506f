"""How runs are named and told in one line."""

from __future__ import annotations

from typing import Annotated

import typer

from oolong.client.models import Run

RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="id of the run (run_…)")]


def state_of(run: Run) -> str:
    """Status and what explains it, in one line."""
    if run.waiting_why and not run.ended:
        return f"{run.status}: {run.waiting_why}"
    if run.reason_message or run.reason:
        return f"{run.status}: {run.reason_message or run.reason}"
    return run.status


def step_of(run: Run) -> str:
    return f"{run.train_step}/{run.total_train_steps}" if run.total_train_steps else str(run.train_step)


def progress_line(run: Run) -> str:
    parts = [state_of(run)]
    if run.train_step:
        parts.append(f"step {step_of(run)}")
    elif run.progress is not None and not run.ended:
        parts.append(
            f"{run.progress.phase} {run.progress.done}/{run.progress.total} {run.progress.message}".rstrip()
        )
    if run.reward_mean is not None:
        parts.append(f"reward {run.reward_mean:.3f}")
    if run.staleness_mean is not None:
        parts.append(f"staleness {run.staleness_mean:.2f}")
    return "  ".join(parts)
