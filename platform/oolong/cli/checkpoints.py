"""`oolong checkpoint …`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oolong.cli.output import JsonOption, byte_progress, show_json, show_table
from oolong.client import Client

app = typer.Typer(no_args_is_help=True, help="Checkpoints that runs leave behind.")


@app.command("list")
def list_checkpoints(
    run: Annotated[str | None, typer.Option(help="only those of this run")] = None, json: JsonOption = False
) -> None:
    """Committed checkpoints, newest first."""
    with Client() as client:
        found = list(client.checkpoints.list(run_id=run))
    if json:
        show_json(found)
        return
    show_table(
        ("ID", "RUN", "STEP", "STATE", "FINAL", "BYTES"),
        (
            (item.id, item.run.name or item.run.id, item.step, item.state, item.final, item.bytes)
            for item in found
        ),
    )


@app.command()
def download(
    checkpoint: Annotated[str, typer.Argument(help="id of the checkpoint (ckpt_…)")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="file to write (default: <id>.tar)")
    ] = None,
) -> None:
    """Download a stored checkpoint as a tar archive; a broken download is gone on with."""
    target = output or Path(f"{checkpoint}.tar")
    with Client() as client, byte_progress(target.name) as progress:
        client.checkpoints.download(checkpoint, target, progress=progress)
    print(target)
