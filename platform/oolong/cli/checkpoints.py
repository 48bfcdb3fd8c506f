"""`oolong checkpoint …`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer.exceptions import TyperException

from oolong.cli import gates
from oolong.cli.chat import chat
from oolong.cli.exit_codes import ExitCode
from oolong.cli.output import JsonOption, byte_progress, notes, show_fields, show_json, show_list
from oolong.client import Client
from oolong.client.models import Checkpoint, RetentionPlan

app = typer.Typer(no_args_is_help=True, help="Checkpoints that runs leave behind.")
app.add_typer(gates.app, name="gate")
app.command("chat")(chat)

ReferenceArgument = Annotated[
    str, typer.Argument(help="id (ckpt_…), alias, or a run with its step: run_…@20, name@latest")
]


@app.command("list")
def list_checkpoints(
    run: Annotated[str | None, typer.Option(help="only those of this run")] = None,
    kind: Annotated[
        str | None,
        typer.Option(help="training (a run continues from it) or weights (runs only begin with it)"),
    ] = None,
    state: Annotated[str | None, typer.Option(help="LOCAL, STORED or DELETED")] = None,
    json: JsonOption = False,
) -> None:
    """Committed checkpoints, newest first."""
    with Client() as client:
        found = list(client.checkpoints.list(run_id=run, kind=kind, state=state))
    show_list(
        found,
        ("ID", "RUN", "STEP", "KIND", "STATE", "FINAL", "BYTES", "ALIASES"),
        lambda item: (
            item.id, item.run.name or item.run.id, item.step, item.kind, item.state, item.final, item.bytes,
            ", ".join(item.aliases) or None,
        ),
        json=json,
    )  # fmt: skip


@app.command()
def get(checkpoint: ReferenceArgument, json: JsonOption = False) -> None:
    """One checkpoint, and what it comes from."""
    with Client() as client:
        found = client.checkpoints.resolve(checkpoint)
        graph = client.checkpoints.lineage(found.id)
    if json:
        show_json({"checkpoint": found.model_dump(mode="json"), "lineage": graph.model_dump(mode="json")})
        return
    names = {node.id: f"{node.kind} {node.name}" for node in graph.nodes}
    show_fields(
        {
            "id": found.id,
            "run": f"{found.run.name} ({found.run.id})",
            "step": found.step,
            "kind": found.kind,
            "state": found.state,
            "aliases": ", ".join(found.aliases) or None,
            "pinned": found.pinned,
            "bytes": found.bytes,
            "sha256": found.sha256,
        }
    )
    for edge in graph.edges:
        print(f"{names[edge.source]} → {names[edge.to]} ({edge.kind})")


@app.command()
def promote(
    checkpoint: ReferenceArgument,
    alias: Annotated[str, typer.Argument(help="the name that shall mean it: best, prod")],
    protected: Annotated[
        bool | None,
        typer.Option("--protected/--not-protected", help="whether moving it needs checkpoints:admin"),
    ] = None,
    trained_by: Annotated[
        str | None, typer.Option(help="exit 6 unless this run (run_…) left the checkpoint")
    ] = None,
    trained_on: Annotated[
        str | None, typer.Option(help="exit 6 unless its run trained on this dataset version (dsv_…)")
    ] = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="override the alias's gate; needs checkpoints:admin and is audited"),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Let an alias mean this checkpoint; it moves when it meant another. Exits 6 when its gate is not passed."""
    with Client() as client:
        found = client.checkpoints.resolve(checkpoint)
        _require_lineage(client, found, trained_by=trained_by, trained_on=trained_on)
        # By its id: a reference such as run_…@latest may mean a newer one a moment later.
        moved = client.checkpoints.promote(found.id, alias, protected=protected, force=force)
    if moved.evidence is not None and not moved.evidence.get("passed"):
        notes.print(
            f"warning: {alias} was moved although its gate is not passed: {moved.evidence.get('refusal', '')}",
            markup=False,
        )
    target = moved.checkpoint
    show_json(moved) if json else print(f"{moved.name} → {target.run.name} step {target.step} ({target.id})")


def _require_lineage(
    client: Client, checkpoint: Checkpoint, *, trained_by: str | None, trained_on: str | None
) -> None:
    """Exit 6 when the checkpoint is not of this run, or its run trained on another dataset version."""
    faults = []
    if trained_by is not None and checkpoint.run.id != trained_by:
        faults.append(f"{checkpoint.id} was left by run {checkpoint.run.id}, not by {trained_by}")
    if trained_on is not None:
        dataset = client.runs.get(checkpoint.run.id).dataset
        if dataset.id != trained_on:
            faults.append(
                f"run {checkpoint.run.id} trained on {dataset.id} ({dataset.ref}), not on {trained_on}"
            )
    if faults:
        notes.print(f"error: not promoted: {'; '.join(faults)}", markup=False)
        raise typer.Exit(ExitCode.CHECK_FAILED)


@app.command()
def pin(checkpoint: ReferenceArgument, json: JsonOption = False) -> None:
    """Keep it whatever the retention policy says."""
    _pin(checkpoint, pinned=True, json=json)


@app.command()
def unpin(checkpoint: ReferenceArgument, json: JsonOption = False) -> None:
    """Let the retention policy decide again."""
    _pin(checkpoint, pinned=False, json=json)


@app.command()
def download(
    checkpoint: ReferenceArgument,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="file to write (default: <id>.tar)")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Download a stored checkpoint as a tar archive; an interrupted download resumes."""
    with Client() as client:
        found = client.checkpoints.resolve(checkpoint)
        target = output or Path(f"{found.id}.tar")
        with byte_progress(target.name, quiet=json) as progress:
            client.checkpoints.download(found.id, target, progress=progress)
    show_json({"id": found.id, "file": str(target)}) if json else print(target)


@app.command()
def export(
    checkpoint: ReferenceArgument,
    folder: Annotated[Path, typer.Argument(help="folder to make")],
    merged: Annotated[
        bool, typer.Option("--merged", help="of an adapter: the base model with the adapter merged into it")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Write the model as a Hugging Face directory, or the adapter of a LoRA run as a PEFT directory.

    Each file's sha256 is verified, and a model card is added.
    """
    with Client() as client, byte_progress(folder.name, quiet=json) as progress:
        client.checkpoints.export(checkpoint, folder, merged=merged, progress=progress)
    show_json({"folder": str(folder)}) if json else print(folder)


@app.command()
def link(
    checkpoint: ReferenceArgument,
    expires_in: Annotated[int, typer.Option(min=60, help="seconds that it works")] = 3600,
    json: JsonOption = False,
) -> None:
    """An address that downloads the checkpoint without a token, for a while."""
    with Client() as client:
        made = client.checkpoints.link(client.checkpoints.resolve(checkpoint).id, seconds=expires_in)
    if json:
        show_json(made)
        return
    print(made.url)
    notes.print(f"until {made.expires_at:%Y-%m-%d %H:%M} UTC, sha256 {made.sha256}", markup=False)


@app.command()
def prune(
    apply: Annotated[
        bool, typer.Option("--apply", help="free it; without this, only say what would go")
    ] = False,
    json: JsonOption = False,
) -> None:
    """What the project's retention policy frees: a dry run, unless --apply is given."""
    with Client() as client:
        plan = client.checkpoints.apply_retention() if apply else client.checkpoints.plan_retention()
    if json:
        show_json(plan)
        return
    _print_plan(plan, applied=apply)


@app.command()
def retention(
    keep_last: Annotated[int | None, typer.Option(min=1, help="newest of each run")] = None,
    best_metric: Annotated[str, typer.Option(help="best of each run by this metric")] = "",
    best_mode: Annotated[str, typer.Option(help="max or min")] = "max",
    best_count: Annotated[int, typer.Option(min=1, help="so many of the best")] = 1,
    every_steps: Annotated[int | None, typer.Option(min=1, help="steps that are a multiple of it")] = None,
    ttl_days: Annotated[int | None, typer.Option(min=1, help="younger ones")] = None,
    kind: Annotated[
        list[str] | None, typer.Option(help="free only checkpoints of this kind: training, weights")
    ] = None,
    automatic: Annotated[bool, typer.Option("--automatic", help="apply it every ten minutes")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="say what this policy would free; set nothing")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Set which checkpoints the project keeps; a checkpoint is kept when any rule keeps it."""
    policy = {
        "keep_last": keep_last, "best_metric": best_metric, "best_mode": best_mode, "best_count": best_count,
        "every_steps": every_steps, "ttl_days": ttl_days, "kinds": kind or [],
    }  # fmt: skip
    if not (keep_last or best_metric or every_steps or ttl_days):
        raise TyperException("give at least one of --keep-last, --best-metric, --every-steps, --ttl-days")
    with Client() as client:
        if dry_run:
            plan = client.checkpoints.plan_retention(policy)
            show_json(plan) if json else _print_plan(plan, applied=False)
            return
        kept = client.checkpoints.set_retention(policy, automatic=automatic)
    show_json(kept) if json else show_fields(kept.model_dump())


def _pin(reference: str, *, pinned: bool, json: bool) -> None:
    with Client() as client:
        found = client.checkpoints.pin(client.checkpoints.resolve(reference).id, pinned)
    show_json(found) if json else print(f"{found.id} {'is pinned' if found.pinned else 'is not pinned'}")


def _print_plan(plan: RetentionPlan, *, applied: bool) -> None:
    for decision in plan.free:
        print(f"{'deleted' if applied else 'would delete'}\t{decision.id}\t{decision.bytes}")
    for decision in plan.keep:
        print(f"keep\t{decision.id}\t{decision.bytes}\t{'; '.join(decision.keep_reasons)}")
    notes.print(f"{plan.free_bytes} bytes {'deleted' if applied else 'would be deleted'}")
