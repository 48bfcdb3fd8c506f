"""`oolong function …`"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from oolong.cli.output import JsonOption, notes, show_done, show_fields, show_json, show_table
from oolong.client import Client
from oolong.contracts.user_code import ENTRY_POINTS, SourceKind

app = typer.Typer(
    no_args_is_help=True, help="Your own rewards, workflows and losses: immutable versions of a Python file."
)

NameArgument = Annotated[str, typer.Argument(help="the function: its name, or the reference of a version")]
ReferenceArgument = Annotated[str, typer.Argument(help="name@3, name@latest, or an id (fnv_…)")]


@app.command()
def upload(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, readable=True, help="a Python file")],
    name: Annotated[str, typer.Option(help="the function; a new version is added when it exists")],
    kind: Annotated[SourceKind, typer.Option(help="what it is; decides which function the file must define")],
    description: Annotated[str, typer.Option(help="kept with the first version")] = "",
    json: JsonOption = False,
) -> None:
    """Upload a file as the next version. The same source gives the version that has it already."""
    with Client() as client:
        version = client.functions.upload(file, name=name, kind=kind, description=description)
    if json:
        show_json(version)
        return
    print(version.ref)
    notes.print(f"{version.kind} {version.ref}, sha256 {version.sha256}", markup=False)


@app.command("list")
def list_functions(
    kind: Annotated[SourceKind | None, typer.Option(help="only of this kind")] = None,
    archived: Annotated[bool, typer.Option("--archived", help="the archived ones instead")] = False,
    json: JsonOption = False,
) -> None:
    """The project's functions."""
    with Client() as client:
        found = list(client.functions.list(kind=kind, archived="only" if archived else None))
    if json:
        show_json(found)
        return
    show_table(
        ("NAME", "KIND", "LATEST", "SHA256", "BY"),
        (
            (function.name, function.kind, newest.ref, newest.sha256[:12], newest.created_by)
            for function in found
            for newest in function.versions[:1]
        ),
    )


@app.command()
def get(reference: ReferenceArgument, json: JsonOption = False) -> None:
    """What one version is, and how it is called."""
    with Client() as client:
        version = client.functions.version(reference)
    if json:
        show_json(version)
        return
    show_fields(
        {
            "ref": version.ref,
            "kind": version.kind,
            "entry point": ENTRY_POINTS[SourceKind(version.kind)].signature,
            "options": "any" if version.any_option else ", ".join(version.options) or "none",
            "sha256": version.sha256,
            "bytes": version.bytes,
            "uploaded": f"{version.created_at:%Y-%m-%d %H:%M} by {version.created_by}",
        }
    )


@app.command()
def download(
    reference: ReferenceArgument,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="file to write; the terminal when left out")
    ] = None,
    json: JsonOption = False,
) -> None:
    """The source of one version, its sha256 verified."""
    with Client() as client:
        source = client.functions.source(reference)
    if output is not None:
        output.write_bytes(source)
    if json:
        show_json({"file": str(output)} if output is not None else {"source": source.decode()})
    elif output is not None:
        print(output)
    else:
        sys.stdout.buffer.write(source)


@app.command()
def archive(name: NameArgument, json: JsonOption = False) -> None:
    """Hide a function from lists. Specs that name it still run, and it takes no new version."""
    _set_archived(name, True, json=json)


@app.command()
def restore(name: NameArgument, json: JsonOption = False) -> None:
    """Show an archived function again."""
    _set_archived(name, False, json=json)


@app.command()
def delete(name: NameArgument, json: JsonOption = False) -> None:
    """Delete a function with all its versions. Refused while runs or specs refer to it."""
    with Client() as client:
        function = client.functions.version(name).function
        client.functions.delete(function.id)
    show_done(f"{function.name} is deleted", {"deleted": function.id}, json=json)


def _set_archived(name: str, archived: bool, *, json: bool) -> None:
    with Client() as client:
        function = client.functions.archive(client.functions.version(name).function.id, archived)
    show_json(function) if json else print(f"{function.name} is {'archived' if archived else 'listed again'}")
