"""`oolong login`, `logout`, `whoami` and `profile …`: which server, and as whom."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Annotated

import typer

from oolong.cli.hidden_input import read_hidden
from oolong.cli.output import JsonOption, notes, show_json, show_table
from oolong.client import Client, NotConfigured
from oolong.client.settings import (
    DEFAULT_PROFILE,
    Profiles,
    checked_url,
    read_profiles,
    write_profiles,
    write_settings,
)

app = typer.Typer()
profiles = typer.Typer(no_args_is_help=True, help="Servers that you are logged in to, each under a name.")
app.add_typer(profiles, name="profile")


@app.command()
def login(
    url: Annotated[str, typer.Option(help="URL of the control plane")],
    token: Annotated[
        str | None,
        typer.Option(
            help="API token; when left out it is asked for, or read from standard input, as - always is"
        ),
    ] = None,
    profile: Annotated[str, typer.Option(help="keep it under this name")] = DEFAULT_PROFILE,
) -> None:
    """Check a token and remember it, with the URL, in ~/.config/oolong/config.toml (readable by you only)."""
    url = checked_url(url)
    if token is None:
        if sys.stdin.isatty():
            notes.print(f"Make a token at {url}/settings/tokens and paste it here.", markup=False)
        token = read_hidden("API token")
    elif token == "-":
        token = sys.stdin.readline().strip()
    with Client(url, token) as client:
        me = client.me()
    path = write_settings(client.settings, profile=profile)
    notes.print(f"logged in as {me.user.username}, project {me.project.name}; kept in {path}", markup=False)


@app.command()
def logout(
    profile: Annotated[
        str | None, typer.Option(help="of this profile; the current one when left out")
    ] = None,
) -> None:
    """Forget a kept token. It stays valid: `oolong token revoke` ends it."""
    kept = read_profiles()
    name = profile or kept.current
    _known(kept, name)
    rest = {known: settings for known, settings in kept.by_name.items() if known != name}
    current = kept.current if kept.current in rest else next(iter(rest), DEFAULT_PROFILE)
    write_profiles(Profiles(current, rest))
    notes.print(f"the token of {name} is forgotten here", markup=False)


@app.command()
def whoami(json: JsonOption = False) -> None:
    """Whose token this is, and what it may do."""
    with Client() as client:
        me = client.me()
    show_json(me) if json else print(
        f"{me.user.username}, {me.role} of {me.team.name}/{me.project.name}: {', '.join(me.scopes)}"
    )
    if me.token is not None and not json:
        notes.print(f"token {me.token.name} expires: {me.token.expires_at or 'never'}", markup=False)


@profiles.command("list")
def list_profiles(json: JsonOption = False) -> None:
    """Names and addresses; tokens are not shown."""
    kept = read_profiles()
    if json:
        show_json(
            {
                "current": kept.current,
                "profiles": {name: {"url": found.url} for name, found in kept.by_name.items()},
            }
        )
        return
    show_table(
        ("PROFILE", "URL", "CURRENT"),
        ((name, found.url, "*" if name == kept.current else "") for name, found in kept.by_name.items()),
    )


@profiles.command()
def use(name: Annotated[str, typer.Argument(help="name of a profile")]) -> None:
    """Take this profile from now on. OOLONG_PROFILE or --profile name one for a single command."""
    kept = read_profiles()
    _known(kept, name)
    write_profiles(replace(kept, current=name))


def _known(kept: Profiles, name: str) -> None:
    if name not in kept.by_name:
        known = ", ".join(kept.by_name) or "none"
        raise NotConfigured(f"there is no profile {name!r}; known: {known}")
