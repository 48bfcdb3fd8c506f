"""Writes what is generated from the code: the reference pages and the models of the SDK.

`python tests/tools/reference_pages.py`.

A test compares the committed pages with what this would write, so they cannot drift.
"""

from __future__ import annotations

import inspect
import os
import sys
import types
import typing
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from control_plane.telemetry.alerts.alert_rules import RULES
from oolong.contracts.lifecycle import OUTCOMES, RUN_TRANSITIONS
from oolong.contracts.metrics import FAMILIES, HISTOGRAMS, METRICS, Metric
from oolong.contracts.run_spec import REWARD_OPTIONS, RunSpec, WorkflowSection
from oolong.contracts.run_spec.inputs import OPTIONS_OF
from oolong.contracts.run_spec.lint import RULES as LINT_RULES
from tests.tools import cli_page, sdk_models, sdk_page
from tests.tools.metrics_left_out import LEFT_OUT
from tests.unit.control_plane.access import routes as access

PAGES = Path(__file__).resolve().parents[2] / "docs" / "reference"


def pages() -> dict[str, str]:
    """File name -> text."""
    return {
        "run-spec.md": _run_spec(),
        "options.md": _options(),
        "metrics.md": _metrics(),
        "lifecycle.md": _lifecycle(),
        "alerts.md": _alerts(),
        "access.md": _access(),
        "cli.md": cli_page.page(),
        "sdk.md": sdk_page.page(),
        "lint.md": _lint(),
    }


def _alerts() -> str:
    lines = [
        "# Alerts",
        "",
        "Every few seconds the control plane evaluates these rules on the newest train steps of each active run.",
        "An open alert is on the run's page, in its events and in `GET /api/v1/runs/{id}/alerts`.",
        "",
        "| rule | severity | title | what to do |",
        "| --- | --- | --- | --- |",
    ]
    lines += [f"| `{rule.name}` | {rule.severity} | {rule.title} | {rule.advice} |" for rule in RULES]
    return "\n".join(lines) + "\n"


def _access() -> str:
    lines = [
        "# Who may do what",
        "",
        "A role holds scopes; a token has those of its scopes that its user's role holds at that moment. What belongs",
        "to another team or project answers 404, like what does not exist. A test asks every door below as every kind",
        "of caller: nobody, each role with a token and in a browser, a token of each scope, expired and revoked ones,",
        "another team, another project, another node, and a node that its run has left behind.",
        "",
        "## Scopes",
        "",
        "| scope | from role |",
        "| --- | --- |",
        *(f"| `{scope}` | {role} |" for scope, role in access.LOWEST_ROLE.items()),
        "",
        "`pool:admin` comes with no role in a project or team: an admin of the installation has it for every pool, and",
        "whoever was appointed to a pool for that pool.",
        "",
        "## Pools",
        "",
        "What a caller gets of a pool that team *red* may use and team *blue* may not, by what the route needs.",
        "Callers are of team red unless they are of another team; another pool is one of team blue. A route that names",
        "a node stands for its pool.",
        "",
        "| caller | `pool:read` | `pool:admin` | `installation:admin` |",
        "| --- | --- | --- | --- |",
        *(
            f"| {name} | {' | '.join(answer or 'yes' for answer in answers.values())} |"
            for name, answers in access.POOL_CALLERS.items()
        ),
        "",
        "## Routes",
        "",
        "Under `/api/v1`, but for the first two.",
        "",
        "| route | needs |",
        "| --- | --- |",
        *(f"| `{route}` | {_need(need)} |" for route, need in access.ROUTES.items()),
        "",
        "## Live stream",
        "",
        "| topic, over WebSocket and SSE | needs |",
        "| --- | --- |",
        *(f"| `{topic}` | `{need}` |" for topic, need in access.TOPICS.items()),
    ]
    return "\n".join(lines) + "\n"


def _lint() -> str:
    lines = [
        "# What a spec is checked for",
        "",
        "Beside the schema's own rules (see the RunSpec reference), `POST /runs/validate` and `/runs/plan` look across",
        "fields, and at what is known of model, rows and pool. Errors refuse a submission; warnings do not.",
        "",
        "| code | severity | of | field | what to do |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| `{rule.code}` | {rule.severity} | {rule.kind} | `{rule.pointer}` | {rule.advice} |"
        for rule in LINT_RULES
    ]
    return "\n".join(lines) + "\n"


def _need(need: str) -> str:
    words = {access.OPEN: "nothing", access.KNOWN: "any user", access.NODE: "a node's credential"}
    return words.get(need, f"`{need}`")


def _run_spec() -> str:
    parts = [
        "# RunSpec reference",
        "",
        "Everything a run needs to know, in YAML or JSON. Unknown keys are errors. The resolved spec, with",
        "every default filled in, is stored with the run and never changes.",
    ]
    top: list[str] = []
    for name, field in RunSpec.model_fields.items():
        section = _section(field)
        if section is None:
            top.append(_row(name, field))
            continue
        parts += ["", f"## {name}", ""]
        if field.default is None:
            parts += ["Left out by default.", ""]
        if get_origin(field.annotation) is list:
            parts += ["A list; empty by default.", ""]
        if section.__doc__ and section.__doc__ != BaseModel.__doc__:
            parts += [inspect.cleandoc(section.__doc__), ""]
        parts += _fields(section, prefix="")
    return "\n".join([*parts[:4], "", "## Top level", "", *_HEAD, *top, *parts[4:]]) + "\n"


def _options() -> str:
    lines = [
        "# Options of rewards and workflows",
        "",
        "What `reward.options` holds for each built-in reward, and the fields of `workflow` that each built-in",
        "workflow reads beside those of all workflows. A submission is refused with every option that is misspelt or",
        "out of bounds. Options of an uploaded function are its own parameters.",
    ]
    for name, model in REWARD_OPTIONS.items():
        lines += [
            "",
            f"## reward: {name}",
            "",
            inspect.cleandoc(model.__doc__ or ""),
            "",
            *_fields(model, prefix=""),
        ]
    for name, fields in OPTIONS_OF.items():
        lines += ["", f"## workflow: {name}", ""]
        rows = [_row(field, WorkflowSection.model_fields[field]) for field in fields]
        lines += [*_HEAD, *rows] if rows else ["No options of its own."]
    return "\n".join(lines) + "\n"


_HEAD = ["| field | type | default | |", "| --- | --- | --- | --- |"]


def _fields(section: type[BaseModel], prefix: str) -> list[str]:
    rows = [] if prefix else list(_HEAD)
    for name, field in section.model_fields.items():
        inner = _section(field)
        if inner is not None:
            rows += _fields(inner, prefix=f"{prefix}{name}.")
        else:
            rows.append(_row(f"{prefix}{name}", field))
    return rows


def _section(field: FieldInfo) -> type[BaseModel] | None:
    for candidate in (field.annotation, *get_args(field.annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def _row(name: str, field: FieldInfo) -> str:
    default = "required" if field.is_required() else f"`{field.get_default(call_default_factory=True)!r}`"
    return f"| `{name}` | {_type(field.annotation)} | {default} | {field.description or ''} |"


def _type(annotation: Any) -> str:
    origin = get_origin(annotation)
    if origin is Literal:
        return " \\| ".join(f"`{value}`" for value in get_args(annotation))
    if origin in (typing.Union, types.UnionType):
        return " or ".join("nothing" if part is type(None) else _type(part) for part in get_args(annotation))
    if origin is typing.Annotated:
        return _type(get_args(annotation)[0])
    if origin is tuple:
        return f"{len(get_args(annotation))} numbers"
    if origin is dict:
        return "mapping"
    if origin is list:
        return f"list of {_type(get_args(annotation)[0])}"
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return " \\| ".join(f"`{value}`" for value in annotation)
    return {int: "integer", float: "number", str: "text", bool: "true or false"}.get(
        annotation, str(annotation)
    )


def _metrics() -> str:
    head = ["# Metrics", "", "A value that was not measured is absent, never 0.", ""]
    return "\n".join(
        [
            *[*head, *_metric_rows(METRICS), "", "## One for each source of the dataset", ""],
            *["The name of the source follows the last slash.", "", *_metric_rows(FAMILIES), ""],
            *["## Histograms", ""],
            *["One per train step; the unit is that of the buckets.", "", *_metric_rows(HISTOGRAMS), ""],
            *["## Not measured, and why", "", "| what other tools have | here |", "| --- | --- |"],
            *[*(f"| {names} | {reason} |" for names, reason in LEFT_OUT.items()), ""],
        ]
    )


def _metric_rows(table: dict[str, Metric]) -> list[str]:
    rows = [
        f"| `{metric.name}` | {metric.unit} | {metric.help.replace('|', chr(92) + '|')} |"
        for metric in table.values()
    ]
    return ["| name | unit | meaning |", "| --- | --- | --- |", *rows]


def _lifecycle() -> str:
    parts = ["# Life of a run", "", "| status | moves to |", "| --- | --- |"]
    for status, moves in RUN_TRANSITIONS.items():
        parts.append(f"| {status} | {', '.join(sorted(moves)) or 'ended'} |")
    parts += [
        "",
        "## Why a run ends",
        "",
        "| reason | status | fault | retried | what to do |",
        "| --- | --- | --- | --- | --- |",
    ]
    for reason, outcome in OUTCOMES.items():
        parts.append(
            f"| `{reason}` | {outcome.status} | {outcome.fault} | {outcome.retry} | {outcome.advice} |"
        )
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    if sdk_models.write():  # the pages show the models that were imported above: start again
        os.execv(sys.executable, [sys.executable, "-m", "tests.tools.reference_pages"])
    PAGES.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (PAGES / name).write_text(text)
    sys.exit(0)
