"""`oolong model …`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oolong.cli.output import JsonOption, byte_progress, show_done, show_json, show_list
from oolong.client import Client

WaitOption = Annotated[bool, typer.Option(help="wait until it is checked")]

app = typer.Typer(no_args_is_help=True, help="Base models that runs start from.")


@app.command()
def upload(
    path: Annotated[
        Path, typer.Argument(exists=True, help="Hugging Face directory, or a tar archive of one")
    ],
    name: Annotated[str, typer.Option(help="name of the base model")],
    wait: WaitOption = True,
    json: JsonOption = False,
) -> None:
    """Upload and register a base model. The same files under the same name give the version that is there."""
    with Client() as client, byte_progress(path.name, quiet=json) as progress:
        model = client.models.begin_upload(path, name=name, progress=progress)
    if wait:
        with Client() as client:
            model = client.models.checked(model)
    show_json(model) if json else print(model.id)


@app.command()
def register(
    path: Annotated[str, typer.Argument(help="directory below one that nodes offer")],
    name: Annotated[str, typer.Option(help="name of the base model")],
    wait: WaitOption = True,
    json: JsonOption = False,
) -> None:
    """Register a model directory that lies on the nodes themselves; such a node checks it."""
    with Client() as client:
        model = client.models.begin_register_path(path, name=name)
        if wait:
            model = client.models.checked(model)
    show_json(model) if json else print(model.id)


@app.command("import")
def import_model(
    hub_model: Annotated[str, typer.Argument(metavar="MODEL", help="owner/name on the hub")],
    name: Annotated[str, typer.Option(help="name of the base model")],
    revision: Annotated[str, typer.Option(help="commit, tag or branch; the commit is kept")] = "main",
    secret: Annotated[str, typer.Option(help="project secret with a token of the hub")] = "",
    wait: Annotated[bool, typer.Option(help="wait until it is a base model")] = True,
    json: JsonOption = False,
) -> None:
    """Have a node fetch a model from the hub, safetensors only, and register it."""
    with Client() as client:
        if not wait:
            asked = client.models.begin_import(hub_model, name=name, revision=revision, secret=secret)
            show_json(asked) if json else print(asked.id)
            return
        model = client.models.import_from_hub(hub_model, name=name, revision=revision, secret=secret)
    show_json(model) if json else print(model.id)


@app.command("imports")
def list_imports(
    cancel: Annotated[str | None, typer.Option(help="cancel this one, by its id")] = None,
    json: JsonOption = False,
) -> None:
    """Imports from the hub, the newest first."""
    with Client() as client:
        found = [client.models.cancel_import(cancel)] if cancel else list(client.models.imports())
    show_list(
        found,
        ("ID", "NAME", "MODEL", "STATE", "BYTES", "OF", "MESSAGE"),
        lambda one: (
            one.id,
            one.name,
            one.hub_model,
            one.state,
            one.bytes_done,
            one.bytes_total,
            one.message,
        ),
        json=json,
    )


@app.command()
def get(
    model: Annotated[str, typer.Argument(help="id, name@2, or name: its latest version")],
    json: JsonOption = False,
) -> None:
    """One base model: where it is from and what it is."""
    with Client() as client:
        found = client.models.get(model) if model.startswith("bm_") else client.models.named(model)
    faults = [f"{error.pointer}: {error.message}" for error in found.errors]
    if json:
        show_json(found)
        return
    origin = found.origin or found.path
    for field, value in (
        ("id", found.id), ("name", found.ref or found.name), ("state", found.state), ("source", found.source),
        ("origin", origin), ("family", found.family),
        ("parameters", found.parameters), ("bytes", found.bytes), ("sha256", found.sha256),
        ("files", len(found.files)), ("tensors", found.tensors), ("dtypes", " ".join(found.dtypes)),
        ("prompt", repr(found.prompt) if found.prompt else ""), *(("fault", fault) for fault in faults),
    ):  # fmt: skip
        print(f"{field:<12}{value if value is not None else ''}")


@app.command("list")
def list_models(json: JsonOption = False) -> None:
    """The project's base models."""
    with Client() as client:
        found = list(client.models.list())
    show_list(
        found,
        ("ID", "NAME", "STATE", "FAMILY", "PARAMETERS", "BYTES"),
        lambda model: (
            model.id,
            model.ref or model.name,
            model.state,
            model.family,
            model.parameters,
            model.bytes,
        ),
        json=json,
    )


@app.command()
def delete(
    model: Annotated[str, typer.Argument(help="id of one that is INVALID or DUPLICATE, or waits for a node")],
    json: JsonOption = False,
) -> None:
    """Delete an INVALID or DUPLICATE base model, or cancel its check."""
    with Client() as client:
        client.models.remove(model)
    show_done(f"{model} is deleted", {"deleted": model}, json=json)
