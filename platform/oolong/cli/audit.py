"""`oolong audit …`"""

from __future__ import annotations

import os
import sys
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal

import typer

from oolong.cli.output import JsonOption, show_done, show_list
from oolong.client import Client

app = typer.Typer(no_args_is_help=True, help="Who did what in the project.")


Actor = Annotated[str | None, typer.Option(help="id or name of who did it")]
Action = Annotated[str | None, typer.Option(help="run.stop, or run.* for all of runs")]
Target = Annotated[str | None, typer.Option(help="id or name of what it was done to")]
Since = Annotated[str | None, typer.Option(help="not before this moment: 2026-11-20T10:00:00Z")]
Until = Annotated[str | None, typer.Option(help="before this moment")]


@app.command("list")
def list_entries(
    actor: Actor = None,
    action: Action = None,
    target: Target = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option(min=1, help="how many")] = 50,
    json: JsonOption = False,
) -> None:
    """The newest entries."""
    with Client() as client:
        entries = client.audit.list(actor=actor, action=action, target=target, since=since, until=until)
        found = list(islice(entries, limit))
    show_list(
        found,
        ("AT", "WHO", "FROM", "ACTION", "TARGET", "MESSAGE"),
        lambda entry: (
            entry.at, entry.actor.name or entry.actor.kind, entry.address, entry.action,
            entry.target.name or entry.target.id, entry.message,
        ),
        json=json,
    )  # fmt: skip


@app.command()
def export(
    output: Annotated[Path, typer.Option("--output", "-o", help="file to write; - is stdout")],
    form: Annotated[Literal["jsonl", "csv"], typer.Option("--format", help="jsonl proves itself")] = "jsonl",
    actor: Actor = None,
    action: Action = None,
    target: Target = None,
    since: Since = None,
    until: Until = None,
    json: JsonOption = False,
) -> None:
    """The whole log, oldest first. The file is there when all of it is."""
    with Client() as client:
        pieces = client.audit.export(
            format=form, actor=actor, action=action, target=target, since=since, until=until
        )
        if str(output) == "-":
            for data in pieces:
                sys.stdout.write(data.decode())
            return
        part = output.with_name(output.name + ".part")
        try:
            with part.open("wb") as file:
                file.writelines(pieces)
            os.replace(part, output)
        finally:
            part.unlink(missing_ok=True)
    show_done(f"wrote {output}", {"file": str(output)}, json=json)
