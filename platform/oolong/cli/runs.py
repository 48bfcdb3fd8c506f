"""`oolong run …`"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.live import Live
from rich.text import Text

from oolong.cli import assertions, run_compare, run_control, run_plan
from oolong.cli.exit_codes import ExitCode, of_run
from oolong.cli.logs import follow_logs, print_logs
from oolong.cli.output import JsonOption, notes, show_fields, show_json, show_table
from oolong.cli.run_output import RunArgument, progress_line, state_of, step_of
from oolong.cli.spec_file import read_spec
from oolong.client import Client
from oolong.client.models import Run

app = typer.Typer(no_args_is_help=True, help="Training runs: create, watch, wait, pause, stop.")
app.add_typer(run_control.app)
app.add_typer(run_compare.app)
app.add_typer(run_plan.app)


@app.command()
def create(
    file: Annotated[
        Path, typer.Option("--file", "-f", help="the RunSpec, YAML or JSON; - reads standard input")
    ],
    name: Annotated[str | None, typer.Option(help="overrides the spec's name")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="validate only, and print the resolved spec")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="then wait for its end, as `oolong run wait` does")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Submit a run."""
    spec = read_spec(file)
    if name is not None:
        spec["name"] = name
    with Client() as client:
        if dry_run:
            answer = client.runs.validate(spec)
            for error in answer.errors:
                notes.print(f"{error.pointer or '/'}: {error.message}", markup=False)
            if not answer.valid:
                raise typer.Exit(ExitCode.USAGE)
            show_json(answer.resolved or {})
            return
        run = client.runs.create(spec)
        if not wait:
            show_json(run) if json else print(run.id)
            return
        notes.print(f"{run.id} is submitted", markup=False)
        raise typer.Exit(_wait(client, run.id, timeout=None, quiet=False, checks=[], json=json))


@app.command("list")
def list_runs(
    status: Annotated[
        str | None, typer.Option(help="QUEUED, RUNNING, SUCCEEDED, ...; several with commas")
    ] = None,
    kind: Annotated[str | None, typer.Option(help="rl or sft")] = None,
    name: Annotated[str | None, typer.Option(help="only runs of this name")] = None,
    tag: Annotated[str | None, typer.Option(help="only runs with this tag")] = None,
    limit: Annotated[int, typer.Option(min=1, help="at most this many, newest first")] = 50,
    json: JsonOption = False,
) -> None:
    """The project's runs, newest first."""
    with Client() as client:
        found = [
            run
            for run, _ in zip(
                client.runs.list(status=status, kind=kind, name=name, tag=tag), range(limit), strict=False
            )
        ]
    if json:
        show_json(found)
        return
    show_table(
        ("ID", "NAME", "KIND", "STATUS", "STEP", "REWARD", "CREATED"),
        (
            (
                run.id,
                run.name,
                run.kind,
                run.status,
                step_of(run),
                run.reward_mean,
                f"{run.created_at:%Y-%m-%d %H:%M}",
            )
            for run in found
        ),
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
            "attempt": found.attempt_number,
            "step": step_of(found),
            "policy version": found.policy_version,
            "reward": found.reward_mean,
            "staleness": found.staleness_mean,
            "dataset": found.dataset.ref or found.dataset.id,
            "model": found.model.name or found.model.id,
            "checkpoint": found.latest_checkpoint.id if found.latest_checkpoint else None,
            "created": found.created_at,
            "ended": found.ended_at,
        }
    )


@app.command()
def logs(
    run: RunArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="go on until the run has ended")] = False,
    job: Annotated[
        str | None, typer.Option(help="only this job: trainer, controller, reward, rollout-0, ...")
    ] = None,
    tail: Annotated[
        int | None, typer.Option(min=0, help="begin this many bytes before the end of each file")
    ] = None,
) -> None:
    """What the jobs of a run print."""
    with Client() as client:
        if follow:
            follow_logs(client, run, job=job, tail_bytes=tail)
        else:
            print_logs(client, run, job=job, tail_bytes=tail)


@app.command()
def wait(
    run: RunArgument,
    timeout: Annotated[float | None, typer.Option(help="seconds; afterwards exit 3, the run goes on")] = None,
    check: Annotated[
        list[str] | None,
        typer.Option(
            "--assert", help="exit 6 unless it holds at the end, e.g. 'reward/mean >= 0.8'; repeatable"
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="no progress lines")] = False,
    json: JsonOption = False,
) -> None:
    """Wait for a run's end. Exits 0 succeeded, 3 timeout, 5 failed, 6 assertion, 7 stopped, 8 infrastructure.

    Ctrl-C stops the waiting, not the run.
    """
    checks = []
    for text in check or []:
        try:
            checks.append(assertions.parse(text))
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--assert") from error
    with Client() as client:
        raise typer.Exit(_wait(client, run, timeout=timeout, quiet=quiet, checks=checks, json=json))


@app.command()
def watch(run: RunArgument) -> None:
    """Show a run live until it ends; exits as `wait` does."""
    with Client() as client:
        if not sys.stdout.isatty():
            raise typer.Exit(_wait(client, run, timeout=None, quiet=False, checks=[], json=False))
        with Live(Text("…"), refresh_per_second=4) as live:
            began = time.monotonic()
            ended = client.runs.wait(
                run, on_change=lambda found: live.update(Text(_panel(found, time.monotonic() - began)))
            )
        raise typer.Exit(of_run(ended))


def _wait(
    client: Client,
    run_id: str,
    *,
    timeout: float | None,
    quiet: bool,
    checks: list[assertions.Assertion],
    json: bool,
) -> ExitCode:
    last = ""

    def tell(run: Run) -> None:
        nonlocal last
        line = progress_line(run)
        if line != last:
            notes.print(line, markup=False)
        last = line

    run = client.runs.wait(run_id, timeout_seconds=timeout, on_change=None if quiet else tell)
    code = of_run(run)
    if code is ExitCode.SUCCEEDED:
        for check in checks:
            value = assertions.measured(client, run, check)
            held = check.holds(value)
            shown = "not measured" if value is None else f"{value:.6g}"
            notes.print(f"{'holds' if held else 'FAILS'}: {check}, measured {shown}", markup=False)
            code = code if held else ExitCode.GATE_FAILED
    elif run.advice:
        notes.print(run.advice, markup=False)
    show_json(run) if json else print(run.status)
    return code


def _panel(run: Run, seconds: float) -> str:
    lines = [
        f"{run.name}  {run.id}",
        state_of(run),
        f"watched for {seconds:.0f} s, attempt {run.attempt_number}",
    ]
    if run.progress is not None and not run.ended:
        share = run.progress.done / run.progress.total if run.progress.total else 0.0
        lines.append(
            f"{run.progress.phase:<12} {_bar(share)} {run.progress.done}/{run.progress.total} {run.progress.message}"
        )
    if run.total_train_steps:
        lines.append(f"{'train steps':<12} {_bar(run.train_step / run.total_train_steps)} {step_of(run)}")
    if run.reward_mean is not None:
        lines.append(f"{'reward':<12} {run.reward_mean:.4f}")
    if run.staleness_mean is not None:
        lines.append(f"{'staleness':<12} {run.staleness_mean:.2f}")
    return "\n".join(lines)


def _bar(share: float, width: int = 30) -> str:
    filled = round(width * min(1.0, max(0.0, share)))
    return "█" * filled + "░" * (width - filled)
