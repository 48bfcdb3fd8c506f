"""`oolong quickstart`: everything that the guide's run needs, in one command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from oolong.cli.exit_codes import ExitCode, of_run
from oolong.cli.output import JsonOption, byte_progress, notes, show_json
from oolong.cli.run_wait import ProgressLines
from oolong.client import Client
from oolong.client.models import Run
from oolong.contracts.user_code import SourceKind
from oolong.samples.demo_dataset import MAPPING
from oolong.samples.files import SampleFiles

app = typer.Typer()

DATASET, DATASET_ALIAS, MODEL, FUNCTION = "letters", "quickstart", "my-model", "letters"
WARM_START, ALIAS = "letters-warm-start", "letters-start"
PRESET = "letter-sum-sft"


@app.command()
def quickstart(
    directory: Annotated[Path, typer.Argument(help="where the sample files go")] = Path("letters"),
    files_only: Annotated[
        bool, typer.Option("--files-only", help="write the files and upload nothing")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Write a sample dataset, base model, reward and RunSpec; upload them; train a warm start (about a minute).

    Afterwards `oolong run create -f run.yaml` in that directory starts reinforcement learning. Safe to repeat: what is
    there already is used again.
    """
    files = SampleFiles(directory)
    for path in files.write():
        notes.print(f"wrote {path}", markup=False)
    if files_only:
        if json:
            show_json({"directory": str(directory)})
        return
    with Client() as client:
        result = _upload(client, files)
        run = _warm_start(client, result)
        result["alias"] = _promote(client, run)
    if json:
        show_json({**result, "run": run.id, "directory": str(directory)})
        return
    notes.print(f"Everything is there. Next: cd {directory} && oolong run create -f run.yaml", markup=False)


def _upload(client: Client, files: SampleFiles) -> dict[str, Any]:
    """The references of what was uploaded. The same content gives the version that is there."""
    with byte_progress(files.dataset.name) as progress:
        dataset = client.datasets.upload(files.dataset, name=DATASET, mapping=MAPPING, progress=progress)
    client.datasets.set_alias(DATASET, DATASET_ALIAS, dataset.ref)
    notes.print(f"dataset {dataset.ref} ({DATASET}@{DATASET_ALIAS})", markup=False)
    with byte_progress(files.model.name) as progress:
        model = client.models.upload(files.model, name=MODEL, progress=progress)
    notes.print(f"base model {model.ref}", markup=False)
    function = client.functions.upload(files.reward, name=FUNCTION, kind=SourceKind.REWARD)
    notes.print(f"reward {function.ref}", markup=False)
    return {"dataset": dataset.ref, "model": model.id, "function": function.ref}


def _warm_start(client: Client, uploaded: dict[str, Any]) -> Run:
    """A warm start of these inputs that has succeeded, or a new one, waited for."""
    spec = next((preset.spec for preset in client.presets() if preset.name == PRESET), None)
    if spec is None:
        notes.print(
            f"the server has no preset {PRESET}: its version differs from this command's", markup=False
        )
        raise typer.Exit(ExitCode.USAGE)
    spec |= {"name": WARM_START, "model": {"base_model": uploaded["model"]}}
    spec["dataset"]["version"] = uploaded["dataset"]
    resolved = client.runs.validate(spec).resolved
    for run in client.runs.list(kind="sft", status="SUCCEEDED", name=WARM_START):
        if run.spec == resolved and _newest_checkpoint(client, run):
            notes.print(f"warm start {run.id} is used again", markup=False)
            return run
    run = client.runs.create(spec)
    notes.print(f"warm start {run.id}: {client.settings.url}/runs/{run.id}", markup=False)
    ended = client.runs.wait(run.id, on_change=ProgressLines())
    if ended.status != "SUCCEEDED":
        notes.print(ended.advice or f"see: oolong run logs {run.id}", markup=False)
        raise typer.Exit(of_run(ended))
    return ended


def _promote(client: Client, run: Run) -> str:
    checkpoint = _newest_checkpoint(client, run)
    if checkpoint is None:
        notes.print(f"run {run.id} has no stored checkpoint; see: oolong run logs {run.id}", markup=False)
        raise typer.Exit(ExitCode.INFRASTRUCTURE)
    client.checkpoints.promote(checkpoint, ALIAS)
    notes.print(f"checkpoint {ALIAS} ({checkpoint})", markup=False)
    return ALIAS


def _newest_checkpoint(client: Client, run: Run) -> str | None:
    stored = [found for found in client.checkpoints.list(run_id=run.id) if found.state == "STORED"]
    return max(stored, key=lambda found: found.step).id if stored else None
