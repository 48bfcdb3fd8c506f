"""Schema, SDK and command line say the same. What one of them lacks is listed below with its reason."""

from __future__ import annotations

import ast
import inspect
import re
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from drf_spectacular.generators import SchemaGenerator
from jsonschema import Draft202012Validator
from pydantic import BaseModel

from oolong.client import Client, OolongError, archives
from oolong.client.request_spec import RequestSpec
from oolong.client.settings import ClientSettings
from oolong.client.sync.connection import Resource
from oolong.contracts.run_spec import RunSpec, read_spec
from oolong.presets import built_in_presets
from tests.tools import cli_page

ROOT = Path(__file__).resolve().parents[3]

NOT_IN_THE_SDK = {
    "GET /client": "the package that has this very SDK in it",
    "GET /client/{}": "the same",
    "GET /client/requirements.txt": "of pip",
    "POST /session": "of browsers; programs have tokens",
    "DELETE /session": "of browsers",
    "GET /session/csrf": "of browsers",
    "PUT /session/project": "of browsers; a token is of one project",
    "GET /session/methods": "of the sign-in page",
    "GET /runs/{}/logs/download": "of the dashboard's log page; a program reads a log by offset",
    "GET /metrics/definitions": "of the dashboard; programs read docs/reference/metrics.md",
    "GET /dataset-validations": "of the dashboard, which finds unfinished ones again after a reload",
    "GET /dataset-versions/{}/leakage": "of the dashboard; a validation tells the same",
    "GET /upload-sessions/{}": "beginning the same upload again answers with what is there",
    "DELETE /upload-sessions/{}": "an unfinished one ends by itself",
    "GET /checkpoint-aliases/{}": "aliases are listed, and resolved by their name",
    "GET /checkpoint-downloads/{}": "its address is given out whole, for curl and browsers",
    "GET /checkpoint-downloads/{}/files": "likewise",
}
AGENTS = "/agent/"  # the protocol of nodes has a client of its own

NOT_IN_THE_SCHEMA = {
    "GET /stream": "frames without end: docs/reference/live-stream.md",
    "POST /runs/{}/sessions": "relayed to the run's job: docs/how-to/agent.md",
    "GET /runs/{}/sessions/{}": "relayed",
    "PUT /runs/{}/sessions/{}/reward": "relayed",
    "POST /runs/{}/sessions/{}/end": "relayed",
    "POST /runs/{}/playground/chat/completions": "relayed: docs/how-to/playground.md",
    "POST /runs/{}/playground/score": "relayed",
    "POST /runs/{}/playground/keepalive": "relayed",
}


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    found: dict[str, Any] = SchemaGenerator(api_version="v1").get_schema(request=None, public=True)
    return found


def operations(schema: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """`GET /runs/{}` → the operation."""
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            name = re.sub(r"\{\w+\}", "{}", path.removeprefix("/api/v1"))
            yield f"{method.upper()} {name}", operation


OTHER_FORMS = {"path": "https://host/file", "id_or_ref": "name@1"}  # arguments that make another request


class Stub:
    """An answer, or an argument that is one: its attributes are text, so the method continues."""

    upload = None  # of an upload session: parts are missing
    bytes = part_bytes = part_count = 1
    needs_attention = False
    received_parts = data = series = files = errors = sides = ()

    def __init__(self, *, state: str, ended: bool) -> None:
        self.state, self.ended = state, ended

    def model_copy(self, **_: Any) -> Stub:
        return self

    def __getattr__(self, name: str) -> str:
        return f"~{name}~"


class RequestSent(Exception):
    """Ends a method that would read the bytes of an answer."""


class RecordingConnection:
    """Takes the place of the client's connection and keeps every request."""

    settings = ClientSettings("http://localhost", "")

    def __init__(self) -> None:
        self.sent: list[RequestSpec[Any]] = []

    def send(self, spec: RequestSpec[Any]) -> Any:
        self.sent.append(spec)
        return b"" if spec.answer is bytes else Stub(state="~state~", ended=len(self.sent) > 2)

    def send_with(self, spec: RequestSpec[Any], _body: Any, *, timeout_seconds: float | None) -> Any:
        return self.send(spec)

    def pages(self, spec: RequestSpec[Any]) -> Iterator[Any]:
        yield self.send(spec)

    def open(self, spec: RequestSpec[Any], _headers: Any) -> Any:
        self.send(spec)
        raise RequestSent

    lines = open


def all_calls() -> Iterator[tuple[str, RequestSpec[Any]]]:
    """Every request of the SDK's methods: each called with all of its arguments, and with those that it needs."""
    connection: Any = RecordingConnection()
    client = Client("http://localhost", "x")
    resources: dict[str, Any] = {
        name: type(kept)(connection) for name, kept in vars(client).items() if isinstance(kept, Resource)
    }
    client._connection = connection
    for owner_name, owner in {"client": client, **resources}.items():
        for name, method in inspect.getmembers(owner, inspect.ismethod):
            if name.startswith("_") or (owner is client and name in ("close", "send", "pages")):
                continue
            everything = made_up(method)
            variants = [everything, {key: everything[key] for key in everything if is_needed(method, key)}]
            other = {key: OTHER_FORMS[key] for key in everything if key in OTHER_FORMS}
            variants.append({**variants[1], **other})
            for given, one_request_bytes in zip(variants, (1 << 20, 0, 0), strict=True):
                del connection.sent[:]
                with patch.object(archives, "ONE_REQUEST_BYTES", one_request_bytes):
                    run_to_its_end(method, given)
                for spec in connection.sent:
                    yield f"{owner_name}.{name}: {spec.method} {spec.path}", spec


def run_to_its_end(method: Any, given: Mapping[str, Any]) -> None:
    try:
        found = method(**given)
        if isinstance(found, Iterator):
            list(found)
    except (RequestSent, OolongError, FileNotFoundError):  # no file is named https://host/file
        pass


def is_needed(method: Any, name: str) -> bool:
    default = inspect.signature(method).parameters[name].default
    return default is inspect.Parameter.empty or name in ("poll_seconds", "pool")


def made_up(method: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(method)
    variadic = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return {
        name: _value(hints[name], name)
        for name, parameter in inspect.signature(method).parameters.items()
        if parameter.kind not in variadic
    }


def _value(hint: Any, name: str) -> Any:
    kinds = [kind for kind in typing.get_args(hint) if kind is not type(None)] or [hint]
    if str(hint).startswith("typing.Optional") or "|" in str(hint):
        hint = kinds[0]
    origin = typing.get_origin(hint) or hint
    if name == "path":
        return __file__
    if name == "poll_seconds":
        return 0.0
    if origin is Callable:
        return lambda *_: None
    if issubclass(origin, BaseModel):
        return Stub(state="VALIDATING", ended=False)
    if issubclass(origin, Mapping):
        return {}
    if origin is str:
        return f"~{name}~"
    if issubclass(origin, Sequence):
        return [_value(typing.get_args(hint)[0], name)]
    return {int: 1, float: 1.0, bool: True, datetime: datetime.now(UTC)}[origin]


def operation_of(call: RequestSpec[Any]) -> str:
    path = call.path.replace("%7E", "~")
    return f"{call.method} /{re.sub('~[a-z_]+~|(?<=/parts/)0|(?<=/trajectories/)1', '{}', path)}"


CALLS = dict(all_calls())


def test_the_document_is_openapi_3_1(schema: dict[str, Any]) -> None:
    assert re.fullmatch(r"3\.1\.\d", schema["openapi"])
    names = [operation["operationId"] for _, operation in operations(schema)]
    assert len(names) == len(set(names)) > 60


def test_every_operation_says_what_it_answers_and_how_it_refuses(schema: dict[str, Any]) -> None:
    for name, operation in operations(schema):
        answers = operation["responses"]
        assert any(code.startswith("2") for code in answers), name
        assert "application/problem+json" in answers["default"]["content"], name
        method = name.split(" ")[0]
        if method in ("PUT", "PATCH") and "/parts/" not in name:
            assert "requestBody" in operation, name


SPEC = {"name": "a run", "model": {"base_model": "tiny"}, "dataset": {"version": "sums@1"}}


@pytest.mark.parametrize(
    ("body", "fits"),
    [
        ({"spec": SPEC}, True),
        ({"spec": {**SPEC, "evaluation": None, "staleness": {"max": 0}}}, True),
        ({"spec": {"name": "a run"}}, False),
        ({"spec": {"name": "a run"}, "template": "grpo"}, True),
        ({"spec": {**SPEC, "stalenes": {"max": 0}}}, False),
        ({"spec": {**SPEC, "staleness": {"max": -1}}}, False),
        ({"spec": {**SPEC, "trainer": {"learning_rate": "fast"}}}, False),
        ({"spec": SPEC, "templat": "grpo"}, False),
    ],
)
def test_a_new_run_is_described_field_by_field(schema: dict[str, Any], body: Any, fits: bool) -> None:
    """As the server decides, which reads it with the contract's own RunSpec."""
    form = {"$ref": "#/components/schemas/CreateRunRequest", "components": schema["components"]}
    assert Draft202012Validator(form).is_valid(body) == fits
    if "template" not in body and "templat" not in body:
        assert isinstance(read_spec(body["spec"]), RunSpec) == fits


def test_the_spec_of_a_run_is_shown_as_it_is_described(schema: dict[str, Any]) -> None:
    assert schema["components"]["schemas"]["Run"]["properties"]["spec"] == {
        "$ref": "#/components/schemas/RunSpec"
    }
    form = {"$ref": "#/components/schemas/RunSpec", "components": schema["components"]}
    shown = RunSpec.model_validate(SPEC).model_dump(mode="json")
    assert [*Draft202012Validator(form).iter_errors(shown)] == []


PLAN = {"parameters": [{"pointer": "/seed", "values": [1, 2]}]}


@pytest.mark.parametrize(
    ("component", "body", "fits"),
    [
        # A template has any part of a spec; what it has is valid.
        ("TemplateVersionFormRequest", {"spec": {}}, True),
        ("TemplateVersionFormRequest", {"spec": {"dataset": {"split": "eval"}, "seed": 7}}, True),
        ("TemplateVersionFormRequest", {"spec": {"stalenes": {"max": 0}}}, False),
        ("TemplateVersionFormRequest", {"spec": {"staleness": {"max": None}}}, False),
        ("TemplateVersionFormRequest", {"spec": {"secrets": [{"name": "HF_TOKEN"}]}}, False),
        # A sweep's trials have their own names and may set what its spec leaves out.
        ("SweepFormRequest", {"name": "seeds", "spec": {"model": {}}, "plan": PLAN}, True),
        ("SweepFormRequest", {"name": "seeds", "spec": {"trainer": {"rank": 1}}, "plan": PLAN}, False),
        ("SweepFormRequest", {"name": "seeds", "spec": {}, "plan": {"parameters": []}}, False),
        # A gate has the sections of an evaluation and a dataset.
        ("GateChangeRequest", {"alias": "prod", "spec": {"dataset": {"version": "a@1"}}, "assertions": ["a"]}, True),
        ("GateChangeRequest", {"alias": "prod", "spec": {"seed": 1}, "assertions": ["a"]}, False),
        (
            "GateChangeRequest",
            {"alias": "prod", "spec": {"dataset": {"version": "a@1"}, "trainer": {}}, "assertions": ["a"]},
            False,
        ),
        # A patch: null restores a default, at any depth.
        ("CloneRequest", {"changes": {"staleness": {"max": None}, "reward": None, "seed": 2}}, True),
        ("CloneRequest", {"changes": {"algorithm": {"kl": {"coefficient": None}}}}, True),
        ("CloneRequest", {"changes": {"staleness": {"max": -1}}}, False),
        ("CloneRequest", {"changes": {"algorithm": {"kl": {"coefficent": 0.1}}}}, False),
        # Four fields of a running run.
        ("ChangeRequest", {"changes": {"staleness": {"max": 2}, "rollout": {"engines": 2}}}, True),
        ("ChangeRequest", {"changes": {"staleness": {"max": None}}}, False),
        ("ChangeRequest", {"changes": {"staleness": {"on_straggler": "drop"}}}, False),
        ("SpecRequest", {"spec": SPEC}, True),
        ("SpecRequest", {"spec": {"staleness": {"max": None}}, "template": "grpo"}, True),
        ("SpecRequest", {"spec": {"staleness": {"max": -1}}, "template": "grpo"}, False),
        ("SpecRequest", {"spec": {"name": "a run"}}, False),
        ("PlaygroundRequestRequest", {"models": [{"base_model": "tiny"}], "reward": {"name": "exact_match"}}, True),
        ("PlaygroundRequestRequest", {"models": [{"base_model": "tiny"}], "reward": {"nam": "exact_match"}}, False),
        ("RewardTestRequestRequest", {"dataset": "a@1", "model": "tiny", "reward": {"scale": 2.0}}, True),
        ("RewardTestRequestRequest", {"dataset": "a@1", "model": "tiny", "reward": {"scale": "big"}}, False),
        (
            "RewardTestRequestRequest",
            {"dataset": "a@1", "model": "tiny", "reward": {}, "reward_test": {"rows": 0}},
            False,
        ),
    ],
)  # fmt: skip
def test_every_part_of_a_spec_is_described_field_by_field(
    schema: dict[str, Any], component: str, body: Any, fits: bool
) -> None:
    form = {"$ref": f"#/components/schemas/{component}", "components": schema["components"]}
    assert Draft202012Validator(form).is_valid(body) == fits


def test_no_spec_in_the_document_is_an_open_object(schema: dict[str, Any]) -> None:
    found = {
        f"{component}.{name}": _resolved(schema, properties[name])
        for component, described in schema["components"]["schemas"].items()
        if not component.startswith(("RunSpec", "Agent")) and (properties := described.get("properties", {}))
        for name in ("spec", "plan", "changes", "resolved", "reward_test")
        if name in properties
    }
    assert {"Sweep.plan", "Template.spec", "Gate.spec", "Preset.spec", "Validation.resolved"} <= set(found)
    assert [name for name, described in found.items() if "properties" not in described] == []


def test_every_preset_fits_its_description(schema: dict[str, Any]) -> None:
    form = {"$ref": "#/components/schemas/RunSpecPart", "components": schema["components"]}
    for preset in built_in_presets():
        assert [*Draft202012Validator(form).iter_errors(preset.spec)] == [], preset.name


def test_every_example_of_a_request_fits_its_description(schema: dict[str, Any]) -> None:
    tried = 0
    for name, operation in operations(schema):
        content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
        if "example" in content:
            form = {**content["schema"], "components": schema["components"]}
            assert [*Draft202012Validator(form).iter_errors(content["example"])] == [], name
            tried += 1
    assert tried > 40


def test_every_list_is_paged_by_cursor(schema: dict[str, Any]) -> None:
    for name, operation in operations(schema):
        document = _answer(schema, operation)
        if name.startswith("GET ") and "has_more" in document.get("properties", {}):
            assert set(document["properties"]) >= {"data", "next_cursor", "has_more"}, name
        assert document.get("type") != "array", f"{name} answers a bare list; take page_of"


NOT_LINKED = {
    "GET /agent/artifacts/{}": "a node finds the hash in its orders",
    "POST /agent/model-checks/{}/begin": "a node finds the id in the answer to its heartbeat",
    "POST /agent/model-checks/{}/progress": "likewise",
    "POST /agent/model-checks/{}/complete": "likewise",
    "GET /checkpoint-downloads/{}": "a link is given out as a whole address",
    "GET /checkpoint-downloads/{}/files": "likewise",
}


def test_every_operation_with_a_name_in_its_path_is_linked_to_from_an_answer_that_has_it(
    schema: dict[str, Any],
) -> None:
    known = {operation["operationId"]: (name, operation) for name, operation in operations(schema)}
    linked = set()
    for source, operation in operations(schema):
        for answer in operation["responses"].values():
            for link in answer.get("links", {}).values():
                name, target = known[link["operationId"]]
                parameters = {one["name"] for one in target.get("parameters", [])}
                assert set(link.get("parameters", {})) <= parameters, (source, link)
                expressions = [*link.get("parameters", {}).values(), *link.get("requestBody", {}).values()]
                for pointer in [one.partition("#")[2] for one in expressions if one.startswith("$response")]:
                    example = answer["content"]["application/json"].get("example")
                    assert _stands_in(example, pointer.split("/")[1:]), (source, name, pointer)
                linked.add(name)
    named = {name for name, _ in known.values() if "{}" in name}
    assert named - linked == set(NOT_LINKED), (
        "schema_links.py has PLACEHOLDERS and FIELDS for what no address explains"
    )


def _stands_in(example: Any, pointer: list[str]) -> bool:
    """A text or number at the pointer, or nothing from which one could tell: an empty list, null."""
    if not pointer:
        return isinstance(example, str | int)
    if isinstance(example, list):
        return not example or _stands_in(example[int(pointer[0])], pointer[1:])
    return example is None or (pointer[0] in example and _stands_in(example[pointer[0]], pointer[1:]))


def test_every_operation_is_in_the_sdk_or_has_a_reason(schema: dict[str, Any]) -> None:
    documented = {name for name, _ in operations(schema) if AGENTS not in name}
    called = {operation_of(call) for call in CALLS.values()}
    assert documented - called - set(NOT_IN_THE_SDK) == set(), "give them a call, or a reason"
    assert set(NOT_IN_THE_SDK) <= documented - called, "a reason for what is in the SDK, or is no more"


def test_every_call_of_the_sdk_is_in_the_schema_or_has_a_reason(schema: dict[str, Any]) -> None:
    documented = {name for name, _ in operations(schema)}
    for name, call in CALLS.items():
        operation = operation_of(call)
        assert (operation in documented) != (operation in NOT_IN_THE_SCHEMA), (name, operation)


def in_the_schema() -> list[str]:
    return [name for name, call in CALLS.items() if operation_of(call) not in NOT_IN_THE_SCHEMA]


@pytest.mark.parametrize("name", in_the_schema())
def test_a_call_sends_what_the_schema_knows(schema: dict[str, Any], name: str) -> None:
    call = CALLS[name]
    operation = dict(operations(schema))[operation_of(call)]
    known = {given["name"] for given in operation.get("parameters", [])}
    assert set(call.params) <= known, f"unknown parameters {set(call.params) - known}"
    if call.key:
        handler_reads_it = "Idempotency-Key" in known
        assert handler_reads_it or operation_of(call) in KEY_NOT_NEEDED, "the key is not read there"
    if isinstance(call.body, dict) and call.body:
        body = operation["requestBody"]["content"]["application/json"]["schema"]
        properties = _resolved(schema, body).get("properties", {})
        assert set(call.body) <= set(properties), f"unknown fields {set(call.body) - set(properties)}"


# The SDK gives every POST a key; these do without (see test_conventions.py for the reasons).
KEY_NOT_NEEDED = {
    "POST /stream-tickets",  # a second one ends unused within a minute
    "POST /runs/validate",
    "POST /runs/plan",
    "POST /runs/simulate",
    "POST /runs/what-if",
    "POST /runs/{}/what-if",
    "POST /checkpoint-retention/plan",
    "POST /upload-sessions/{}/complete",
}


ALONE = {
    "runs.list: GET runs.data[].metrics_seq is not in the schema": "a run in a list does not show it",
    "runs.list: GET runs.data[].submitted_spec is not in the schema": "a run in a list does not show it",
    "runs.list: GET runs.data[].start is not in the schema": "a run in a list does not show it",
    "runs.list: GET runs.data[].end is not in the schema": "a run in a list does not show it",
    "runs.list: GET runs.data[].boot is not in the schema": "a run in a list does not show it",
    "runs.list: GET runs.data[].staleness is not in the schema": "a run in a list does not show it",
}


@pytest.mark.parametrize("name", in_the_schema())
def test_what_the_sdk_reads_is_what_the_schema_promises(schema: dict[str, Any], name: str) -> None:
    call = CALLS[name]
    operation = dict(operations(schema))[operation_of(call)]
    document = _answer(schema, operation)
    if call.answer is None:
        assert document == {}, name
    elif call.answer is not bytes:
        assert set(_faults(schema, document, call.answer, name)) <= set(ALONE), name


def _faults(schema: Mapping[str, Any], document: Any, model: Any, where: str) -> list[str]:
    """Fields that the model has and the answer has not."""
    if len(choices := document.get("oneOf", [])) > 1 and all("$ref" in choice for choice in choices):
        return min((_faults(schema, choice, model, where) for choice in choices), key=len)
    document = _resolved(schema, document)
    if typing.get_origin(model) in (list, Sequence):
        return _faults(schema, document.get("items", {}), typing.get_args(model)[0], f"{where}[]")
    kinds = [kind for kind in typing.get_args(model) if kind is not type(None)]
    if kinds and len(kinds) < len(typing.get_args(model)):
        return _faults(schema, document, kinds[0], where)
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return []
    promised = document.get("properties", {})
    faults = []
    for name, field in model.model_fields.items():
        shown = field.alias or name
        if shown not in promised:
            faults.append(f"{where}.{shown} is not in the schema")
            continue
        faults += _faults(schema, promised[shown], field.annotation, f"{where}.{shown}")
    return faults


def _answer(schema: Mapping[str, Any], operation: Mapping[str, Any]) -> dict[str, Any]:
    for code, answer in operation["responses"].items():
        if code.startswith("2") and (content := answer.get("content")):
            document = content.get("application/json", {}).get("schema", {})
            while "$ref" in document:
                document = schema["components"]["schemas"][document["$ref"].rsplit("/", 1)[1]]
            return dict(document)
    return {}


def _resolved(schema: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    """With references and the wrappers that drf-spectacular puts around them taken away."""
    for wrapper in ("allOf", "oneOf", "anyOf"):
        if wrapper in document and "properties" not in document:
            inner = [part for part in document[wrapper] if part.get("type") != "null"]
            return _resolved(schema, inner[0])
    if "$ref" in document:
        return _resolved(schema, schema["components"]["schemas"][document["$ref"].rsplit("/", 1)[1]])
    return dict(document)


def test_every_command_is_on_its_page_with_its_options() -> None:
    page = (ROOT / "docs" / "reference" / "cli.md").read_text()
    found = dict(cli_page.verbs())
    assert {"run wait", "checkpoint promote", "dataset upload", "login", "completion"} <= set(found)
    for name, command in found.items():
        assert f"\n## oolong {name}\n" in page, name
        for parameter in command.params:
            for option in getattr(parameter, "opts", []):
                assert not option.startswith("--") or option == "--help" or f"`{option}`" in page, (
                    name,
                    option,
                )


# Every other command takes --json: a program reads what it printed, and its errors.
WITHOUT_JSON = {
    "login": "asks, and keeps a file",
    "logout": "changes the file",
    "profile use": "changes the file",
    "completion": "prints a script",
    "ci gate": "a script; its reports are files",
    "checkpoint chat": "a conversation",
    "pool provider slurm": "a loop; it prints what it does",
    "run watch": "a live view; `run wait --json` is for programs",
    "run logs": "prints what jobs printed",
    "run baseline": "prints JSON",
    "stream follow": "prints JSON lines",
    "session open": "prints JSON",
    "session get": "prints JSON",
    "session reward": "prints JSON",
    "session end": "prints JSON",
}


def test_every_command_speaks_json_or_has_a_reason() -> None:
    silent = {
        name
        for name, command in cli_page.verbs()
        if not any("--json" in getattr(parameter, "opts", []) for parameter in command.params)
    }
    assert silent == set(WITHOUT_JSON)


# docs/how-to and the feature list name these; a verb that goes away takes its users' scripts with it.
VERBS = """
login
logout
whoami
completion
dataset upload|validate|preview|import|alias|stats|list|split|diff
run create|list|get|logs|metrics|watch|wait|stop|cancel|pause|resume|retry|clone|set|diff|plan|validate|export
checkpoint list|get|promote|download|export|link|pin|unpin|prune|retention|chat
pool queue|usage|list|create|set|quota
node list|drain|cordon|uncordon|revoke|join-token
pool teams list
pool teams add
pool teams remove
pool admins list
pool admins add
pool admins remove
pool reservation list
pool reservation create
pool reservation cancel
pool maintenance list
pool maintenance create
pool maintenance cancel
pool quarantine list
pool quarantine add
pool quarantine release
token create|list|revoke|rotate
audit list|export
ci init|gate
stream follow|ticket
"""


def test_the_promised_verbs_are_there() -> None:
    found = dict(cli_page.verbs())
    for line in VERBS.strip().splitlines():
        noun, _, verbs = line.partition(" ")
        names = [f"{noun} {verb}" for verb in verbs.split("|")] if "|" in verbs else [line]
        assert set(names) <= set(found), set(names) - set(found)


def test_commands_reach_the_server_through_the_sdk_only() -> None:
    for path in (ROOT / "platform" / "oolong" / "cli").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
            assert not {"httpx", "requests", "urllib.request", "websockets"} & set(names), path.name
