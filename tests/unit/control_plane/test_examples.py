"""The examples in the OpenAPI document: answers that the API gave, of the form that it gives now.

If a form changed: OOLONG_WRITE_EXAMPLES=1 python -m pytest tests/unit/control_plane/test_examples.py
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from drf_spectacular.generators import SchemaGenerator

from control_plane.common import schema as schema_module
from control_plane.telemetry import services
from oolong.contracts.telemetry import Points
from tests.unit.control_plane.conftest import Person, SimulatedNode
from tests.unit.telemetry.world import encode

FILE = Path(schema_module.__file__).with_name("examples.json")
OPERATIONS = (
    "me", "list_projects", "list_members", "list_tokens", "list_audit_entries", "list_datasets", "list_models",
    "list_runs", "get_run", "list_run_events", "list_run_attempts", "list_run_jobs", "metrics", "list_checkpoints",
    "get_checkpoint", "get_pool", "get_pool_usage",
)  # fmt: skip


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    found: dict[str, Any] = SchemaGenerator(api_version="v1").get_schema(request=None, public=True)
    return found


@pytest.fixture
def answers(
    alice: Person,
    node: Callable[..., SimulatedNode],
    start: Callable[..., Any],
    commit_checkpoint: Callable[..., None],
    schema: dict[str, Any],
) -> dict[str, Any]:
    """What the operations answer about a run that has measured and committed a checkpoint."""
    where = node()
    run = start(where, name="letters")
    values = {"reward/mean": 0.5, "time/train_seconds": 2.0}
    body = encode(*(Points(at=1.7e9 + x, axis="step", x=x, values=values) for x in (1, 2)))
    services.receive_outbox(where.job("trainer"), "main-0.jsonl", offset=0, body=body)
    attempt = alice.get(f"/runs/{run['id']}/attempts").json()["data"][0]["id"]
    commit_checkpoint(run["id"], attempt, step=2)
    known = {
        "run_id": run["id"],
        "dataset_id": alice.get("/datasets").json()["data"][0]["id"],
        "checkpoint_id": alice.get("/checkpoints").json()["data"][0]["id"],
    }
    paths = {
        operation["operationId"]: path.removeprefix("/api/v1")
        for path, methods in schema["paths"].items()
        for method, operation in methods.items()
        if method == "get"
    }
    found = {}
    for name in OPERATIONS:
        assert name in paths, f"{name} is no operation; there are {sorted(paths)}"
        answer = alice.get(re.sub(r"\{(\w+)\}", lambda place: known[place[1]], paths[name]))
        assert answer.status_code == 200, (name, answer.content)
        found[name] = answer.json()
    return found


def test_the_examples_have_the_form_of_what_the_api_answers(answers: dict[str, Any]) -> None:
    if os.environ.get("OOLONG_WRITE_EXAMPLES"):
        FILE.write_text(json.dumps(answers, indent=1, ensure_ascii=False) + "\n")
    kept = json.loads(FILE.read_text())
    assert set(kept) == set(OPERATIONS)
    for name, answer in answers.items():
        assert form(kept[name]) == form(answer), f"{name}: {__doc__}"


def form(value: Any) -> Any:
    """Names and kinds of values, without the values; of a list that of its first item."""
    if isinstance(value, dict):
        return {name: form(part) for name, part in value.items()}
    if isinstance(value, list):
        return [form(value[0])] if value else []
    return (
        "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__
    )


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_example_is_in_the_document_and_valid_there(schema: dict[str, Any], name: str) -> None:
    (operation,) = [
        operation
        for methods in schema["paths"].values()
        for operation in methods.values()
        if operation["operationId"] == name
    ]
    content = operation["responses"]["200"]["content"]["application/json"]
    validator = jsonschema.Draft202012Validator({**content["schema"], "components": schema["components"]})
    faults = [f"{error.json_path}: {error.message}" for error in validator.iter_errors(content["example"])]
    assert faults == []


def test_an_answer_of_another_form_is_no_example(schema: dict[str, Any]) -> None:
    """The checks above can fail: a field that goes away, and a value of another kind."""
    run = json.loads(FILE.read_text())["get_run"]
    assert form({**run, "status": None}) != form(run)
    assert form({name: value for name, value in run.items() if name != "status"}) != form(run)
    validator = jsonschema.Draft202012Validator(
        {"$ref": "#/components/schemas/RunDetail", "components": schema["components"]}
    )
    assert list(validator.iter_errors({**run, "status": "DREAMING"}))
    assert list(validator.iter_errors({name: value for name, value in run.items() if name != "id"}))
