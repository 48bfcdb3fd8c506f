"""Regression results as files that CI systems show: JUnit XML, and Markdown for a job's page."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree as xml

from oolong.cli.regression.results import Check, RegressionResult, worst
from oolong.cli.run_output import state_of, step_of
from oolong.client.models import Run

SIGNS = {RegressionResult.PASS: "✅", RegressionResult.FAIL: "❌", RegressionResult.INVESTIGATE: "🔍"}
# Characters that XML 1.0 cannot hold, not even escaped.
_INVALID_IN_XML = {code: "�" for code in [*range(0x20), 0xFFFE, 0xFFFF] if code not in (0x9, 0xA, 0xD)}


def write_junit(
    path: Path, run: Run | None, checks: list[Check], *, url: str, accept_undecided: bool = False
) -> None:
    """A suite with one case for the run itself and one for each check. It has a failure or an error exactly when the
    command exits with something else than 0."""
    outcomes = [_outcome(check, accept_undecided=accept_undecided) for check in checks]
    counts = {
        "tests": str(len(checks)), "failures": str(outcomes.count("failure")), "errors": str(outcomes.count("error")),
        "skipped": "0", "time": f"{_seconds(run) if run else 0:.3f}",
    }  # fmt: skip
    root = xml.Element("testsuites", {"name": "oolong", **counts})
    began = run.created_at if run else datetime.now(UTC)
    suite = xml.SubElement(
        root, "testsuite",
        {
            "name": _xml_text(run.name) if run else "oolong",
            "timestamp": f"{began.astimezone(UTC):%Y-%m-%dT%H:%M:%S}", **counts,
        },
    )  # fmt: skip
    if run is not None:
        properties = xml.SubElement(suite, "properties")
        for name, value in _properties(run, url).items():
            xml.SubElement(properties, "property", {"name": name, "value": _xml_text(value)})
    for check, outcome in zip(checks, outcomes, strict=True):
        case = xml.SubElement(
            suite,
            "testcase",
            {"classname": f"oolong.{check.kind}", "name": _xml_text(check.name), "time": "0"},
        )
        why = _xml_text(
            f"{check.result}: {check.why}" if check.result is RegressionResult.INVESTIGATE else check.why
        )
        if outcome == "passed":
            xml.SubElement(case, "system-out").text = why
        else:
            xml.SubElement(case, outcome, {"message": why, "type": check.kind}).text = why
    xml.indent(root)
    path.parent.mkdir(parents=True, exist_ok=True)
    xml.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def _outcome(check: Check, *, accept_undecided: bool) -> str:
    """The element of its test case: passed has none of its own."""
    if check.result is RegressionResult.PASS or (
        check.result is RegressionResult.INVESTIGATE and accept_undecided
    ):
        return "passed"
    return "error" if check.error else "failure"


def markdown(run: Run, checks: list[Check], *, url: str) -> str:
    result = worst(checks)
    lines = [
        f"## {SIGNS[result]} {_cell(run.name)}: {result}",
        "",
        f"Run [`{run.id}`]({url}/runs/{run.id}), {_cell(state_of(run))}, train step {step_of(run)}.",
        "",
        "| | check | measured | baseline | noise | |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {SIGNS[check.result]} | `{_cell(check.name)}` | {_number(check.value)} | {_number(check.baseline)} "
        f"| {'±' + _number(check.noise) if check.noise is not None else ''} | {_cell(check.why)} |"
        for check in checks
    ]
    if run.advice and result is not RegressionResult.PASS:
        lines += ["", f"> {_cell(run.advice)}"]
    return "\n".join(lines) + "\n"


def write_markdown(path: Path, text: str) -> None:
    """Append: other steps of the job may write to the same page."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(text)


def _properties(run: Run, url: str) -> dict[str, str]:
    return {
        "run_id": run.id, "run_url": f"{url}/runs/{run.id}", "kind": run.kind, "status": run.status,
        "reason": run.reason, "dataset": run.dataset.ref, "model": run.model.name,
        "train_step": str(run.train_step),
        "checkpoint": run.latest_checkpoint.id if run.latest_checkpoint else "",
    }  # fmt: skip


def _seconds(run: Run) -> float:
    return ((run.ended_at or datetime.now(UTC)) - run.created_at).total_seconds()


def _xml_text(text: str) -> str:
    return text.translate(_INVALID_IN_XML)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("`", "'")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
