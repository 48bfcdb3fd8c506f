"""`oolong token …`"""

from __future__ import annotations

from typing import Annotated

import typer
from typer.exceptions import TyperException

from oolong.cli.output import JsonOption, show_done, show_list, show_secret
from oolong.cli.token_life import DaysOption, NoExpiryOption, expiry_of
from oolong.client import Client

app = typer.Typer(no_args_is_help=True, help="API tokens.")

ProjectOption = Annotated[
    str | None,
    typer.Option("--project", help="name of another project of the team; your token needs team:admin"),
]


@app.command()
def create(
    name: Annotated[str, typer.Option(help="what it is for")],
    scope: Annotated[list[str], typer.Option("--scope", help="for example runs:write; repeatable")],
    days: DaysOption = None,
    no_expiry: NoExpiryOption = False,
    project: ProjectOption = None,
    json: JsonOption = False,
) -> None:
    """Make a token. It is shown this once, and expires after 90 days unless you say otherwise."""
    expires_at = expiry_of(days, no_expiry=no_expiry)
    with Client() as client:
        token = client.tokens.create(
            name, scopes=scope, expires_at=expires_at, never_expires=no_expiry,
            project=_id_of(client, project),
        )  # fmt: skip
    note = f"It is shown this once; keep it where only its user can read it. Expires: {token.expires_at or 'never'}"
    show_secret(note, token.token, token, json=json)


@app.command("list")
def list_tokens(
    everybodys: Annotated[
        bool, typer.Option("--all", help="everybody's of the project; for its admins")
    ] = False,
    project: ProjectOption = None,
    json: JsonOption = False,
) -> None:
    """Your tokens, without their secrets."""
    with Client() as client:
        found = list(client.tokens.list(everybodys=everybodys, project=_id_of(client, project)))
    show_list(
        found,
        ("ID", "OWNER", "NAME", "SCOPES", "EXPIRES", "LAST USED"),
        lambda token: (
            token.id,
            token.owner,
            token.name,
            ",".join(token.scopes),
            token.expires_at,
            token.last_used_at,
        ),
        json=json,
    )


@app.command()
def revoke(
    token: Annotated[str, typer.Argument(help="id of the token (tok_…)")],
    project: ProjectOption = None,
    json: JsonOption = False,
) -> None:
    """End a token now."""
    with Client() as client:
        client.tokens.revoke(token, project=_id_of(client, project))
    show_done(f"{token} is revoked", {"revoked": token}, json=json)


@app.command()
def rotate(
    token: Annotated[str, typer.Argument(help="id of the token (tok_…)")],
    overlap: Annotated[
        int, typer.Option(min=0, max=7 * 24 * 60, help="minutes that the old secret works")
    ] = 60,
    project: ProjectOption = None,
    json: JsonOption = False,
) -> None:
    """Give a token a new secret. It is shown this once; the old one ends after the overlap."""
    with Client() as client:
        turned = client.tokens.rotate(token, overlap_seconds=overlap * 60, project=_id_of(client, project))
    note = f"The secret before it works until {turned.previous_until}."
    show_secret(note, turned.token, turned, json=json)


def _id_of(client: Client, project: str | None) -> str | None:
    """The id behind the name of a project of the team; an id stands for itself."""
    if project is None or project.startswith("prj_"):
        return project
    found = {one.name: one.id for one in client.project.list()}
    if project not in found:
        raise TyperException(f"--project {project}: you have a role in {', '.join(sorted(found))}")
    return found[project]
