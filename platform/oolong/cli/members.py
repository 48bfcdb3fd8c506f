"""`oolong member …`"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from typer.exceptions import TyperException

from oolong.cli.output import JsonOption, show_done, show_list
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
    show_list(
        found,
        ("USER", "ROLE", "IN THE PROJECT", "IN THE TEAM"),
        lambda member: (member.username, member.role, member.project_role, member.team_role),
        json=json,
    )


@app.command()
def add(user: User, role: Role, team: TeamOption = False, json: JsonOption = False) -> None:
    """Give somebody of the team a role; anybody else is invited (`oolong invite create`)."""
    with Client() as client:
        added = (client.teams.add_member if team else client.members.add)(user, role)
    show_done(f"{user} is {role}", added, json=json)


@app.command("set")
def set_role(user: User, role: Role, team: TeamOption = False, json: JsonOption = False) -> None:
    """Change somebody's role. Their tokens have its power from then on, no more."""
    with Client() as client:
        member = _find(client, user)
        changed = (client.teams.set_role if team else client.members.set_role)(member.id, role)
    show_done(f"{user} is {role} now", changed, json=json)


@app.command()
def remove(user: User, team: TeamOption = False, json: JsonOption = False) -> None:
    """Take somebody's role away, or leave yourself. Their tokens for the project end."""
    with Client() as client:
        member = _find(client, user)
        (client.teams.remove_member if team else client.members.remove)(member.id)
    show_done(f"{user} left", {"removed": member.id}, json=json)


def _find(client: Client, username: str) -> Member:
    for member in client.members.list():
        if member.username == username:
            return member
    raise TyperException(f"nobody here is called {username!r}; see `oolong member list`")
