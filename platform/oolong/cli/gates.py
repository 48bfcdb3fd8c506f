"""`oolong checkpoint gate …`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oolong.cli.exit_codes import ExitCode
from oolong.cli.output import JsonOption, notes, show_done, show_fields, show_json, show_list
from oolong.cli.spec_file import read_spec
from oolong.client import Client
from oolong.client.models import GateResult

app = typer.Typer(no_args_is_help=True, help="What a checkpoint must pass before an alias may mean it.")

Alias = Annotated[str, typer.Argument(help="the alias: prod")]
Reference = Annotated[
    str, typer.Argument(help="checkpoint: id, alias, or a run with its step: run_…@20, name@latest")
]


@app.command("set")
def set_gate(
    alias: Alias,
    file: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="YAML: the eval spec without its model")
    ],
    assertions: Annotated[
        list[str], typer.Option("--assert", help="'eval/accuracy >= 0.8'; may be repeated, all must hold")
    ],
    json: JsonOption = False,
) -> None:
    """Set the alias's gate. What the spec names is pinned now."""
    document = read_spec(file)
    for name in ("kind", "name", "model", "notes"):  # of a whole eval.yaml: a gate has its own
        document.pop(name, None)
    with Client() as client:
        gate = client.checkpoints.set_gate(alias, document, assertions)
    show_json(gate) if json else print(f"{gate.alias}: {' and '.join(gate.assertions)}")


@app.command("list")
def list_gates(json: JsonOption = False) -> None:
    """The project's gates."""
    with Client() as client:
        found = list(client.checkpoints.gates())
    show_list(
        found,
        ("ALIAS", "DATASET", "SPLIT", "ASSERTIONS", "BY"),
        lambda gate: (
            gate.alias, gate.spec["dataset"]["version"], gate.spec["dataset"]["split"],
            " and ".join(gate.assertions), gate.updated_by,
        ),
        json=json,
    )  # fmt: skip


@app.command()
def get(alias: Alias, checkpoint: Reference, json: JsonOption = False) -> None:
    """What the gate says of a checkpoint. Exit status 6 unless it has passed."""
    with Client() as client:
        result = client.checkpoints.gate_result(alias, checkpoint)
    _tell(result, json=json)


@app.command()
def run(
    alias: Alias,
    checkpoint: Reference,
    wait: Annotated[bool, typer.Option(help="until the run has ended, and say what the gate says")] = True,
    json: JsonOption = False,
) -> None:
    """Run the gate's evaluation of a checkpoint. Exit status 6 when it does not pass."""
    with Client() as client:
        started = client.checkpoints.run_gate(alias, checkpoint)
        if not wait:
            show_json(started) if json else print(started.id)
            return
        notes.print(f"waiting for {started.id}", markup=False)
        client.runs.wait(started.id)
        result = client.checkpoints.gate_result(alias, checkpoint)
    _tell(result, json=json)


@app.command()
def delete(alias: Alias, json: JsonOption = False) -> None:
    """Remove the gate; the alias moves freely again unless it is protected."""
    with Client() as client:
        client.checkpoints.delete_gate(alias)
    show_done(f"{alias} has no gate now", {"deleted": alias}, json=json)


def _tell(result: GateResult, *, json: bool) -> None:
    if json:
        show_json(result)
    else:
        show_fields({"gate": result.alias, "checkpoint": result.checkpoint, "status": result.status})
        print(result.why)
        if result.command:
            print(f"run: {result.command}")
    if result.status != "passed":
        raise typer.Exit(ExitCode.CHECK_FAILED)
