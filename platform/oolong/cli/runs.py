"""`oolong run …`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oolong.cli import run_compare, run_control, run_export, run_plan, run_simulate, run_telemetry, run_wait
from oolong.cli.exit_codes import ExitCode
from oolong.cli.logs import LineFilter, follow_logs, print_found, print_logs
from oolong.cli.output import JsonOption, notes, show_fields, show_json, show_list
from oolong.cli.regression.run_checks import RunChecks
from oolong.cli.run_filters import FilterOption, read_filters
from oolong.cli.run_output import (
    RunArgument,
    boot_lines,
    eta_text,
    staleness_words,
    state_of,
    status_of,
    step_of,
)
from oolong.cli.run_wait import Reports, wait_for
from oolong.cli.spec_changes import DatasetOption, SetOption, change_spec
from oolong.cli.spec_file import TemplateOption, read_spec
from oolong.client import Client

app = typer.Typer(no_args_is_help=True, help="Training runs: create, watch, wait, pause, stop.")
app.add_typer(run_control.app)
app.add_typer(run_compare.app)
app.add_typer(run_export.app)
app.add_typer(run_telemetry.app)
app.add_typer(run_plan.app)
app.add_typer(run_simulate.app)
app.add_typer(run_wait.app)


@app.command()
def create(
    file: Annotated[
        Path, typer.Option("--file", "-f", help="the RunSpec, YAML or JSON; - reads standard input")
    ],
    name: Annotated[str | None, typer.Option(help="overrides the spec's name")] = None,
    dataset: DatasetOption = None,
    change: SetOption = None,
    template: TemplateOption = None,
    draft: Annotated[bool, typer.Option("--draft", help="keep it without submitting it")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="validate only, and print the resolved spec")
    ] = False,
    dedupe_key: Annotated[
        str | None,
        typer.Option(
            help="once for this key: the same spec gives the run that is there, another one is refused"
        ),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="then wait for its end, as `oolong run wait` does")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Submit a run."""
    spec = read_spec(file)
    change_spec(spec, dataset=dataset, changes=change)
    if name is not None:
        spec["name"] = name
    with Client() as client:
        if dry_run:
            answer = client.runs.validate(spec, template=template)
            for error in answer.errors:
                notes.print(f"{error.pointer or '/'}: {error.message}", markup=False)
            if not answer.valid:
                raise typer.Exit(ExitCode.USAGE)
            show_json(answer.resolved or {})
            return
        run = client.runs.create(spec, template=template, draft=draft, dedupe_key=dedupe_key)
        if draft or not wait:
            show_json(run) if json else print(run.id)
            return
        notes.print(f"{run.id} is submitted", markup=False)
        raise typer.Exit(wait_for(client, run.id, RunChecks(), Reports(), json=json))


@app.command("list")
def list_runs(
    status: Annotated[
        str | None, typer.Option(help="QUEUED, RUNNING, SUCCEEDED, ...; several with commas")
    ] = None,
    kind: Annotated[str | None, typer.Option(help="rl, sft, dpo or eval")] = None,
    name: Annotated[str | None, typer.Option(help="only runs of this name")] = None,
    tag: Annotated[str | None, typer.Option(help="only runs with this tag")] = None,
    where: FilterOption = None,
    view: Annotated[
        str | None, typer.Option(help="id of a saved view; the other options go before it")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="at most this many, newest first")] = 50,
    json: JsonOption = False,
) -> None:
    """The project's runs, newest first."""
    with Client() as client:
        found = [
            run
            for run, _ in zip(
                client.runs.list(
                    status=status, kind=kind, name=name, tag=tag, view=view, filters=read_filters(where or [])
                ),
                range(limit),
                strict=False,
            )
        ]
    show_list(
        found,
        ("ID", "NAME", "KIND", "STATUS", "STEP", "REWARD", "CREATED"),
        lambda run: (
            run.id,
            run.name,
            run.kind,
            status_of(run),
            step_of(run),
            run.reward_mean,
            f"{run.created_at:%Y-%m-%d %H:%M}",
        ),
        json=json,
    )


@app.command()
def get(run: RunArgument, json: JsonOption = False) -> None:
    """One run as it is now."""
    with Client() as client:
        found = client.runs.get(run)
    if json:
        show_json(found)
        return
    show_fields(
        {
            "id": found.id,
            "name": found.name,
            "tags": ", ".join(found.tags) or None,
            "made from": f"{found.parent.id} ({found.parent.relation})" if found.parent else None,
            "kind": found.kind,
            "status": state_of(found),
            "starts": eta_text(found.start) if found.start else None,
            "ends": eta_text(found.end) if found.end else None,
            "attempt": found.attempt_number,
            "step": step_of(found),
            "policy version": found.policy_version,
            "reward": found.reward_mean,
            "staleness": staleness_words(found),
            "dataset": found.dataset.ref or found.dataset.id,
            "model": found.model.name or found.model.id,
            "checkpoint": found.latest_checkpoint.id if found.latest_checkpoint else None,
            "created": found.created_at,
            "ended": found.ended_at,
        }
    )
    lines = boot_lines(found)
    if lines:
        print("boot\n" + "\n".join(f"  {line}" for line in lines))


@app.command()
def logs(
    run: RunArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="go on until the run has ended")] = False,
    job: Annotated[
        str | None, typer.Option(help="only this job: trainer, controller, reward, rollout-0, ...")
    ] = None,
    tail: Annotated[
        int | None, typer.Option(min=0, help="only the last lines of each file, this many")
    ] = None,
    search: Annotated[str | None, typer.Option("--search", "-s", help="only lines with this text")] = None,
    regex: Annotated[bool, typer.Option("--regex", help="--search is a regular expression")] = False,
    level: Annotated[
        str | None,
        typer.Option(help="only lines of this level or worse: DEBUG, INFO, WARNING, ERROR, CRITICAL"),
    ] = None,
) -> None:
    """What the jobs of a run print. With --search and --level the server looks for lines; a followed log is
    looked through here."""
    wanted = LineFilter.made_of(search or "", regex=regex, level=level)
    with Client() as client:
        if follow:
            follow_logs(client, run, job=job, tail_lines=tail, wanted=wanted)
        elif search or level:
            print_found(client, run, search or "", regex=regex, level=level, job=job)
        else:
            print_logs(client, run, job=job, tail_lines=tail)
