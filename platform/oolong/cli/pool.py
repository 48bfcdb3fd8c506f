"""`oolong pool …`"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from oolong.cli.output import JsonOption, notes, show_json, show_table
from oolong.client import Client
from oolong.client.models import UsageRow, UsageTotal

app = typer.Typer(no_args_is_help=True, help="The shared pool: nodes, slots, queue.")

NodeArgument = Annotated[str, typer.Argument(help="id of the node (node_…)")]


@app.command()
def nodes(json: JsonOption = False) -> None:
    """Nodes, and who holds their slots."""
    with Client() as client:
        pool = client.pool.get()
    if json:
        show_json(
            {
                "nodes": [node.model_dump(mode="json") for node in pool.nodes],
                "slots": [slot.model_dump(mode="json") for slot in pool.slots],
            }
        )
        return
    names = {node.id: node for node in pool.nodes}
    show_table(
        ("NODE", "STATUS", "SLOT", "DEVICE", "STATE", "HELD BY"),
        (
            (
                slot.node.name,
                names[slot.node.id].status if slot.node.id in names else None,
                slot.name,
                slot.device,
                slot.state,
                f"{slot.held_by.run_name} {slot.held_by.job or ''}".strip() if slot.held_by else None,
            )
            for slot in pool.slots
        ),
    )


@app.command()
def queue(json: JsonOption = False) -> None:
    """Runs that wait, in order, and why."""
    with Client() as client:
        pool = client.pool.get()
    if json:
        show_json(pool.queue)
        return
    show_table(
        ("RUN", "NAME", "PRIORITY", "SLOTS", "WHY IT WAITS"),
        ((run.run_id, run.name, run.priority, run.slots_needed, run.why) for run in pool.queue),
    )


@app.command()
def usage(
    by: Annotated[Literal["run", "project", "team"], typer.Option(help="one line for each")] = "run",
    since: Annotated[
        str | None, typer.Option(help="2026-11-01T00:00:00Z; 30 days before --until when left out")
    ] = None,
    until: Annotated[str | None, typer.Option(help="now when left out")] = None,
    device: Annotated[Literal["cuda", "cpu"] | None, typer.Option(help="only slots of this kind")] = None,
    csv: Annotated[Path | None, typer.Option(help="write every row to this file; - is stdout")] = None,
    json: JsonOption = False,
) -> None:
    """Seconds of slots, and what was done with them; and the tokens that came of it."""
    with Client() as client:
        if csv is not None:
            data = client.pool.usage_csv(by=by, since=since, until=until, device=device)
            sys.stdout.write(data.decode()) if str(csv) == "-" else csv.write_bytes(data)
            return
        found = client.pool.usage(by=by, since=since, until=until, device=device)
    if json:
        show_json(found)
        return
    columns = (
        "SLOT SECONDS",
        "GPU SECONDS",
        "GENERATE",
        "TRAIN",
        "WAIT",
        "SYNC",
        "EVALUATE",
        "OTHER",
        "WASTED TOKENS",
    )
    rows: list[tuple[object, ...]] = [(_name(row, by), *_figures(row)) for row in found.data]
    if found.left_out:
        notes.print(f"{found.left_out} more; --csv has all", markup=False)
    show_table((by.upper(), *columns), [*rows, ("total", *_figures(found.total))])


def _name(row: UsageRow, by: str) -> str:
    named = {"run": row.run, "project": row.project, "team": row.team}[by]
    if named is not None:
        return named.name if by != "run" else f"{named.id} {named.name}"
    return f"other {by}s" + (f" of {row.team.name}" if row.team is not None else "")


def _figures(row: UsageTotal) -> tuple[object, ...]:
    phases = row.phases
    seconds = (
        row.slot_seconds, row.gpu_seconds, phases.generate, phases.train, phases.wait, phases.sync,
        phases.evaluate, phases.other,
    )  # fmt: skip
    return (*(f"{one:.0f}" for one in seconds), row.tokens.wasted)


@app.command()
def cordon(node: NodeArgument, json: JsonOption = False) -> None:
    """Give this node no new work; what runs goes on."""
    with Client() as client:
        found = client.pool.cordon(node)
    show_json(found) if json else print(found.status)


@app.command()
def uncordon(node: NodeArgument, json: JsonOption = False) -> None:
    """Let a node take work again."""
    with Client() as client:
        found = client.pool.uncordon(node)
    show_json(found) if json else print(found.status)


@app.command()
def drain(node: NodeArgument, json: JsonOption = False) -> None:
    """Move a node's runs away, then keep it empty."""
    with Client() as client:
        found = client.pool.drain(node)
    show_json(found) if json else print(found.status)


@app.command("enrolment-token")
def enrolment_token(json: JsonOption = False) -> None:
    """A single-use token with which one new node may join."""
    with Client() as client:
        token = client.pool.enrolment_token()
    show_json(token) if json else print(token.token)
