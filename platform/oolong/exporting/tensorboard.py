"""TensorBoard's event files, written by tensorboardX."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from oolong.exporting.points import Exported, Point, Runs, State, export

STATE = "oolong-export.json"


class NotOurs(Exception):
    """The file with the progress of the export is not valid."""


class NotInstalled(Exception):
    """A required package is missing. The message says how to install it."""


class Events:
    """One folder of a run; a new file for each export. By itself its name has only the second, hence `number`."""

    def __init__(self, folder: Path, number: int) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ImportError as error:
            raise NotInstalled("tensorboardX is not installed here: pip install tensorboardX") from error
        self._writer: Any = SummaryWriter(logdir=str(folder), filename_suffix=f".{number}")

    def write(self, step: int, points: Sequence[Point]) -> None:
        for point in points:
            self._writer.add_scalar(point.tag, point.value, global_step=step, walltime=point.at)

    def __enter__(self) -> Events:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()


def export_tensorboard(runs: Runs, run_id: str, folder: Path) -> Exported:
    """Write or complete `folder`/<run id>. Files of an earlier attempt are replaced, other files left alone."""
    run = runs.get(run_id)
    own = folder / run.id
    own.mkdir(parents=True, exist_ok=True)
    state = read_state(own / STATE, run.id, run.attempt_number)
    if state.attempt != run.attempt_number:
        for name in state.files:
            (own / name).unlink(missing_ok=True)
        state = State(run.id, run.attempt_number)
    before = {file.name for file in own.glob("events.out.tfevents.*")}
    try:
        with Events(own, len(state.files)) as events:
            done = export(runs, run.id, state, events)
    finally:
        made = {file.name for file in own.glob("events.out.tfevents.*")} - before
    if not done.points:
        for name in made:
            (own / name).unlink()
        made = set()
    state.files = sorted({*state.files, *made})
    write_state(own / STATE, state)
    return done


def read_state(file: Path, run_id: str, attempt: int) -> State:
    if not file.exists():
        return State(run_id, attempt)
    try:
        return msgspec.json.decode(file.read_bytes(), type=State)
    except msgspec.DecodeError as error:
        raise NotOurs(f"{file} is not what an export left ({error}); name another folder") from error


def write_state(file: Path, state: State) -> None:
    temporary = file.with_suffix(".new")
    temporary.write_bytes(msgspec.json.encode(state))
    temporary.replace(file)
