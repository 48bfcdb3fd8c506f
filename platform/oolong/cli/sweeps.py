"""`oolong sweep …`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oolong.cli.output import JsonOption, notes, show_json, show_list, show_table
from oolong.cli.spec_file import read_spec
from oolong.client import Client
from oolong.client.models import Sweep

app = typer.Typer(no_args_is_help=True, help="Sweeps: many runs of one spec, with some fields varied.")
SweepArgument = Annotated[str, typer.Argument(help="id of the sweep (swp_…)")]
NEEDED = ("name", "spec", "plan")


@app.command()
def create(
    file: Annotated[
        Path, typer.Option("--file", "-f", help="YAML or JSON with name, spec, plan and max_parallel")
    ],
    json: JsonOption = False,
) -> None:
    """Check every point, then begin. Prints the sweep's id."""
    body = read_spec(file)
    if missing := [key for key in NEEDED if key not in body]:
        raise typer.BadParameter(f"{file} lacks {', '.join(missing)}", param_hint="--file")
    with Client() as client:
        made = client.sweeps.create(
            body["name"], body["spec"], body["plan"], max_parallel=body.get("max_parallel", 1)
        )
    show_json(made) if json else print(made.id)


@app.command("list")
def list_sweeps(json: JsonOption = False) -> None:
    """The project's sweeps, newest first."""
    with Client() as client:
        found = list(client.sweeps.list())
    show_list(
        found,
        ("ID", "NAME", "STATUS", "ENDED", "BEST", "BEST RUN"),
        lambda sweep: (
            sweep.id, sweep.name, sweep.status, f"{_ended(sweep)}/{sweep.trials}",
            sweep.best.objective if sweep.best else None,
            sweep.best.run.id if sweep.best and sweep.best.run else None,
        ),
        json=json,
    )  # fmt: skip


@app.command()
def get(sweep: SweepArgument, json: JsonOption = False) -> None:
    """The table of a sweep's trials, the best one marked."""
    with Client() as client:
        found = client.sweeps.get(sweep)
        trials = list(client.sweeps.trials(sweep))
    if json:
        show_json(
            {**found.model_dump(mode="json"), "table": [trial.model_dump(mode="json") for trial in trials]}
        )
        return
    notes.print(f"{found.name}: {found.status} {found.message}", markup=False)
    best = found.best.number if found.best else None
    show_table(
        ("", "#", "VALUES", "STATE", "STEP", "OBJECTIVE", "RUN"),
        (
            (
                "*" if trial.number == best else "", trial.number,
                " ".join(f"{pointer.rsplit('/', 1)[-1]}={value}" for pointer, value in trial.values.items()),
                trial.state, trial.train_step, trial.objective, trial.run.id if trial.run else trial.skipped or None,
            )
            for trial in trials
        ),
    )  # fmt: skip


@app.command()
def pause(sweep: SweepArgument, json: JsonOption = False) -> None:
    """No new runs, and those that it has rest."""
    with Client() as client:
        _show(client.sweeps.pause(sweep), json=json)


@app.command()
def resume(sweep: SweepArgument, json: JsonOption = False) -> None:
    """Go on with a paused sweep."""
    with Client() as client:
        _show(client.sweeps.resume(sweep), json=json)


@app.command()
def cancel(sweep: SweepArgument, json: JsonOption = False) -> None:
    """No new runs, and those that it has end without a last checkpoint."""
    with Client() as client:
        _show(client.sweeps.cancel(sweep), json=json)


def _ended(sweep: Sweep) -> int:
    return sweep.trials - sweep.counts.get("waiting", 0) - sweep.counts.get("running", 0)


def _show(sweep: Sweep, *, json: bool) -> None:
    show_json(sweep) if json else print(f"{sweep.id} is {sweep.status}")
