"""`oolong team …`"""

from __future__ import annotations

from typing import Annotated

import typer

from oolong.cli.output import JsonOption, show_done, show_fields, show_json, show_table
from oolong.client import Client

app = typer.Typer(no_args_is_help=True, help="Teams: yours, and for who administers the installation all.")


@app.command("list")
def list_teams(json: JsonOption = False) -> None:
    """Teams that you belong to."""
    with Client() as client:
        found = list(client.teams.list())
    show_json(found) if json else show_table(("ID", "NAME"), ((team.id, team.name) for team in found))


@app.command()
def create(name: Annotated[str, typer.Argument()], json: JsonOption = False) -> None:
    """Make a team with a first project; you are its admin. Needs the scope installation:admin."""
    with Client() as client:
        made = client.teams.create(name)
    if json:
        show_json(made)
        return
    show_fields({"team": f"{made.name} ({made.id})", "project": f"{made.project.name} ({made.project.id})"})


@app.command()
def rename(name: Annotated[str, typer.Argument()], json: JsonOption = False) -> None:
    """Give the team of your project another name."""
    with Client() as client:
        team = client.teams.rename(name)
    show_done(f"the team is called {name} now", team, json=json)
