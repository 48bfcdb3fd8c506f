"""`oolong node …`"""

from __future__ import annotations

from typing import Annotated

import typer

from oolong.cli.output import JsonOption, show_done, show_json, show_table
from oolong.cli.pool import PoolOption
from oolong.client import Client

app = typer.Typer(no_args_is_help=True, help="Nodes of a pool and their slots.")
NodeArgument = Annotated[str, typer.Argument(help="id of the node (node_…)")]


@app.command("list")
def list_nodes(pool: PoolOption = None, json: JsonOption = False) -> None:
    """List the nodes of a pool and who holds their slots."""
    with Client() as client:
        found = client.pool.get(pool)
    if json:
        show_json(
            {
                "nodes": [node.model_dump(mode="json") for node in found.nodes],
                "slots": [slot.model_dump(mode="json") for slot in found.slots],
            }
        )
        return
    names = {node.id: node for node in found.nodes}
    show_table(
        ("ID", "NODE", "STATUS", "SLOT", "DEVICE", "STATE", "HELD BY"),
        (
            (
                slot.node.id,
                slot.node.name,
                names[slot.node.id].status if slot.node.id in names else None,
                slot.name,
                slot.device,
                slot.state,
                f"{slot.held_by.run_name} {slot.held_by.job or ''}".strip() if slot.held_by else None,
            )
            for slot in found.slots
        ),
    )


@app.command()
def cordon(node: NodeArgument, json: JsonOption = False) -> None:
    """Cordon the node: running jobs continue, no new jobs start."""
    with Client() as client:
        found = client.pool.cordon(node)
    show_json(found) if json else print(found.status)


@app.command()
def uncordon(node: NodeArgument, json: JsonOption = False) -> None:
    """Let new jobs start on the node again."""
    with Client() as client:
        found = client.pool.uncordon(node)
    show_json(found) if json else print(found.status)


@app.command()
def drain(node: NodeArgument, json: JsonOption = False) -> None:
    """Move the node's runs to other nodes; its status is DRAINED once it is empty."""
    with Client() as client:
        found = client.pool.drain(node)
    show_json(found) if json else print(found.status)


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
