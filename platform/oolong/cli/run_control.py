"""`oolong run …`: what is asked of a run that exists, and runs made from it."""

from __future__ import annotations

from typing import Annotated

import typer

from oolong.cli.output import JsonOption, show_done, show_json
from oolong.cli.run_output import RunArgument, state_of
from oolong.cli.spec_changes import SetOption, read_changes
from oolong.client import Client
from oolong.client.models import Run

app = typer.Typer()


@app.command()
def stop(
    run: RunArgument,
    force: Annotated[
        bool, typer.Option("--force", help="end it at once; its slots come free when its jobs are known dead")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Ask a run to take a checkpoint and stop."""
    with Client() as client:
        _show(client.runs.stop(run, force=force), json=json)


@app.command()
def submit(run: RunArgument, json: JsonOption = False) -> None:
    """Queue a draft."""
    with Client() as client:
        _show(client.runs.submit(run), json=json)


@app.command()
def delete(run: RunArgument, json: JsonOption = False) -> None:
    """Throw a draft away."""
    with Client() as client:
        client.runs.delete(run)
    show_done(f"{run} is gone", {"deleted": run}, json=json)


@app.command()
def cancel(run: RunArgument, json: JsonOption = False) -> None:
    """End a run without a last checkpoint."""
    with Client() as client:
        _show(client.runs.cancel(run), json=json)


@app.command()
def pause(run: RunArgument, json: JsonOption = False) -> None:
    """Ask a run to take a checkpoint and give its slots back; `resume` continues from there."""
    with Client() as client:
        _show(client.runs.pause(run), json=json)


@app.command()
def resume(run: RunArgument, json: JsonOption = False) -> None:
    """Put a paused run back into the queue."""
    with Client() as client:
        _show(client.runs.resume(run), json=json)


@app.command()
def retry(run: RunArgument, json: JsonOption = False) -> None:
    """A new run that continues from the last checkpoint of a failed or stopped one. Prints its id."""
    with Client() as client:
        made = client.runs.retry(run)
    show_json(made) if json else print(made.id)


@app.command()
def clone(
    run: RunArgument,
    change: SetOption = None,
    name: Annotated[str | None, typer.Option(help="name of the new run")] = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="fork: begin with the weights of this checkpoint, or latest")
    ] = None,
    json: JsonOption = False,
) -> None:
    """A new run of the same spec, with changes. Prints its id."""
    changes = read_changes(change or [])
    if name is not None:
        changes["name"] = name
    with Client() as client:
        made = client.runs.clone(run, changes=changes, checkpoint=checkpoint)
    show_json(made) if json else print(made.id)


@app.command("set")
def set_run(
    run: RunArgument,
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="staleness.max, rollout.max_concurrent_groups, rollout.engines or trainer.learning_rate; repeatable",
        ),
    ] = None,
    checkpoint: Annotated[bool, typer.Option("--checkpoint-now", help="after the next train step")] = False,
    evaluate: Annotated[bool, typer.Option("--evaluate-now", help="the newest version")] = False,
    name: Annotated[str | None, typer.Option(help="new name")] = None,
    notes: Annotated[str | None, typer.Option(help="new notes")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="replaces the tags; repeatable")] = None,
    priority: Annotated[int | None, typer.Option(help="0 to 1000, of a queued run; higher first")] = None,
    json: JsonOption = False,
) -> None:
    """Change a run: its name, notes, tags and priority, or runtime settings while it is active."""
    given = {"name": name, "notes": notes, "tags": tag, "priority": priority}
    fields = {key: value for key, value in given.items() if value is not None}
    at_runtime = bool(change) or checkpoint or evaluate
    if not fields and not at_runtime:
        raise typer.BadParameter(
            "nothing to change: give --set, --name, --notes, --tag, --priority or an action"
        )
    changes = read_changes(change or [])
    with Client() as client:
        if at_runtime:  # in one request, so that a refusal leaves nothing half done
            changed = client.runs.change(
                run, changes=changes, checkpoint=checkpoint, evaluate=evaluate, **fields
            )
        else:
            changed = client.runs.update(run, **fields)
        _show(changed, json=json)


def _show(run: Run, *, json: bool) -> None:
    show_json(run) if json else print(state_of(run))
