"""`oolong invite …`"""

from __future__ import annotations

from typing import Annotated

import typer
from typer.exceptions import TyperException

from oolong.cli.hidden_input import read_hidden
from oolong.cli.members import RoleName
from oolong.cli.output import JsonOption, notes, show_done, show_json, show_list, show_secret
from oolong.client import Client
from oolong.client.invitations import accept_link, secret_of, url_of
from oolong.client.settings import ClientSettings, checked_url, write_settings

app = typer.Typer(no_args_is_help=True, help="Invitations into the project or the team.")


@app.command()
def create(
    role: Annotated[RoleName, typer.Argument()],
    team: Annotated[bool, typer.Option("--team", help="into all projects of the team")] = False,
    note: Annotated[str, typer.Option(help="for whom it is")] = "",
    days: Annotated[int, typer.Option(min=1, max=30, help="it is good for")] = 7,
    json: JsonOption = False,
) -> None:
    """Make a link that lets one person in, once. It is shown this once."""
    with Client() as client:
        made = client.invitations.create(role, level="team" if team else "project", note=note, days=days)
        url = client.settings.url
    # A server that knows no public address of its own gives the path alone.
    link = f"{url}{made.link}" if made.link.startswith("/") else made.link
    show_secret("It is shown this once; hand it to whom you invite.", link, made, json=json)


@app.command("list")
def list_invitations(json: JsonOption = False) -> None:
    """Invitations, without their links."""
    with Client() as client:
        found = list(client.invitations.list())
    show_list(
        found,
        ("ID", "STATUS", "ROLE", "LEVEL", "NOTE", "EXPIRES", "ACCEPTED BY"),
        lambda row: (row.id, row.status, row.role, row.level, row.note, row.expires_at, row.accepted_by),
        json=json,
    )


@app.command()
def revoke(
    invitation: Annotated[str, typer.Argument(help="id of the invitation (inv_…)")], json: JsonOption = False
) -> None:
    """End an open invitation."""
    with Client() as client:
        client.invitations.revoke(invitation)
    show_done(f"{invitation} is revoked", {"revoked": invitation}, json=json)


@app.command()
def accept(
    link: Annotated[str, typer.Argument(help="the invitation's link")],
    new_user: Annotated[
        str | None,
        typer.Option(
            help="make a user of this name, whose password is asked for or read as a line of stdin; without it you "
            "join as who you are logged in"
        ),
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="of the control plane, when the link does not say it")
    ] = None,
    token_name: Annotated[str, typer.Option(help="of the token that is made for the project")] = "cli",
    json: JsonOption = False,
) -> None:
    """Join. A new user is logged in on this machine afterwards."""
    link = link.strip()
    secret = secret_of(link)
    if new_user is None:
        with Client(url) as client:
            joined = client.invitations.accept(secret, token_name=token_name)
    else:
        named = url or url_of(link)
        if not named:
            raise TyperException("the link does not say where the control plane is; give --url")
        place = checked_url(named)
        password = read_hidden("new password", confirm=True)
        joined = accept_link(place, secret, username=new_user, password=password, token_name=token_name)
        path = write_settings(ClientSettings(place, joined.token or ""))
        notes.print(f"logged in as {joined.username}; kept in {path}", markup=False)
    if json:
        show_json(joined)
        return
    notes.print(f"joined {joined.team.name}/{joined.project.name} as {joined.role}", markup=False)
    if new_user is None:
        notes.print("The token for it is shown this once; use it with `oolong login`.")
        print(joined.token)
