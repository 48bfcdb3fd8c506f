"""`oolong project …`"""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from oolong.cli.output import JsonOption, show_fields, show_json, show_table
from oolong.client import Client
from oolong.client.models import Project

app = typer.Typer(no_args_is_help=True, help="The project of your token, and what it allows.")


@app.command()
def show(json: JsonOption = False) -> None:
    """The project and its settings."""
    with Client() as client:
        _print(client.project.get(), json=json)


@app.command("set")
def set_project(
    trainer_code: Annotated[
        Literal["on", "off"], typer.Option(help="whether runs may bring losses, which run inside the trainer")
    ],
    json: JsonOption = False,
) -> None:
    """Change a setting; only an admin may, and the change is written down."""
    with Client() as client:
        _print(client.project.set_trainer_code(trainer_code == "on"), json=json)


@app.command()
def events(json: JsonOption = False) -> None:
    """Who changed what, newest first."""
    with Client() as client:
        found = list(client.project.events())
    if json:
        show_json(found)
        return
    show_table(("AT", "KIND", "MESSAGE"), ((event.at, event.kind, event.message) for event in found))


def _print(project: Project, *, json: bool) -> None:
    if json:
        show_json(project)
        return
    show_fields(
        {
            "project": f"{project.team.name}/{project.name}",
            "trainer code": "on" if project.trainer_code else "off",
        }
    )
