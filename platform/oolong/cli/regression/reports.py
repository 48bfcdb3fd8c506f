"""The outcome of a gate as files that CI systems show: JUnit XML, and Markdown for a job's page."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree as xml

from oolong.cli.regression.verdict import Check, Verdict, worst
from oolong.cli.run_output import state_of, step_of
from oolong.client.models import Run

SIGNS = {Verdict.PASS: "✅", Verdict.FAIL: "❌", Verdict.INVESTIGATE: "🔍"}
# What XML 1.0 cannot hold, not even escaped.
_UNSAYABLE = {code: "�" for code in [*range(0x20), 0xFFFE, 0xFFFF] if code not in (0x9, 0xA, 0xD)}


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
            "name": _said(run.name) if run else "oolong",
            "timestamp": f"{began.astimezone(UTC):%Y-%m-%dT%H:%M:%S}", **counts,
        },
    )  # fmt: skip
    if run is not None:
        properties = xml.SubElement(suite, "properties")
        for name, value in _properties(run, url).items():
            xml.SubElement(properties, "property", {"name": name, "value": _said(value)})
    for check, outcome in zip(checks, outcomes, strict=True):
        case = xml.SubElement(
            suite, "testcase", {"classname": f"oolong.{check.kind}", "name": _said(check.name), "time": "0"}
        )
        why = _said(f"{check.verdict}: {check.why}" if check.verdict is Verdict.INVESTIGATE else check.why)
        if outcome == "passed":
            xml.SubElement(case, "system-out").text = why
        else:
            xml.SubElement(case, outcome, {"message": why, "type": check.kind}).text = why
    xml.indent(root)
    path.parent.mkdir(parents=True, exist_ok=True)
    xml.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def _outcome(check: Check, *, accept_undecided: bool) -> str:
    """The element of its test case: passed has none of its own."""
    if check.verdict is Verdict.PASS or (check.verdict is Verdict.INVESTIGATE and accept_undecided):
        return "passed"
    return "error" if check.error else "failure"


def markdown(run: Run, checks: list[Check], *, url: str) -> str:
    verdict = worst(checks)
    lines = [
        f"## {SIGNS[verdict]} {_cell(run.name)}: {verdict}",
        "",
        f"Run [`{run.id}`]({url}/runs/{run.id}), {_cell(state_of(run))}, train step {step_of(run)}.",
        "",
        "| | check | measured | baseline | noise | |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {SIGNS[check.verdict]} | `{_cell(check.name)}` | {_number(check.value)} | {_number(check.baseline)} "
        f"| {'±' + _number(check.noise) if check.noise is not None else ''} | {_cell(check.why)} |"
        for check in checks
    ]
    if run.advice and verdict is not Verdict.PASS:
        lines += ["", f"> {_cell(run.advice)}"]
    return "\n".join(lines) + "\n"


def write_markdown(path: Path, text: str) -> None:
    """Added at the end: a job's page may have more to say."""
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


def _said(text: str) -> str:
    return text.translate(_UNSAYABLE)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("`", "'")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
