"""`oolong run validate | plan | why`: what a spec would do, without doing it, and why a run waits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oolong.cli.exit_codes import ExitCode
from oolong.cli.output import JsonOption, notes, show_fields, show_json, show_table
from oolong.cli.run_output import RunArgument, eta_text
from oolong.cli.spec_changes import DatasetOption, SetOption, change_spec
from oolong.cli.spec_file import TemplateOption, read_spec
from oolong.client import Client
from oolong.client.models import Plan, SpecWhatIf, Validation, WaitExplanation, WhatIf

app = typer.Typer()
FileOption = Annotated[
    Path, typer.Option("--file", "-f", help="the RunSpec, YAML or JSON; - reads standard input")
]

WhatIfOption = Annotated[
    bool,
    typer.Option(
        "--what-if",
        help="compare variants: fewer engines or ranks, another device, the other pools of your team",
    ),
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
    what_if: WhatIfOption = False,
    json: JsonOption = False,
) -> None:
    """A dry run: jobs, slots, place in the queue, tokens and time. Exits with 2 when the spec has errors."""
    spec = read_spec(file)
    change_spec(spec, dataset=dataset, changes=change)
    with Client() as client:
        if what_if:
            compared = client.runs.what_if_spec(spec, template=template)
            _show_spec_what_if(compared, json=json)
            return
        answer = client.runs.plan(spec, template=template)
    if json:
        show_json(answer)
    else:
        tell_findings(answer)
        _show(answer)
    if not answer.valid:
        raise typer.Exit(ExitCode.USAGE)


@app.command()
def why(run: RunArgument, what_if: WhatIfOption = False, json: JsonOption = False) -> None:
    """Why a queued run waits: the reason, its position in the queue, when it starts, and the runs ahead of it."""
    with Client() as client:
        if what_if:
            _show_what_if(client.runs.what_if(run), json=json)
            return
        found = client.runs.explain_wait(run)
    if json:
        show_json(found)
    else:
        show_fields(_wait_fields(found))


def _show_spec_what_if(answer: SpecWhatIf, *, json: bool) -> None:
    if json:
        show_json(answer)
    else:
        tell_findings(answer)
        if answer.what_if is not None:
            _show_what_if(answer.what_if, json=False)
    if not answer.valid:
        raise typer.Exit(ExitCode.USAGE)


def _show_what_if(found: WhatIf, *, json: bool) -> None:
    if json:
        show_json(found)
        return
    show_table(
        ("STARTS", "SOONER", "WHAT IF"),
        (
            ("now" if one.starts_now else eta_text(one.start), "yes" if one.sooner else "", one.message)
            for one in (found.as_is, *found.variants)
        ),
    )


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
    slow = f" (at most {time.seconds_p90:.0f} s with 90 %)" if time.seconds_p90 is not None else ""
    guess = f"{time.seconds:.0f} s{slow}, {time.gpu_hours} GPU-hours" if time.seconds is not None else None
    show_fields(
        {
            "jobs": ", ".join(f"{job.name}({job.slots})" if job.slots else job.name for job in made.jobs),
            "slots": made.slots_needed,
            **_wait_fields(place),
            "groups": made.groups,
            "generated tokens at most": made.tokens.generated_at_most,
            "time": guess or "unknown: no run of this shape has succeeded yet",
        }
    )


def _wait_fields(wait: WaitExplanation) -> dict[str, object]:
    if wait.starts_now:
        return {"waits": "no, it starts now"}
    ahead = [f"{run.name} ({run.slots_needed} slots)" for run in wait.ahead]
    hidden = (wait.position or 1) - 1 - len(ahead)
    return {
        "waits": wait.message,
        "reason": wait.code,
        "starts": eta_text(wait.start),
        "position": f"{wait.position} of {wait.queue_length}",
        "ahead": ", ".join([*ahead, *([f"{hidden} more"] if hidden else [])]) or "nobody",
    }
