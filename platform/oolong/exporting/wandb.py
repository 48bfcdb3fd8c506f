"""Weights & Biases. Offline unless WANDB_MODE says otherwise: `wandb sync` sends it then."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from oolong.client.models import Run
from oolong.exporting.points import Exported, Point, Runs, State, export
from oolong.exporting.tensorboard import NotInstalled, read_state, write_state


class WandbRun:
    def __init__(self, run: Run, project: str, folder: Path, state: State) -> None:
        try:
            import wandb
        except ImportError as error:
            raise NotInstalled("wandb is not installed here: pip install wandb") from error
        # An attempt begins a run of its own there: a step that was logged cannot be logged again.
        identity = run.id if state.attempt <= 1 else f"{run.id}-{state.attempt}"
        self._run: Any = wandb.init(
            project=project, id=identity, name=run.name, config=run.spec, tags=list(run.tags), resume="allow",
            dir=str(folder), mode=os.environ.get("WANDB_MODE", "offline"),
        )  # fmt: skip

    def write(self, step: int, points: Sequence[Point]) -> None:
        self._run.log({point.tag: point.value for point in points}, step=step)

    def finish(self) -> None:
        self._run.finish()


def export_wandb(runs: Runs, run_id: str, project: str, folder: Path) -> Exported:
    """Log the run to a W&B project. A repeated export sends only new points."""
    run = runs.get(run_id)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{run.id}.wandb-export.json"
    state = read_state(file, run.id, run.attempt_number)
    if state.attempt != run.attempt_number:
        state = State(run.id, run.attempt_number)
    target = WandbRun(run, project, folder, state)
    try:
        done = export(runs, run.id, state, target)
    finally:
        target.finish()
    write_state(file, state)
    return done
