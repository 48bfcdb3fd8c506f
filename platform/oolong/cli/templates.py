"""`oolong template …`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
import yaml

from oolong.cli.output import JsonOption, show_done, show_json, show_list
from oolong.cli.spec_file import read_spec
from oolong.client import Client
from oolong.client.models import RunTemplate

app = typer.Typer(no_args_is_help=True, help="Templates: named parts of a spec, in versions.")
NameArgument = Annotated[str, typer.Argument(help="name of the template")]


@app.command()
def create(
    name: NameArgument,
    file: Annotated[Path, typer.Option("--file", "-f", help="part of a RunSpec, YAML or JSON")],
    description: Annotated[str | None, typer.Option(help="of a new template")] = None,
    team: Annotated[bool, typer.Option("--team", help="for every project of the team")] = False,
    json: JsonOption = False,
) -> None:
    """A new template, or a new version of the one of this name. Prints name@version."""
    spec = read_spec(file)
    with Client() as client:
        known = _named(client, name, of_team=team)
        if known is None:
            made = client.templates.create(name, spec, description=description, for_team=team)
        else:
            made = client.templates.add_version(known.id, spec)
    show_json(made) if json else print(made.ref)


@app.command("list")
def list_templates(json: JsonOption = False) -> None:
    """The project's templates and its team's."""
    with Client() as client:
        found = list(client.templates.list())
    show_list(
        found,
        ("REF", "OF", "DESCRIPTION"),
        lambda row: (row.ref, "team" if row.of_team else "project", row.description or None),
        json=json,
    )


@app.command()
def get(name: NameArgument, json: JsonOption = False) -> None:
    """The newest version of a template, as YAML that `create` takes."""
    with Client() as client:
        found = _needed(client, name)
    show_json(found) if json else print(yaml.safe_dump(found.spec, sort_keys=False), end="")


@app.command()
def delete(name: NameArgument, json: JsonOption = False) -> None:
    """Remove a template. Runs that were made from it stay as they are."""
    with Client() as client:
        template = _needed(client, name)
        client.templates.delete(template.id)
    show_done(f"{name} is gone", {"deleted": template.id}, json=json)


def _named(client: Client, name: str, *, of_team: bool | None = None) -> RunTemplate | None:
    """The project's own before the team's, unless one of the two is asked for."""
    found = [row for row in client.templates.list() if row.name == name and of_team in (None, row.of_team)]
    return min(found, key=lambda row: row.of_team, default=None)


def _needed(client: Client, name: str) -> RunTemplate:
    found = _named(client, name)
    if found is None:
        raise typer.BadParameter(
            f"there is no template {name!r}; see `oolong template list`", param_hint="NAME"
        )
    return found
