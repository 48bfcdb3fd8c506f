"""`oolong secret …`"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from oolong.cli.hidden_input import read_hidden
from oolong.cli.output import JsonOption, notes, show_done, show_json, show_list
from oolong.client import Client
from oolong.contracts.lifecycle import JobKind

app = typer.Typer(no_args_is_help=True, help="Values that jobs may be given and that nobody can read back.")


@app.command("set")
def set_secret(
    name: Annotated[str, typer.Argument(help="capitals, digits and _, as of an environment variable")],
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--host", help="an import by URL may send it there; host:port: that port alone; repeatable"
        ),
    ] = None,
    job: Annotated[
        list[JobKind] | None,
        typer.Option("--job", help="kind of jobs that a run may give it to, as a variable; repeatable"),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Keep a value, instead of the one before. It is asked for, or read from stdin; never an argument."""
    value = read_hidden("value") if sys.stdin.isatty() else sys.stdin.read().removesuffix("\n")
    with Client() as client:
        secret = client.secrets.set(name, value, hosts=host or [], jobs=job or [])
    if json:
        show_json(secret)
        return
    notes.print(f"{secret.name} is kept (fingerprint {secret.fingerprint})", markup=False)


@app.command("list")
def list_secrets(json: JsonOption = False) -> None:
    """Their names, not their values."""
    with Client() as client:
        found = list(client.secrets.list())
    show_list(
        found,
        ("NAME", "SHA256", "HOSTS", "JOBS", "SET", "LAST USED"),
        lambda row: (
            row.name,
            row.fingerprint,
            ",".join(row.hosts),
            ",".join(row.jobs),
            row.updated_at,
            row.last_used_at,
        ),
        json=json,
    )


@app.command()
def delete(name: Annotated[str, typer.Argument(help="name of the secret")], json: JsonOption = False) -> None:
    """Forget a secret now."""
    with Client() as client:
        client.secrets.delete(name)
    show_done(f"{name} is deleted", {"deleted": name}, json=json)
