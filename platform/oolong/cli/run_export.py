"""`oolong run export`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oolong.cli.output import JsonOption, notes, show_json
from oolong.cli.run_output import RunArgument
from oolong.client import Client
from oolong.exporting.points import Exported
from oolong.exporting.tensorboard import NotInstalled, NotOurs, export_tensorboard
from oolong.exporting.wandb import export_wandb

app = typer.Typer()


@app.command()
def export(
    run: RunArgument,
    tensorboard: Annotated[
        Path | None, typer.Option(metavar="DIR", help="write TensorBoard's event files to DIR/<run id>")
    ] = None,
    wandb: Annotated[
        str | None,
        typer.Option(metavar="PROJECT", help="log to a W&B project, offline unless WANDB_MODE says online"),
    ] = None,
    wandb_dir: Annotated[Path, typer.Option(help="where W&B keeps its files")] = Path("."),
    json: JsonOption = False,
) -> None:
    """Write a run's measurements by train step for other tools. Again: only what is new since then."""
    if tensorboard is None and wandb is None:
        raise typer.BadParameter("say --tensorboard DIR or --wandb PROJECT")
    done: dict[str, Exported] = {}
    try:
        with Client() as client:
            if tensorboard is not None:
                done["tensorboard"] = export_tensorboard(client.runs, run, tensorboard)
            if wandb is not None:
                done["wandb"] = export_wandb(client.runs, run, wandb, wandb_dir)
    except (NotInstalled, NotOurs) as error:
        raise typer.BadParameter(str(error)) from error
    if json:
        show_json({name: {"points": one.points, "left_out": one.left_out} for name, one in done.items()})
        return
    for name, one in done.items():
        left_out = f"; {one.left_out} were not finite and are left out" if one.left_out else ""
        notes.print(f"{name}: {one.points} points of {len(one.steps)} steps{left_out}", markup=False)
