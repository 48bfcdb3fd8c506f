"""`oolong node …`"""

from __future__ import annotations

from typing import Annotated

import typer

from oolong.cli.output import JsonOption, show_done, show_json, show_table
from oolong.cli.pool import PoolOption
from oolong.cli.pool_calendar import UNITS
from oolong.client import Client
from oolong.client.models import Node

app = typer.Typer(no_args_is_help=True, help="Nodes of a pool and their slots.")
NodeArgument = Annotated[str, typer.Argument(help="id of the node (node_…)")]


@app.command("list")
def list_nodes(pool: PoolOption = None, json: JsonOption = False) -> None:
    """List the nodes of a pool, who holds their slots, and the runs that are still on nodes that are drained."""
    with Client() as client:
        found = client.pool.get(pool)
    if json:
        show_json(
            {
                "nodes": [node.model_dump(mode="json") for node in found.nodes],
                "slots": [slot.model_dump(mode="json") for slot in found.slots],
                "leaving": [run.model_dump(mode="json") for run in found.leaving],
            }
        )
        return
    names = {node.id: node for node in found.nodes}
    show_table(
        ("ID", "NODE", "STATUS", "PROVIDER", "ENDS", "SLOT", "DEVICE", "STATE", "HELD BY"),
        (
            (
                slot.node.id,
                slot.node.name,
                names[slot.node.id].status if slot.node.id in names else None,
                _provider(names.get(slot.node.id)),
                names[slot.node.id].ends_at if slot.node.id in names else None,
                slot.name,
                slot.device,
                slot.state,
                f"{slot.held_by.run_name} {slot.held_by.job or ''}".strip() if slot.held_by else None,
            )
            for slot in found.slots
        ),
    )
    if found.leaving:
        show_table(
            ("NODE", "DEADLINE", "STILL THERE", "RUN", "STAGE"),
            (
                (run.node.name, names[run.node.id].drain_deadline, run.run_id, run.run_name, run.stage)
                for run in found.leaving
            ),
        )


def _provider(node: Node | None) -> str | None:
    return None if node is None else f"{node.provider} {node.provider_job}".rstrip()


@app.command()
def cordon(node: NodeArgument, json: JsonOption = False) -> None:
    """Cordon the node: running jobs continue, no new jobs start."""
    with Client() as client:
        found = client.pool.cordon(node)
    show_json(found) if json else print(found.status)


@app.command()
def uncordon(node: NodeArgument, json: JsonOption = False) -> None:
    """Let new jobs start on the node again; cancels a drain."""
    with Client() as client:
        found = client.pool.uncordon(node)
    show_json(found) if json else print(found.status)


@app.command()
def drain(
    node: NodeArgument,
    deadline: Annotated[
        str | None,
        typer.Option(
            help="30m, 2h or 90s from now: jobs that are left then are stopped; without it, no run may stay"
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Move the node's runs to other nodes, each after a checkpoint; its status is DRAINED once it is empty. Runs
    without a trainer may finish until the deadline. `oolong node uncordon` cancels it."""
    seconds = None if deadline is None else seconds_of(deadline)
    with Client() as client:
        found = client.pool.drain(node, deadline_seconds=seconds)
    until = "" if found.drain_deadline is None else f" until {found.drain_deadline}"
    show_json(found) if json else print(found.status + until)


@app.command()
def revoke(node: NodeArgument, json: JsonOption = False) -> None:
    """Take the node out of its pool for good: its credential is refused from now on, its agent stops the jobs and ends,
    and its runs go on elsewhere from their last stored checkpoints. To lose nothing, drain it first."""
    with Client() as client:
        found = client.pool.revoke(node)
    show_done(
        f"{found.name} is revoked; to join again it needs a new token: oolong node join-token",
        found,
        json=json,
    )


@app.command("join-token")
def join_token(
    pool: Annotated[str, typer.Option(help="the pool that the node joins")] = "default",
    json: JsonOption = False,
) -> None:
    """A single-use token with which one new node may join a pool."""
    with Client() as client:
        token = client.pool.join_token(pool)
    show_json(token) if json else print(token.token)


def seconds_of(text: str) -> int:
    """The seconds of `30m`. Raises BadParameter when it is not a whole number and a unit."""
    number, unit = text[:-1], text[-1:]
    if unit not in UNITS or not number.isdecimal() or int(number) == 0:
        raise typer.BadParameter(
            f"{text!r} is no duration; write 90s, 30m, 2h or 1d", param_hint="--deadline"
        )
    return int(number) * UNITS[unit]
