"""`oolong run wait`, `watch` and `baseline`: wait for a run and check it in CI."""

from __future__ import annotations

import json as json_module
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.live import Live
from rich.text import Text

from oolong.cli.exit_codes import ExitCode, of_run
from oolong.cli.output import JsonOption, notes, show_json
from oolong.cli.regression.baseline import FORMS, NoBaseline, parse_comparison, read_baselines
from oolong.cli.regression.noise import CONFIDENCE, Bounds
from oolong.cli.regression.reports import markdown, write_junit, write_markdown
from oolong.cli.regression.results import Check, RegressionResult, worst
from oolong.cli.regression.run_checks import RunChecks, check_run
from oolong.cli.regression.values import newest_points
from oolong.cli.run_output import (
    RunArgument,
    boot_lines,
    progress_line,
    stage_line,
    staleness_words,
    state_of,
    step_of,
)
from oolong.client import Client, OolongError
from oolong.client.models import Boot, Run
from oolong.contracts.assertions import name_fault, parse

app = typer.Typer()

WORDS = {
    RegressionResult.PASS: "holds",
    RegressionResult.FAIL: "FAILS",
    RegressionResult.INVESTIGATE: "INVESTIGATE",
}


@dataclass(frozen=True)
class Reports:
    junit: Path | None = None
    markdown: Path | None = None
    accept_undecided: bool = False  # `--investigate pass`

    def refuse_unwritable(self) -> None:
        """Fail before the wait when a report could not be written after it."""
        for option, path in (("--junit", self.junit), ("--markdown", self.markdown)):
            if path is None:
                continue
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                message = f"{path} cannot be written: {path.parent}: {error.strerror}"
                raise typer.BadParameter(message, param_hint=option) from error
            if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
                raise typer.BadParameter(f"{path} cannot be written: name a file", param_hint=option)

    def write(self, run: Run, checks: list[Check], *, url: str) -> None:
        if self.junit is not None:
            write_junit(self.junit, run, checks, url=url, accept_undecided=self.accept_undecided)
        if self.markdown is not None:
            write_markdown(self.markdown, markdown(run, checks, url=url))

    def write_unfinished(self, client: Client, run_id: str, why: str, *, run: Run | None = None) -> None:
        """Report the run as an error, as the exit code does, when its end was not seen."""
        check = Check("run", f"run {run_id} ends", RegressionResult.FAIL, why, error=True)
        if run is not None:
            self.write(run, [check], url=client.settings.url)
        elif self.junit is not None:
            write_junit(self.junit, None, [check], url=client.settings.url)


@app.command()
def wait(
    run: RunArgument,
    timeout: Annotated[
        float | None, typer.Option(help="seconds; afterwards exit 3, the run continues")
    ] = None,
    check: Annotated[
        list[str] | None,
        typer.Option(
            "--assert",
            help="exit 6 unless it holds at the end: 'eval/accuracy >= 0.8', 'mean(reward/mean, 20) > 0.5'; repeatable",
        ),
    ] = None,
    compare: Annotated[
        list[str] | None,
        typer.Option(
            help="a metric to compare with the baseline: eval/accuracy, eval/mean_tokens:lower; repeatable"
        ),
    ] = None,
    baseline: Annotated[
        list[str] | None, typer.Option(help=f"{FORMS}; repeatable: several are seeds")
    ] = None,
    tolerance: Annotated[
        float, typer.Option(min=0, help="how much worse than the baseline is accepted")
    ] = 0.0,
    confidence: Annotated[
        float,
        typer.Option(
            min=0.5,
            max=0.9999,
            help="how sure a failure must be: 0.99 fails an unchanged model 1 time in 100",
        ),
    ] = CONFIDENCE,
    sigma: Annotated[
        float | None, typer.Option(min=0, help="standard deviation of one run's value, where it is known")
    ] = None,
    detect: Annotated[
        float | None,
        typer.Option(min=0, help="undecided (investigate) when the noise hides a regression of this size"),
    ] = None,
    investigate: Annotated[
        str, typer.Option(help="what an undecided comparison is to the exit code: fail (6) or pass (0)")
    ] = "fail",
    junit: Annotated[Path | None, typer.Option(help="write the checks as JUnit XML")] = None,
    markdown: Annotated[Path | None, typer.Option(help="add a summary to this file, as Markdown")] = None,
    cancel_on_interrupt: Annotated[
        bool, typer.Option("--cancel-on-interrupt", help="Ctrl-C or SIGTERM cancels the run too")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="no progress lines")] = False,
    json: JsonOption = False,
) -> None:
    """Wait for a run's end. Exits 0 succeeded, 3 timeout, 5 failed, 6 gate, 7 stopped, 8 infrastructure.

    Ctrl-C stops the waiting, not the run, unless --cancel-on-interrupt; a second one leaves at once.
    """
    if bool(baseline) != bool(compare):
        raise typer.BadParameter("--baseline and --compare go together: what is compared, and with what")
    if investigate not in ("fail", "pass"):
        raise typer.BadParameter(f"{investigate!r} is neither fail nor pass", param_hint="--investigate")
    reports = Reports(junit, markdown, accept_undecided=investigate == "pass")
    reports.refuse_unwritable()
    with Client() as client:
        bounds = Bounds(tolerance=tolerance, confidence=confidence, sigma=sigma, detect=detect)
        requested = _parse_checks(client, check or [], compare or [], baseline or [], bounds)
        with _cancelling(client, run, reports) if cancel_on_interrupt else _detaching(client, run, reports):
            code = wait_for(client, run, requested, reports, timeout=timeout, quiet=quiet, json=json)
    raise typer.Exit(code)


@app.command()
def watch(run: RunArgument) -> None:
    """Show a run live until it ends; exits as `wait` does."""
    with Client() as client:
        if not sys.stdout.isatty():
            raise typer.Exit(wait_for(client, run, RunChecks(), Reports()))
        with Live(Text("…"), refresh_per_second=4) as live:
            began = time.monotonic()
            ended = client.runs.wait(
                run, on_change=lambda found: live.update(Text(_panel(found, time.monotonic() - began)))
            )
        raise typer.Exit(of_run(ended))


@app.command()
def baseline(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN...", help="ids of runs that differ by their seed")
    ],
    metric: Annotated[list[str], typer.Option(help="eval/accuracy; repeatable")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="file to write")] = None,
) -> None:
    """The last values of some metrics, as the file that `run wait --baseline` takes."""
    document: dict[str, list[float]] = {}
    with Client() as client:
        for name in metric:
            for run in runs:
                values = newest_points(client, run, name, 1)
                if not values:
                    raise typer.BadParameter(f"run {run} has no {name}", param_hint="--metric")
                document.setdefault(name, []).append(values[-1])
    if output is None:
        show_json(document)
        return
    output.write_text(json_module.dumps(document, indent=2) + "\n")
    print(output)


def wait_for(
    client: Client,
    run_id: str,
    requested: RunChecks,
    reports: Reports,
    *,
    timeout: float | None = None,
    quiet: bool = False,
    json: bool = False,
) -> ExitCode:
    """Wait, check, report. Writes the reports before it raises TimeoutError or an OolongError."""
    try:
        run = client.runs.wait(run_id, timeout_seconds=timeout, on_change=None if quiet else ProgressLines())
    except TimeoutError as error:
        reports.write_unfinished(client, run_id, str(error), run=client.runs.get(run_id))
        raise
    except OolongError as error:
        reports.write_unfinished(client, run_id, str(error))
        raise
    try:
        checks = check_run(client, run, requested)
    except OolongError as error:
        reports.write_unfinished(
            client, run_id, f"it ended as {run.status}, and was not checked: {error}", run=run
        )
        raise
    for check in checks[1:]:
        notes.print(f"{WORDS[check.result]}: {check.name}, {check.why}", markup=False)
    if run.staleness is not None and run.staleness.message:
        notes.print(f"staleness: {run.staleness.message}", markup=False)
    if run.status != "SUCCEEDED" and run.advice:
        notes.print(run.advice, markup=False)
    reports.write(run, checks, url=client.settings.url)
    if json:
        regression = {"result": worst(checks), "checks": [asdict(check) for check in checks]}
        show_json({**run.model_dump(mode="json"), "regression": regression})
    else:
        print(run.status)
    return _code(run, checks, accept_undecided=reports.accept_undecided)


def _code(run: Run, checks: list[Check], *, accept_undecided: bool) -> ExitCode:
    ended = of_run(run)
    result = worst(checks)
    if ended is not ExitCode.SUCCEEDED or result is RegressionResult.PASS:
        return ended
    accepted = result is RegressionResult.INVESTIGATE and accept_undecided
    return ExitCode.SUCCEEDED if accepted else ExitCode.CHECK_FAILED


def _parse_checks(
    client: Client, checks: list[str], compare: list[str], baselines: list[str], bounds: Bounds
) -> RunChecks:
    """Read everything before the wait, so that a wrong option fails at once."""
    try:
        assertions = [parse(text) for text in checks]
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--assert") from error
    if faults := [fault for assertion in assertions if (fault := name_fault(assertion))]:
        raise typer.BadParameter("; ".join(faults), param_hint="--assert")
    try:
        comparisons = [parse_comparison(text) for text in compare]
        found = read_baselines(client, baselines)
    except NoBaseline as error:
        raise typer.BadParameter(str(error), param_hint="--baseline") from error
    return RunChecks(assertions, comparisons, found, bounds)


class ProgressLines:
    """Prints the progress line of a run, each once."""

    def __init__(self) -> None:
        self._last = ""
        self._stages: set[tuple[int, str]] | None = None
        self._staleness = ""

    def __call__(self, run: Run) -> None:
        self._print_stages(run.boot)
        # Its numbers change with every step; that it is so, and the numbers so far, are said once.
        if run.staleness is not None and run.staleness.message and not self._staleness and not run.ended:
            self._staleness = run.staleness.message
            notes.print(f"staleness: {self._staleness}", markup=False)
        line = progress_line(run)
        if line != self._last:
            notes.print(line, markup=False)
        self._last = line

    def _print_stages(self, boot: Boot | None) -> None:
        """Each stage of the boot as it ends, with its duration. A boot that ended before is not printed."""
        if boot is None:
            return
        over = {
            (boot.attempt_number, stage.name): stage
            for stage in boot.stages
            if stage.state in ("done", "failed")
        }
        if self._stages is None:
            self._stages = set(over) if boot.done else set()
        for key, stage in over.items():
            if key not in self._stages:
                self._stages.add(key)
                notes.print(stage_line(stage), markup=False)


@contextmanager
def _detaching(client: Client, run_id: str, reports: Reports) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        reports.write_unfinished(client, run_id, f"interrupted: no longer waiting; {run_id} continues")
        notes.print(f"no longer waiting; {run_id} continues", markup=False)
        raise


@contextmanager
def _cancelling(client: Client, run_id: str, reports: Reports) -> Iterator[None]:
    """The first interrupt cancels the run and waits for its end; a second one leaves at once."""

    def interrupted(number: int, frame: Any) -> NoReturn:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupted) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except KeyboardInterrupt:
        reports.write_unfinished(client, run_id, f"interrupted: {run_id} is being cancelled")
        notes.print(f"interrupted: cancelling {run_id}; once more leaves at once", markup=False)
        try:
            client.runs.cancel(run_id)
            ended = client.runs.wait(run_id)
            notes.print(ended.status, markup=False)
            reports.write_unfinished(client, run_id, f"interrupted and cancelled: {ended.status}", run=ended)
        except OolongError as error:
            notes.print(f"error: {error}", markup=False)
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _panel(run: Run, seconds: float) -> str:
    lines = [
        f"{run.name}  {run.id}",
        state_of(run),
        f"watched for {seconds:.0f} s, attempt {run.attempt_number}",
    ]
    lines += boot_lines(run)
    if run.progress is not None and not run.ended and (run.boot is None or run.boot.done):
        share = run.progress.done / run.progress.total if run.progress.total else 0.0
        lines.append(
            f"{run.progress.phase:<12} {_bar(share)} {run.progress.done}/{run.progress.total} {run.progress.message}"
        )
    if run.total_train_steps:
        lines.append(f"{'train steps':<12} {_bar(run.train_step / run.total_train_steps)} {step_of(run)}")
    if run.reward_mean is not None:
        lines.append(f"{'reward':<12} {run.reward_mean:.4f}")
    if run.staleness_mean is not None:
        lines.append(f"{'staleness':<12} {staleness_words(run)}")
    return "\n".join(lines)


def _bar(share: float, width: int = 30) -> str:
    filled = round(width * min(1.0, max(0.0, share)))
    return "█" * filled + "░" * (width - filled)
