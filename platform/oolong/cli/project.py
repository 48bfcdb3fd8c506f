"""`oolong project …`"""

from __future__ import annotations

from typing import Annotated, Literal

import typer
from typer.exceptions import TyperException

from oolong.cli.output import JsonOption, notes, show_done, show_fields, show_json, show_list
from oolong.client import Client
from oolong.client.models import Project

app = typer.Typer(no_args_is_help=True, help="The project of your token, and what it allows.")


@app.command()
def get(json: JsonOption = False) -> None:
    """The project and its settings."""
    with Client() as client:
        _print(client.project.get(), json=json)


@app.command("list")
def list_projects(json: JsonOption = False) -> None:
    """Projects of the team that you have a role in."""
    with Client() as client:
        found = list(client.project.list())
    show_list(found, ("ID", "TEAM", "NAME"), lambda row: (row.id, row.team.name, row.name), json=json)


@app.command()
def create(name: Annotated[str, typer.Argument()], json: JsonOption = False) -> None:
    """Make a project in your team; only its admins may. `oolong token create --project` makes a token for it."""
    with Client() as client:
        made = client.project.create(name)
    show_json(made) if json else notes.print(f"{made.team.name}/{made.name} is {made.id}", markup=False)


@app.command()
def rename(name: Annotated[str, typer.Argument()], json: JsonOption = False) -> None:
    """Give the project of your token another name."""
    with Client() as client:
        project = client.project.rename(name)
    show_done(f"the project is called {name} now", project, json=json)


@app.command("set")
def set_project(
    tested_rewards: Annotated[
        Literal["on", "off"] | None, typer.Option(help="whether an rl run needs a green test of its reward")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Change a setting; only an admin may, and the change is written down."""
    if tested_rewards is None:
        raise TyperException("give --tested-rewards")
    with Client() as client:
        _print(client.project.set_tested_rewards(tested_rewards == "on"), json=json)


@app.command()
def events(json: JsonOption = False) -> None:
    """Who changed what, newest first."""
    with Client() as client:
        found = list(client.project.events())
    show_list(
        found, ("AT", "KIND", "MESSAGE"), lambda event: (event.at, event.kind, event.message), json=json
    )


def _print(project: Project, *, json: bool) -> None:
    if json:
        show_json(project)
        return
    show_fields(
        {
            "project": f"{project.team.name}/{project.name}",
            "tested rewards": "on" if project.tested_rewards else "off",
        }
    )
