"""Bodies that are wrong in every field, and questions that are wrong in one: made from the OpenAPI document."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.apps import apps
from django.db import connection

# What is said of one field at a time, or before the body is read.
ELSEWHERE = {
    "POST /runs": "runs/test_specs.py, test_drafts.py, test_dedupe.py, test_templates.py",
    "POST /runs/validate": "runs/test_specs.py, test_templates.py",
    "POST /runs/plan": "runs/test_plan_jobs.py, test_templates.py",
    "POST /runs/simulate": "telemetry/test_simulate.py",
    "POST /runs/what-if": "runs/test_what_if.py",
    "PUT /session/project": "test_teams.py: a token is of one project, and that error comes first",
}
SECRET = {"password", "secret", "value"}  # never repeated


@dataclass(frozen=True)
class Form:
    """A route that changes something, and a wrong value for each field of its body, if it has one."""

    name: str  # "POST /runs/{run_id}/clone"
    wrong: Mapping[str, Any]
    required: frozenset[str]


@dataclass(frozen=True)
class Question:
    name: str  # "GET /runs/{run_id}/metrics"
    field: str
    wrong: str
    others: Mapping[str, str] = field(default_factory=dict)  # what else the question needs


def forms(schema: Mapping[str, Any]) -> Iterator[Form]:
    for name, operation in operations(schema):
        content = operation.get("requestBody", {}).get(
            "content", {"application/json": {"schema": {"type": "object"}}}
        )
        if name.startswith(("GET", "DELETE")) or "application/json" not in content or name in ELSEWHERE:
            continue
        body = _resolved(schema, content["application/json"]["schema"])
        wrong = {key: _wrong(_resolved(schema, part)) for key, part in body.get("properties", {}).items()}
        yield Form(name, wrong, frozenset(body.get("required", ())))


def questions(schema: Mapping[str, Any]) -> Iterator[Question]:
    """One for each parameter that is no plain text."""
    for name, operation in operations(schema):
        asked = [given for given in operation.get("parameters", []) if given["in"] == "query"]
        needed = {given["name"]: "x" for given in asked if given.get("required")}
        for given in asked:
            kind = _resolved(schema, given["schema"])
            if isinstance(wrong := _wrong(kind), str) and kind["type"] != "array":
                others = {key: value for key, value in needed.items() if key != given["name"]}
                yield Question(name, given["name"], wrong, others)


def rows_in_tables() -> dict[str, int]:
    names = sorted(model._meta.db_table for model in apps.get_models() if model._meta.managed)
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(f"SELECT '{name}', count(*) FROM {name}" for name in names))
        return dict(cursor.fetchall())


def _wrong(schema: Mapping[str, Any]) -> Any:
    """A value that the field cannot mean. Of a plain text none can be written in an address: a list."""
    kinds = schema.get("type", "object")
    kind = next((one for one in kinds if one != "null"), "") if isinstance(kinds, list) else kinds
    if schema.get("enum"):
        return "none-such"
    if kind in ("integer", "number", "boolean", "array", "object"):
        return f"no {kind}"
    return "no moment" if schema.get("format") == "date-time" else ["no text"]


def operations(schema: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The users' own."""
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            if "/agent/" not in path:
                yield f"{method.upper()} {re.sub('^/api/v1', '', path)}", operation


def _resolved(schema: Mapping[str, Any], part: Mapping[str, Any]) -> Mapping[str, Any]:
    for wrapper in ("allOf", "oneOf", "anyOf"):
        if wrapper in part and "properties" not in part:
            return _resolved(schema, next(inner for inner in part[wrapper] if inner.get("type") != "null"))
    if "$ref" in part:
        return _resolved(schema, schema["components"]["schemas"][part["$ref"].rsplit("/", 1)[1]])
    return part
