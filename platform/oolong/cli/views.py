"""`oolong view …`"""

from __future__ import annotations

from typing import Annotated

import typer

from oolong.cli.output import JsonOption, show_done, show_json, show_list
from oolong.cli.run_filters import FilterOption, read_filters
from oolong.client import Client

app = typer.Typer(no_args_is_help=True, help="Saved views of the run list.")


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="what it is called")],
    where: FilterOption = None,
    shared: Annotated[bool, typer.Option("--shared", help="the whole project sees it")] = False,
    json: JsonOption = False,
) -> None:
    """Keep filters under a name. Prints the view's id, for `oolong run list --view`."""
    with Client() as client:
        made = client.views.create(name, read_filters(where or []), shared=shared)
    show_json(made) if json else print(made.id)


@app.command("list")
def list_views(json: JsonOption = False) -> None:
    """Your views, and those that others share."""
    with Client() as client:
        found = list(client.views.list())
    show_list(
        found,
        ("ID", "NAME", "FILTERS", "SHARED", "OWNER"),
        lambda view: (
            view.id, view.name, _said(view.query),
            "yes" if view.shared else "no", view.owner,
        ),
        json=json,
    )  # fmt: skip


def _said(query: dict[str, list[str]]) -> str:
    return " ".join(f"{key}={value}" for key, values in query.items() for value in values)


@app.command()
def delete(
    view: Annotated[str, typer.Argument(help="id of the view (view_…)")], json: JsonOption = False
) -> None:
    """Remove a view of yours."""
    with Client() as client:
        client.views.delete(view)
    show_done(f"{view} is gone", {"deleted": view}, json=json)
