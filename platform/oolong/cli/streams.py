"""`oolong stream …`"""

from __future__ import annotations

import sys
from contextlib import closing
from typing import Annotated

import typer

from oolong.cli.output import JsonOption, show_json
from oolong.client import Client

app = typer.Typer(no_args_is_help=True, help="What happens, as it happens.")


@app.command()
def follow(
    topic: Annotated[str, typer.Argument(help="run:<id>, run:<id>:logs, runs or pool")],
    after: Annotated[
        int | None, typer.Option(min=0, help="begin after this number; only new ones without")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="leave after so many frames")] = None,
) -> None:
    """Frames of a topic, one JSON object a line; a run's end with the run."""
    with Client() as client, closing(client.stream(topic, after_seq=after)) as frames:
        for number, frame in enumerate(frames, start=1):
            sys.stdout.write(frame.model_dump_json() + "\n")
            sys.stdout.flush()
            if number == limit:
                return


@app.command()
def ticket(json: JsonOption = False) -> None:
    """What opens one stream, once and within a minute, for a page or program that can send no header."""
    with Client() as client:
        made = client.stream_ticket()
    show_json(made) if json else print(made.ticket)
