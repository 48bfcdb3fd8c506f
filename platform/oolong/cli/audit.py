"""`oolong audit …`"""

from __future__ import annotations

from itertools import islice
from typing import Annotated

import typer

from oolong.cli.output import JsonOption, show_json, show_table
from oolong.client import Client

app = typer.Typer(no_args_is_help=True, help="Who did what in the project.")


@app.command("list")
def list_entries(
    actor: Annotated[str | None, typer.Option(help="id or name of who did it")] = None,
    action: Annotated[str | None, typer.Option(help="run.stop, or run.* for all of runs")] = None,
    target: Annotated[str | None, typer.Option(help="id or name of what it was done to")] = None,
    since: Annotated[str | None, typer.Option(help="not before this moment: 2026-11-20T10:00:00Z")] = None,
    until: Annotated[str | None, typer.Option(help="before this moment")] = None,
    limit: Annotated[int, typer.Option(min=1, help="how many")] = 50,
    json: JsonOption = False,
) -> None:
    """The newest entries."""
    with Client() as client:
        entries = client.audit.list(actor=actor, action=action, target=target, since=since, until=until)
        found = list(islice(entries, limit))
    if json:
        show_json(found)
        return
    show_table(
        ("AT", "WHO", "FROM", "ACTION", "TARGET", "MESSAGE"),
        (
            (
                entry.at, entry.actor.name or entry.actor.kind, entry.address, entry.action,
                entry.target.name or entry.target.id, entry.message,
            )
            for entry in found
        ),
    )  # fmt: skip
