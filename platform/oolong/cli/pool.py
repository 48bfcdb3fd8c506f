"""`oolong pool …`"""

from __future__ import annotations

from typing import Annotated

import typer

from oolong.cli.output import JsonOption, show_json, show_table
from oolong.client import Client

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
def cordon(node: NodeArgument) -> None:
    """Give this node no new work; what runs goes on."""
    with Client() as client:
        print(client.pool.cordon(node).status)


@app.command()
def uncordon(node: NodeArgument) -> None:
    """Let a node take work again."""
    with Client() as client:
        print(client.pool.uncordon(node).status)


@app.command()
def drain(node: NodeArgument) -> None:
    """Move a node's runs away, then keep it empty."""
    with Client() as client:
        print(client.pool.drain(node).status)


@app.command("enrolment-token")
def enrolment_token(json: JsonOption = False) -> None:
    """A single-use token with which one new node may join."""
    with Client() as client:
        token = client.pool.enrolment_token()
    show_json(token) if json else print(token.token)
