"""The examples in the OpenAPI document: bodies that the API takes, and answers that it gave, of the form that it gives.

If a form changed, or an operation is new (a body goes into common/example_requests.json by hand):
OOLONG_WRITE_EXAMPLES=1 python -m pytest tests/unit/control_plane/test_examples.py
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from django.db import transaction
from drf_spectacular.generators import SchemaGenerator

from control_plane.core.api import schema as schema_module
from control_plane.core.security.rate_limits import request_cost
from control_plane.telemetry.ingest import outbox
from oolong.contracts.agent import PROTOCOL
from oolong.contracts.telemetry import Points
from tests.unit.control_plane.access.objects import World, api, build_world
from tests.unit.control_plane.access.routes import NODE, OPEN, ROUTES
from tests.unit.control_plane.telemetry.world import encode

FOLDER = Path(schema_module.__file__).parent
FILE = FOLDER / "examples.json"
REQUESTS = FOLDER / "example_requests.json"
WRITES = bool(os.environ.get("OOLONG_WRITE_EXAMPLES"))

# Their answer needs more than one request to a world at rest. It is that of another operation of the same form, or,
# where there is none, one of BY_HAND.
NOT_ASKED = {
    "set_checkpoint_alias": "its gate has not been passed",
    "log_in": "needs a browser's session and password",
    "choose_session_project": "needs a browser's session",
    "create_stream_ticket": "a ticket is of the moment",
    "import_model": "needs a hub",
    "fetch_upload": "asks another host",
    "agent_enroll": "its bearer is a join token",
    "accept_invitation": "creates a user",
    "ship_telemetry": "its body is no JSON",
    "look_up_invitation": "needs the secret of an invitation",
    "measure_dataset_version": "needs a model whose tokenizer is stored",
    "state": "the run has shipped none",
    "list_checkpoint_files_by_link": "needs a signed link",
    "put_upload_session_part": "needs the SHA-256 in a header",
    "create_webhook": "the host of the example does not exist",
    "create_dataset_version": "its validation is of the moment",
    "add_member": "the user is a member already",
    "update_run": "the run no longer waits",
    "explain_wait": "the run no longer waits",
    "what_if": "the run no longer waits",
    "resume_run": "the run is not paused",
    "retry_run": "the run has not ended",
    "submit_run": "the run is no draft",
    "redeliver_webhook": "it is tried again by itself",
    "complete_upload_session": "its parts are missing",
    "agent_complete_import": "its parts are missing",
    "agent_leave": "a run needs the node",
}  # fmt: skip
_PROJECT = {"id": "prj_01m81y7mzx5e9rj2k3c4v5b6n7", "name": "default"}
_INVITED = {
    "team": {"id": "team_01m81y7mzx5e9rj2k3c4v5b6n8", "name": "red"}, "project": _PROJECT, "level": "project",
    "role": "editor", "invited_by": "alice", "expires_at": "2026-01-08T12:00:00Z",
}  # fmt: skip
BY_HAND: dict[str, Any] = {
    "agent_enroll": {
        "node_id": "node_01m81y7mzx5e9rj2k3c4v5b6n9", "credential": "oolnode_…", "heartbeat_seconds": 10.0,
        "lease_ttl_seconds": 45.0, "orphan_ttl_seconds": 4500.0, "protocol": PROTOCOL,
    },
    "ship_telemetry": {"chunks": [{"status": 200, "offset": 4096, "code": "", "detail": ""}]},
    "measure_dataset_version": {
        "id": "msr_01m81y7mzx5e9rj2k3c4v5b6nb", "state": "DONE", "message": "",
        "version_id": "dsv_01m81y7mzx5e9rj2k3c4v5b6nc",
        "model": {"id": "mdl_01m81y7mzx5e9rj2k3c4v5b6nd", "name": "tiny"},
        "vocabulary": 151936, "bytes": 4096, "bytes_seen": 4096,
        "duplicates": 0, "conflicts": 0, "without_completion": 32,
        "prompts": {"train": {
            "rows": 32, "mean": 4.5, "smallest": 3, "p50": 4, "p95": 6, "p99": 6, "largest": 6, "share_over": None,
            "histogram": [],
        }},
        "completions": {}, "created_at": "2026-01-01T12:00:00Z", "ended_at": "2026-01-01T12:00:01Z",
        "columns": [{
            "name": "answer", "rows": 32, "missing": 0, "distinct": 2, "distinct_exact": True, "shortest": 1,
            "median": 1,
            "p95": 2, "longest": 2, "mean": 1.3, "numeric": 32, "minimum": 4.0, "maximum": 12.0,
            "frequent": [{"value": "4", "rows": 22}, {"value": "12", "rows": 10}], "frequent_exact": True,
        }],
    },
    "agent_complete_import": {"state": "CHECKING", "message": ""},
    "agent_leave": {},
    "accept_invitation": {**_INVITED, "username": "dana", "token": "ool_…"},
    "look_up_invitation": _INVITED,
    "state": {"name": "ledger", "at": 1767225600.0, "value": {"admitted_groups": 64, "trained_groups": 48}},
    "explain_wait": {
        "starts_now": False, "code": "capacity", "position": 2, "queue_length": 3,
        "message": "needs 2 slots on one node; 1 of 2 are free on node-1",
        "start": {
            "p50": "2026-01-01T12:20:00Z", "p90": "2026-01-01T13:05:00Z", "source": "replay", "message": "",
        },
        "ahead": [{"run_id": "", "name": "another team's run", "slots_needed": 2, "priority": 500}],
    },
    "what_if": {
        "as_is": {
            "kind": None, "changes": {}, "starts_now": False, "sooner": False,
            "start": {"p50": "2026-01-01T12:20:00Z", "p90": "2026-01-01T13:05:00Z", "source": "replay", "message": ""},
            "message": "as it is it starts at about 2026-01-01 12:20 UTC",
        },
        "variants": [{
            "kind": "engines", "changes": {"rollout": {"engines": 2}}, "starts_now": True, "sooner": True,
            "start": {"p50": "2026-01-01T12:00:00Z", "p90": "2026-01-01T12:00:00Z", "source": "replay", "message": ""},
            "message": "with 2 engines instead of 4 it starts now",
        }],
    },
    "create_stream_ticket": {"ticket": "tkt_…", "expires_at": "2026-01-01T12:01:00Z"},
}  # fmt: skip


def operations(schema: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path.removeprefix("/api/v1"), operation


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    found: dict[str, Any] = SchemaGenerator(api_version="v1").get_schema(request=None, public=True)
    return found


def json_of(operation: dict[str, Any]) -> dict[str, Any] | None:
    """The media type of the answer that a call which goes well has; None where that is no JSON."""
    for status, answer in sorted(operation["responses"].items()):
        if status.startswith("2"):
            found: dict[str, Any] | None = answer.get("content", {}).get("application/json")
            return found
    return None


@pytest.fixture(scope="module", autouse=True)
def _own_store(store_of_module: None) -> None:
    """Of the module, as its world is."""


@pytest.fixture(scope="module")
def world(_own_store: None, django_db_setup: None, django_db_blocker: Any) -> Iterator[World]:
    with django_db_blocker.unblock(), transaction.atomic():
        built = build_world()
        values = {"reward/mean": 0.5, "time/train_seconds": 2.0}
        body = encode(*(Points(at=1.7e9 + x, axis="step", x=x, values=values) for x in (1, 2)))
        outbox.ingest_outbox(built.ids["job_id"], "main-0.jsonl", offset=0, body=body)
        yield built
        transaction.set_rollback(True)


@pytest.fixture(scope="module")
def asked(world: World, django_db_blocker: Any, schema: dict[str, Any]) -> dict[str, Any]:
    """What every operation answers that is asked, each in the world as it was."""
    found: dict[str, Any] = {}
    refused: dict[str, bytes] = {}
    bodies = json.loads(REQUESTS.read_text())
    for method, path, operation in operations(schema):
        name = operation["operationId"]
        if name in NOT_ASKED or json_of(operation) is None:
            continue
        body = json.loads(filled(json.dumps(bodies[name]), world.ids)) if name in bodies else RAW.get(name)
        bearer = world.tokens["node" if ROUTES[f"{method} {path}"] == NODE else "alice"]
        address = filled(path, {**PATHS, **world.ids}) + filled(QUERIES.get(name, ""), world.ids)
        with django_db_blocker.unblock(), transaction.atomic():
            answer = api(bearer, method, address, body)
            transaction.set_rollback(True)
        if answer.status_code in (200, 201, 202):
            found[name] = answer.json()
        else:
            refused[name] = answer.content
    assert refused == {}
    return found


PATHS = {"number": "0", "incarnation": "0", "file": "main-1.jsonl"}  # of no object


def filled(text: str, ids: dict[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda place: ids.get(place[1], place[0]), text)


QUERIES = {
    "resolve_checkpoint": "?ref=prod", "resolve_dataset_version": "?ref=sums@1",
    "resolve_function_version": "?ref=one@1",
    "resolve_model": "?ref=tiny", "evaluate_checkpoint_gate": "?checkpoint={checkpoint_id}",
    "diff_dataset_versions": "?from=sums@1", "upload": "?purpose=dataset&filename=rows.jsonl",
    "histograms": "?name=staleness/consumed_tokens", "metrics": "?names=reward/mean",
    "sparklines": "?ids={run_id}",
}  # fmt: skip
RAW = {
    "upload": b'{"q": "1+1", "a": "2"}\n',
    "agent_put_import_part": b"checkpoint 2",
    "agent_upload_part": b"checkpoint 2",
}


def complete(asked: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """An answer for every operation that answers with JSON: its own, one of the same form, or one by hand."""
    of_form: dict[str, Any] = {}
    for _, _, operation in operations(schema):
        answer = asked.get(operation["operationId"])
        if answer is None:
            continue
        form = json_of(operation)["schema"].get("$ref", "")  # type: ignore[index]
        of_form.setdefault(form, answer)
        page = schema["components"]["schemas"].get(form.rpartition("/")[2], {}).get("properties", {})
        item = page.get("data", {}).get("items", {}).get("$ref")
        if item and answer.get("data"):
            of_form.setdefault(item, answer["data"][0])
    found = {}
    for _, _, operation in operations(schema):
        name, content = operation["operationId"], json_of(operation)
        if content is not None:
            form = content["schema"].get("$ref", "no reference")
            found[name] = asked[name] if name in asked else BY_HAND.get(name, of_form.get(form))
            assert found[name] is not None, f"{name}: ask for it, or write its answer into BY_HAND"
    return found


@pytest.mark.django_db
def test_the_examples_have_the_form_of_what_the_api_answers(
    asked: dict[str, Any], world: World, schema: dict[str, Any]
) -> None:
    whole = complete(asked, schema)
    if WRITES:
        text = json.dumps({"ids": world.ids, "answers": whole}, indent=1, ensure_ascii=False)
        FILE.write_text(settled(text) + "\n")
    kept = json.loads(FILE.read_text())["answers"]
    assert set(kept) == set(whole), f"operations changed: {__doc__}"
    for name, answer in asked.items():
        assert same_form(kept[name], answer), f"{name}: {kept[name]} {answer} {__doc__}"


# What differs from one writing to the next, and what stands for it.
FIXED = (
    (r"\bwhsec_[A-Za-z0-9+/=_-]{20,}", "whsec_…"),
    (r"\b(ool(?:node|join|invite|tkt)?_)[A-Za-z0-9_-]{20,}", r"\1…"),
    (r'"prefix": "ool_[A-Za-z0-9_-]{6}"', '"prefix": "ool_Mq2AEx"'),
    (r'"(csrf_token|token)": "[A-Za-z0-9_-]{40,}"', r'"\1": "…"'),
    (r'"(fingerprint|after)": "[0-9a-f]{8}"', r'"\1": "5b03bc8f"'),
    (r'checkpoint-downloads/[^"/]+', "checkpoint-downloads/…"),
    (r'"(reward|engine-\d+|controller)": [0-9]{5}\b', r'"\1": 20000'),
    (r"127\.0\.0\.1:[0-9]+", "127.0.0.1:6379"),
    (r'"slot_seconds": [0-9.]+', '"slot_seconds": 4.0'),
    (r'"(train|other)": [0-9]+\.[0-9]{1,3}\b', r'"\1": 2.0'),
    (r"\b17[0-9]{8}\.[0-9]+\b", "1767268800.0"),
    (r"\b20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:.]+(Z|\+00:00)", "2026-01-01T12:00:00Z"),
)


def settled(text: str) -> str:
    """The same text at every writing: ids are counted, moments and measurements fixed, secrets hidden."""
    numbers: dict[str, str] = {}

    def counted(found: re.Match[str]) -> str:
        return numbers.setdefault(found[0], f"{found[1]}_01jy{len(numbers) + 1:022}")

    for pattern, value in FIXED:
        text = re.sub(pattern, value, text)
    return re.sub(r"\b([a-z]+)_01[0-9a-z]{24}\b", counted, text)


def test_secrets_and_measurements_do_not_change_the_written_examples() -> None:
    def written(secret: str, port: int, seconds: float) -> str:
        return settled(json.dumps({
            "prefix": f"ool_{secret[:6]}", "token": secret, "secret": f"whsec_{secret}=", "engine-0": port,
            "url": f"http://host/checkpoint-downloads/{secret}:1/files", "slot_seconds": seconds, "kept": 7,
        }))  # fmt: skip

    assert written("a" * 43, 31461, 4.441) == written("b_-" * 15, 26021, 4.123)
    assert json.loads(written("a" * 43, 31461, 4.4))["kept"] == 7


def same_form(one: Any, other: Any) -> bool:
    """The same names and kinds of values. Null and an empty list fit everything: they say nothing of the form."""
    if one is None or other is None or one == [] or other == []:
        return True
    if isinstance(one, dict) and isinstance(other, dict):
        return set(one) == set(other) and all(same_form(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return same_form(one[0], other[0])
    numbers = isinstance(one, int | float) and isinstance(other, int | float)
    return type(one) is type(other) or (numbers and not isinstance(one, bool) and not isinstance(other, bool))


def faults(schema: dict[str, Any], form: dict[str, Any], value: Any) -> list[str]:
    validator = jsonschema.Draft202012Validator({**form, "components": schema["components"]})
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(value)]


@pytest.mark.django_db
def test_every_answer_is_as_the_document_says(asked: dict[str, Any], schema: dict[str, Any]) -> None:
    found = {
        operation["operationId"]: faults(
            schema, json_of(operation)["schema"], asked[operation["operationId"]]
        )  # type: ignore[index]
        for _, _, operation in operations(schema)
        if operation["operationId"] in asked
    }
    assert {name: said for name, said in found.items() if said} == {}


def test_every_operation_has_a_summary_a_description_its_weight_and_valid_examples(
    schema: dict[str, Any],
) -> None:
    """A new operation gets its words from the docstring of its method, and its examples as this file's head says."""
    wrong: list[str] = []
    for method, path, operation in operations(schema):
        name = operation["operationId"]
        summary, description = operation.get("summary", ""), operation.get("description", "")
        if not 5 <= len(summary) <= 80 or summary.endswith("."):
            wrong.append(
                f"{name}: the docstring of {method} {path} begins with a line that says what it does"
            )
        if len(description.splitlines()[0]) < 15:
            wrong.append(f"{name}: the docstring of {method} {path} has no second paragraph")
        if operation.get("x-rate-limit-units") != request_cost(method, f"/api/v1{path}"):
            wrong.append(f"{name}: no weight")
        for kind, content in (
            ("answer", json_of(operation)),
            ("body", operation.get("requestBody", {}).get("content", {}).get("application/json")),
        ):
            if content is None:
                continue
            if "example" not in content:
                wrong.append(f"{name}: its {kind} has no example ({__doc__})")
            else:
                wrong += [
                    f"{name}: {kind}: {one}" for one in faults(schema, content["schema"], content["example"])
                ]
    assert wrong == []
    text = FILE.read_text()
    assert "/tmp/" not in text and not re.search(r"ool(node|join|invite)?_[A-Za-z0-9_-]{20,}", text)


def test_every_operation_names_the_problems_that_it_may_answer_with(schema: dict[str, Any]) -> None:
    limited = schema["components"]["responses"]["RateLimited"]
    assert limited["headers"]["Retry-After"]["required"] is True
    for method, path, operation in operations(schema):
        named, need = set(operation["responses"]), ROUTES[f"{method} {path}"]
        assert "422" in named and "default" in named, path
        assert ("429" in named) == (request_cost(method, f"/api/v1{path}") > 0), path
        assert need == OPEN or {"401", "403"} <= named, path
        assert "{" not in path or "404" in named, path
        assert method == "GET" or "409" in named, path
        has_if_match = any(one["name"] == "If-Match" for one in operation.get("parameters", []))
        assert has_if_match == ("412" in named), path


def test_an_answer_of_another_form_is_no_example(schema: dict[str, Any]) -> None:
    """The checks above can fail: a field that goes away, and a value of another kind."""
    run = json.loads(FILE.read_text())["answers"]["get_run"]
    assert not same_form({**run, "status": 7}, run)
    assert not same_form({name: value for name, value in run.items() if name != "status"}, run)
    form = {"$ref": "#/components/schemas/RunDetail"}
    assert faults(schema, form, run) == []
    assert faults(schema, form, {**run, "status": "DREAMING"})
    assert faults(schema, form, {name: value for name, value in run.items() if name != "id"})
