"""`oolong model …`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oolong.cli.output import JsonOption, byte_progress, show_json, show_table
from oolong.client import Client

app = typer.Typer(no_args_is_help=True, help="Base models that runs start from.")


@app.command()
def upload(
    path: Annotated[
        Path, typer.Argument(exists=True, help="Hugging Face directory, or a tar archive of one")
    ],
    name: Annotated[str, typer.Option(help="name of the base model")],
    json: JsonOption = False,
) -> None:
    """Upload and register a base model. The same files under the same name give the model that is there."""
    with Client() as client, byte_progress(path.name) as progress:
        model = client.models.upload(path, name=name, progress=progress)
    show_json(model) if json else print(model.id)


@app.command()
def register(
    path: Annotated[str, typer.Argument(help="directory on the nodes")],
    name: Annotated[str, typer.Option(help="name of the base model")],
    json: JsonOption = False,
) -> None:
    """Register a model directory that lies on the nodes themselves."""
    with Client() as client:
        model = client.models.register_path(path, name=name)
    show_json(model) if json else print(model.id)


@app.command("list")
def list_models(json: JsonOption = False) -> None:
    """The project's base models."""
    with Client() as client:
        found = list(client.models.list())
    if json:
        show_json(found)
        return
    show_table(
        ("ID", "NAME", "FAMILY", "PARAMETERS", "BYTES"),
        ((model.id, model.name, model.family, model.parameters, model.bytes) for model in found),
    )
