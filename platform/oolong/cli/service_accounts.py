"""`oolong service-account …`"""

from __future__ import annotations

from typing import Annotated

import typer
from typer.exceptions import TyperException

from oolong.cli.members import RoleName
from oolong.cli.output import JsonOption, notes, show_done, show_json, show_list, show_secret
from oolong.cli.token_life import DaysOption, NoExpiryOption, expiry_of
from oolong.client import Client
from oolong.client.models import ServiceAccount

app = typer.Typer(no_args_is_help=True, help="Callers without a password that belong to the project.")

Name = Annotated[str, typer.Argument(help="name of the service account")]


@app.command()
def create(name: Name, role: Annotated[RoleName, typer.Argument()], json: JsonOption = False) -> None:
    """Make one; then give it a token."""
    with Client() as client:
        made = client.service_accounts.create(name, role)
    show_json(made) if json else notes.print(f"{name} ({made.id}) is {role}", markup=False)


@app.command("list")
def list_accounts(json: JsonOption = False) -> None:
    """Those of the project."""
    with Client() as client:
        found = list(client.service_accounts.list())
    show_list(
        found,
        ("ID", "NAME", "ROLE", "TOKENS", "CREATED"),
        lambda row: (row.id, row.name, row.role, row.tokens, row.created_at),
        json=json,
    )


@app.command("set")
def set_role(name: Name, role: Annotated[RoleName, typer.Argument()], json: JsonOption = False) -> None:
    """Change its role; its tokens follow at once."""
    with Client() as client:
        changed = client.service_accounts.set_role(_find(client, name).id, role)
    show_done(f"{name} is {role} now", changed, json=json)


@app.command()
def token(
    name: Name,
    scope: Annotated[list[str], typer.Option("--scope", help="for example runs:write; repeatable")],
    token_name: Annotated[str, typer.Option("--name", help="what the token is for")] = "token",
    days: DaysOption = None,
    no_expiry: NoExpiryOption = False,
    json: JsonOption = False,
) -> None:
    """Make a token for it. It is shown this once, and expires after 90 days unless you say otherwise."""
    expires_at = expiry_of(days, no_expiry=no_expiry)
    with Client() as client:
        identity = _find(client, name).id
        made = client.service_accounts.create_token(
            identity, token_name, scopes=scope, expires_at=expires_at, never_expires=no_expiry
        )
    note = f"It is shown this once; keep it where only the pipeline can read it. Expires: {made.expires_at or 'never'}"
    show_secret(note, made.token, made, json=json)


@app.command()
def delete(name: Name, json: JsonOption = False) -> None:
    """End it and its tokens; what it made stays."""
    with Client() as client:
        account = _find(client, name)
        client.service_accounts.remove(account.id)
    show_done(f"{name} is deleted", {"deleted": account.id}, json=json)


def _find(client: Client, name: str) -> ServiceAccount:
    for account in client.service_accounts.list():
        if account.name == name:
            return account
    raise TyperException(f"there is no {name!r}; see `oolong service-account list`")
