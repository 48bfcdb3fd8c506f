"""`oolong run validate | plan`: what a spec would do, without doing it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oolong.cli.exit_codes import ExitCode
from oolong.cli.output import JsonOption, notes, show_fields, show_json
from oolong.cli.spec_changes import DatasetOption, SetOption, change_spec
from oolong.cli.spec_file import TemplateOption, read_spec
from oolong.client import Client
from oolong.client.models import Plan, Validation

app = typer.Typer()
FileOption = Annotated[
    Path, typer.Option("--file", "-f", help="the RunSpec, YAML or JSON; - reads standard input")
]


@app.command()
def validate(
    file: FileOption,
    dataset: DatasetOption = None,
    change: SetOption = None,
    template: TemplateOption = None,
    strict: Annotated[bool, typer.Option("--strict", help="warnings count as errors")] = False,
    json: JsonOption = False,
) -> None:
    """Check a spec: schema, names, lint. Exits with 2 when it has errors."""
    spec = read_spec(file)
    change_spec(spec, dataset=dataset, changes=change)
    with Client() as client:
        answer = client.runs.validate(spec, template=template)
    if json:
        show_json(answer)
    else:
        tell_findings(answer)
        print("valid" if answer.valid else "invalid")
    if not answer.valid or (strict and answer.warnings):
        raise typer.Exit(ExitCode.USAGE)


@app.command()
def plan(
    file: FileOption,
    dataset: DatasetOption = None,
    change: SetOption = None,
    template: TemplateOption = None,
    json: JsonOption = False,
) -> None:
    """A dry run: jobs, slots, place in the queue, tokens and time. Exits with 2 when the spec has errors."""
    spec = read_spec(file)
    change_spec(spec, dataset=dataset, changes=change)
    with Client() as client:
        answer = client.runs.plan(spec, template=template)
    if json:
        show_json(answer)
    else:
        tell_findings(answer)
        _show(answer)
    if not answer.valid:
        raise typer.Exit(ExitCode.USAGE)


def tell_findings(answer: Validation) -> None:
    for error in answer.errors:
        notes.print(f"error    {error.pointer or '/'}: {error.message}", markup=False)
    for warning in answer.warnings:
        notes.print(f"warning  {warning.pointer}: {warning.message}. {warning.advice}", markup=False)


def _show(answer: Plan) -> None:
    made = answer.plan
    if made is None:
        return
    place, time = made.placement, made.time
    waits = f"waits, number {place.queue_position}: {place.blocked_reason}"
    guess = f"{time.seconds:.0f} s, {time.gpu_hours} GPU-hours" if time.seconds is not None else None
    show_fields(
        {
            "jobs": ", ".join(f"{job.name}({job.slots})" if job.slots else job.name for job in made.jobs),
            "slots": made.slots_needed,
            "place": "starts now" if place.starts_now else waits,
            "groups": made.groups,
            "generated tokens at most": made.tokens.generated_at_most,
            "time": guess or "unknown: no run of this shape has succeeded yet",
        }
    )
