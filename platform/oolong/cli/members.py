"""`oolong member …`"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from oolong.cli.exit_codes import ExitCode
from oolong.cli.output import JsonOption, notes, show_json, show_table
from oolong.client import Client
from oolong.client.models import Member

app = typer.Typer(no_args_is_help=True, help="Who is in the project, and as what.")


class RoleName(StrEnum):
    VIEWER = "viewer"
    EDITOR = "editor"
    OPERATOR = "operator"
    ADMIN = "admin"


User = Annotated[str, typer.Argument(help="user name")]
Role = Annotated[RoleName, typer.Argument()]
TeamOption = Annotated[bool, typer.Option("--team", help="in all projects of the team")]


@app.command("list")
def list_members(team: TeamOption = False, json: JsonOption = False) -> None:
    """Everybody with a role."""
    with Client() as client:
        found = list(client.teams.members() if team else client.members.list())
    if json:
        show_json(found)
        return
    show_table(
        ("USER", "ROLE", "IN THE PROJECT", "IN THE TEAM"),
        ((member.username, member.role, member.project_role, member.team_role) for member in found),
    )


@app.command()
def add(user: User, role: Role, team: TeamOption = False) -> None:
    """Give somebody of the team a role; anybody else is invited (`oolong invite create`)."""
    with Client() as client:
        (client.teams.add_member if team else client.members.add)(user, role)
    notes.print(f"{user} is {role}", markup=False)


@app.command()
def role(user: User, role: Role, team: TeamOption = False) -> None:
    """Change somebody's role. Their tokens have its power from then on, no more."""
    with Client() as client:
        member = _find(client, user)
        (client.teams.set_role if team else client.members.set_role)(member.id, role)
    notes.print(f"{user} is {role} now", markup=False)


@app.command()
def remove(user: User, team: TeamOption = False) -> None:
    """Take somebody's role away, or leave yourself. Their tokens for the project end."""
    with Client() as client:
        member = _find(client, user)
        (client.teams.remove_member if team else client.members.remove)(member.id)
    notes.print(f"{user} left", markup=False)


def _find(client: Client, username: str) -> Member:
    for member in client.members.list():
        if member.username == username:
            return member
    notes.print(f"error: nobody here is called {username!r}; see `oolong member list`", markup=False)
    raise typer.Exit(ExitCode.USAGE)
