"""Every route with every kind of caller. A route that the table below does not name fails the test."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from control_plane.accounts import services as accounts
from control_plane.accounts.models import ApiToken, Membership, Role
from control_plane.accounts.scopes import SCOPES
from control_plane.catalog.models import Checkpoint, DatasetValidation
from control_plane.runs.models import Attempt, Job
from control_plane.telemetry.models import OutboxFile

OPEN = "open"  # no credential needed
KNOWN = "known"  # any user
NODE = "node"  # a node credential
ELSEWHERE = "elsewhere"
EXPECTED = {
    "GET /openapi.json": OPEN,
    "GET /docs": OPEN,
    "GET /health": OPEN,
    "GET /me": KNOWN,
    "POST /session": OPEN,
    "DELETE /session": OPEN,
    "GET /session/csrf": OPEN,
    "GET /tokens": "tokens:read",
    "POST /tokens": "tokens:write",
    "DELETE /tokens/{token_id}": "tokens:write",
    "POST /uploads": KNOWN,  # by purpose: see its own test
    "POST /uploads/fetch": "datasets:write",
    "POST /upload-sessions": KNOWN,  # these too
    "GET /upload-sessions/{session_id}": KNOWN,
    "DELETE /upload-sessions/{session_id}": KNOWN,
    "PUT /upload-sessions/{session_id}/parts/{number}": KNOWN,
    "POST /upload-sessions/{session_id}/complete": KNOWN,
    "GET /datasets": "datasets:read",
    "POST /datasets": "datasets:write",
    "POST /datasets/preview": "datasets:read",
    "GET /datasets/{dataset_id}": "datasets:read",
    "POST /datasets/{dataset_id}/versions": "datasets:write",
    "GET /dataset-validations": "datasets:read",
    "POST /dataset-validations": "datasets:write",
    "GET /dataset-validations/{validation_id}": "datasets:read",
    "GET /dataset-validations/{validation_id}/report": "datasets:read",
    "GET /dataset-versions/resolve": "datasets:read",
    "GET /dataset-versions/{version_id}": "datasets:read",
    "POST /dataset-versions/{version_id}/derive": "datasets:write",
    "GET /dataset-versions/{version_id}/diff": "datasets:read",
    "GET /dataset-versions/{version_id}/leaks": "datasets:read",
    "GET /dataset-versions/{version_id}/rows": "datasets:read",
    "GET /models": "models:read",
    "POST /models": "models:write",
    "GET /models/{model_id}": "models:read",
    "GET /functions": "functions:read",
    "POST /functions": "functions:write",
    "GET /functions/{function_id}": "functions:read",
    "GET /function-versions/resolve": "functions:read",
    "GET /function-versions/{function_version_id}/source": "functions:read",
    "GET /project": "project:read",
    "PATCH /project": "project:admin",
    "GET /project/events": "project:read",
    "GET /checkpoints/resolve": "checkpoints:read",
    "PATCH /checkpoints/{checkpoint_id}": "checkpoints:write",
    "GET /checkpoints/{checkpoint_id}/files": "checkpoints:read",
    "GET /checkpoints/{checkpoint_id}/lineage": "checkpoints:read",
    "GET /checkpoints/{checkpoint_id}/card": "checkpoints:read",
    "POST /checkpoints/{checkpoint_id}/links": "checkpoints:read",
    "GET /checkpoint-downloads/{link}": OPEN,  # the signature is its credential: see its own test
    "GET /checkpoint-aliases": "checkpoints:read",
    "PUT /checkpoint-aliases/{alias}": "checkpoints:write",
    "DELETE /checkpoint-aliases/{alias}": "checkpoints:write",
    "GET /checkpoint-retention": "checkpoints:read",
    "PUT /checkpoint-retention": "checkpoints:admin",
    "POST /checkpoint-retention/plan": "checkpoints:read",
    "POST /checkpoint-retention/apply": "checkpoints:admin",
    "GET /checkpoints": "checkpoints:read",
    "GET /checkpoints/{checkpoint_id}": "checkpoints:read",
    "GET /checkpoints/{checkpoint_id}/download": "checkpoints:read",
    "GET /pool": "pool:read",
    "POST /pool/nodes/{node_id}/cordon": "pool:admin",
    "POST /pool/nodes/{node_id}/uncordon": "pool:admin",
    "POST /pool/nodes/{node_id}/drain": "pool:admin",
    "PATCH /pool/quota": "pool:admin",
    "POST /pool/enrolment-tokens": "pool:admin",
    "GET /presets": "runs:read",
    "GET /runs": "runs:read",
    "POST /runs": "runs:write",
    "POST /runs/validate": "runs:read",
    "GET /runs/{run_id}": "runs:read",
    "PATCH /runs/{run_id}": "runs:write",
    "POST /runs/{run_id}/pause": "runs:write",
    "POST /runs/{run_id}/resume": "runs:write",
    "POST /runs/{run_id}/changes": "runs:write",
    "POST /runs/{run_id}/clone": "runs:write",
    "POST /runs/{run_id}/retry": "runs:write",
    "POST /runs/{run_id}/stop": "runs:write",
    "POST /runs/{run_id}/cancel": "runs:write",
    "GET /runs/{run_id}/events": "runs:read",
    "GET /runs/{run_id}/attempts": "runs:read",
    "GET /runs/{run_id}/jobs": "runs:read",
    "GET /runs/{run_id}/metrics": "runs:read",
    "GET /runs/{run_id}/metric-names": "runs:read",
    "GET /runs/{run_id}/histograms": "runs:read",
    "GET /runs/{run_id}/documents/{name}": "runs:read",
    "GET /runs/{run_id}/trajectories": "runs:read",
    "GET /runs/{run_id}/alerts": "runs:read",
    "GET /runs/{run_id}/logs": "runs:read",
    "GET /metric-catalogue": KNOWN,
    "GET /stream": ELSEWHERE,  # by topic, asynchronous: tests/unit/telemetry
    "GET /runs/{run_id}/sessions": ELSEWHERE,  # relayed, asynchronous: tests/unit/relay
    "GET /runs/{run_id}/sessions/{path}": ELSEWHERE,
    "POST /agent/enrol": OPEN,  # the enrolment token is its credential: see its own test
    "POST /agent/heartbeat": NODE,
    "GET /agent/artifacts/{sha256}": NODE,
    "POST /agent/attempts/{attempt_id}/checkpoints": NODE,
    "PUT /agent/uploads/{upload_id}/parts/{number}": NODE,
    "POST /agent/uploads/{upload_id}/complete": NODE,
    "POST /agent/jobs/{job_id}/outbox/{file}": NODE,
    "POST /agent/jobs/{job_id}/logs/{incarnation}": NODE,
}
# The object is there, and still this answers 404: the run has no such document, the question names no version.
LACKING = {"GET /runs/{run_id}/documents/{name}", "GET /dataset-versions/{version_id}/diff"}
# What stands for the object of a route, so that a foreign one can be asked for.
FOREIGN = [
    route
    for route in EXPECTED
    if "{" in route and EXPECTED[route] not in (OPEN, ELSEWHERE) and "/pool/" not in route
]


def routes() -> Iterator[str]:
    def walk(patterns: list[Any], prefix: str) -> Iterator[tuple[str, Any]]:
        for pattern in patterns:
            path = prefix + re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", str(pattern.pattern))
            if isinstance(pattern, URLResolver):
                yield from walk(pattern.url_patterns, path)
            elif isinstance(pattern, URLPattern) and path.startswith("api/v1/"):
                yield path.removeprefix("api/v1"), pattern.callback

    for path, view in walk(get_resolver().url_patterns, ""):
        cls = getattr(view, "cls", None) or getattr(view, "view_class", None)
        methods = cls.http_method_names if cls else ["get"]
        for method in methods:
            if method != "options" and method != "head" and (cls is None or hasattr(cls, method)):
                yield f"{method.upper()} {path}"


def test_every_route_is_in_the_table() -> None:
    assert set(routes()) == set(EXPECTED)


def call(route: str, bearer: str | None, ids: dict[str, Any] | None = None) -> Any:
    method, path = route.split(" ")
    defaults = {
        "number": "0",
        "incarnation": "0",
        "file": "main-0.jsonl",
        "name": "pipeline",
        "sha256": "0" * 64,
    }
    path = path.format_map(_Ids({**defaults, **(ids or {})}))
    headers = {"authorization": f"Bearer {bearer}"} if bearer else {}
    body = json.dumps(_BODIES.get(route, {}))
    return Client().generic(
        method, f"/api/v1{path}", data=body, content_type="application/json", headers=headers
    )


class _Ids(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return "none"


_BODIES = {
    "POST /agent/attempts/{attempt_id}/checkpoints": {
        "step": 1, "manifest_sha256": "0" * 64, "tar_sha256": "0" * 64, "bytes": 1, "epoch": 1,
    },
    "POST /agent/heartbeat": None,
    "PUT /checkpoint-aliases/{alias}": {"checkpoint": "prod"},
}  # fmt: skip


def test_nobody_gets_in_without_a_credential(db: None) -> None:
    closed = [route for route, needed in EXPECTED.items() if needed not in (OPEN, ELSEWHERE)]
    for route, bearer in product(closed, (None, "ool_unknown", "oolnode_unknown", "garbage")):
        reply = call(route, bearer)
        assert reply.status_code == 401, (route, bearer, reply.content)
        assert reply.json()["code"] == "not_authenticated"


def test_a_token_needs_the_scope_of_the_route(alice: Any) -> None:
    for needed in SCOPES:
        others = [scope for scope in SCOPES if scope != needed]
        _, weak = accounts.create_token(user=alice.user, project=alice.project, name="weak", scopes=others)
        _, enough = accounts.create_token(
            user=alice.user, project=alice.project, name="enough", scopes=[needed]
        )
        for route in (route for route, scope in EXPECTED.items() if scope == needed):
            refused = call(route, weak)
            assert (refused.status_code, refused.json()["code"]) == (403, "missing_scope"), route
            assert needed in refused.json()["detail"]
            assert call(route, enough).status_code not in (401, 403), route


def test_a_users_token_is_no_node_credential_and_the_reverse(alice: Any, node: Any) -> None:
    for route in (route for route, needed in EXPECTED.items() if needed == NODE):
        assert call(route, alice.token).status_code == 401, route
    assert call("GET /runs", node().credential).status_code == 401


@pytest.fixture
def objects(alice: Any, node: Any, start: Any, commit_checkpoint: Any) -> dict[str, Any]:
    """Ids of things that are Alice's, or of her run's node."""
    machine = node()
    run = start(machine)
    attempt = Attempt.objects.get()
    commit_checkpoint(run["id"], attempt.pk, step=1)
    machine.upload_checkpoint(attempt.pk, attempt.epoch, step=1)
    job = Job.objects.get(name="trainer")
    dataset = alice.get("/datasets").json()["data"][0]
    checkpoint = Checkpoint.objects.get()
    token = ApiToken.objects.get()
    validation = alice.post("/dataset-validations", {"upload_id": alice.upload(b"{}")}).json()
    DatasetValidation.objects.update(report_sha256=dataset["latest"]["sha256"])
    alice.call("PUT", "/checkpoint-aliases/prod", {"checkpoint": checkpoint.pk})
    session = alice.post("/upload-sessions", {"filename": "f", "purpose": "dataset", "bytes": 1}).json()
    source = "def score(prompt, completion, answer):\n    return 1.0\n"
    function = alice.post("/functions", {"name": "one", "kind": "reward", "source": source}).json()
    return {
        "run_id": run["id"], "attempt_id": attempt.pk, "job_id": job.pk, "dataset_id": dataset["id"],
        "version_id": dataset["latest"]["id"], "model_id": alice.get("/models").json()["data"][0]["id"],
        "checkpoint_id": checkpoint.pk, "token_id": token.pk, "sha256": dataset["latest"]["sha256"],
        "upload_id": checkpoint.uploads.get().pk, "node": machine, "function_version_id": function["id"],
        "session_id": session["id"], "validation_id": validation["id"], "alias": "prod",
        "function_id": function["function"]["id"],
    }  # fmt: skip


def test_what_is_another_teams_does_not_exist(
    alice: Any, person: Any, node: Any, objects: dict[str, Any]
) -> None:
    """Charlie of another team, or another node, gets the answer that a made-up id gets."""
    other = {NODE: node("node-of-others").credential}
    charlie = person("charlie", team="blue").token
    made_up = dict.fromkeys(objects, "none")
    for route in FOREIGN:
        bearer = other.get(EXPECTED[route], charlie)
        foreign, nothing = call(route, bearer, objects), call(route, bearer, made_up)
        assert (foreign.status_code, nothing.status_code) == (404, 404), (route, foreign.content)
        alike = [{**reply.json(), "detail": "", "request_id": ""} for reply in (foreign, nothing)]
        assert alike[0] == alike[1], route
    assert not OutboxFile.objects.exists()
    assert alice.see(objects["run_id"])["status"] == "RUNNING"


def test_what_is_ones_own_exists(alice: Any, objects: dict[str, Any]) -> None:
    """The counterpart: without it the test above would pass with wrong addresses."""
    for route in FOREIGN:
        if route not in LACKING:
            bearer = objects["node"].credential if EXPECTED[route] == NODE else alice.token
            assert call(route, bearer, objects).status_code != 404, route


@pytest.mark.parametrize(
    "route",
    [
        "GET /runs",
        "GET /datasets",
        "GET /models",
        "GET /checkpoints",
        "GET /functions",
        "GET /checkpoint-aliases",
    ],
)
def test_lists_hold_only_ones_own(alice: Any, person: Any, objects: dict[str, Any], route: str) -> None:
    charlie, bob = person("charlie", team="blue"), person("bob")
    path = route.split(" ")[1]
    assert charlie.get(path).json()["data"] == []
    assert charlie.get(f"{path}?run={objects['run_id']}&name=sums").json()["data"] == []
    assert len(bob.get(path).json()["data"]) == 1, "Bob is on Alice's team"


def test_a_foreign_dataset_model_or_checkpoint_cannot_be_used_in_a_run(
    alice: Any, person: Any, objects: dict[str, Any]
) -> None:
    charlie = person("charlie", team="blue")
    spec = alice.spec(
        model={"checkpoint": objects["checkpoint_id"]}, dataset={"version": objects["version_id"]},
    )  # fmt: skip
    found = charlie.post("/runs/validate", {"spec": spec}).json()["errors"]
    assert {error["code"] for error in found} == {"unknown_checkpoint", "unknown_dataset"}
    body = {"upload_id": alice.upload(b"{}"), "mapping": {"prompt_column": "q", "answer_column": "a"}}
    assert charlie.post("/datasets/preview", body).status_code == 404


def test_the_pool_page_hides_the_names_of_other_teams_runs(
    alice: Any, person: Any, objects: dict[str, Any], tick: Any
) -> None:
    alice.run(name="secret plan")
    tick()
    seen = person("charlie", team="blue").get("/pool").json()
    assert "secret" not in json.dumps(seen)
    assert objects["run_id"] not in json.dumps(seen)
    assert seen["queue"][0]["name"] == "another team's run"


@pytest.mark.parametrize(("role", "may"), [(Role.VIEWER, 403), (Role.MEMBER, 201), (Role.ADMIN, 201)])
def test_a_viewer_reads_and_does_not_start_runs(alice: Any, person: Any, role: Role, may: int) -> None:
    dave = person("dave", role=role)
    assert dave.get("/runs").status_code == 200
    assert dave.post("/runs", {"spec": alice.spec()}).status_code == may
    assert dave.post("/pool/enrolment-tokens").status_code == (201 if role == Role.ADMIN else 403)


def test_who_left_the_project_loses_the_power_of_old_tokens(alice: Any, person: Any) -> None:
    dave = person("dave")
    Membership.objects.filter(user=dave.user).delete()
    assert dave.get("/runs").status_code == 401


@pytest.mark.parametrize(("purpose", "scope"), [("dataset", "datasets:write"), ("model", "models:write")])
def test_an_upload_needs_the_scope_of_its_purpose(alice: Any, purpose: str, scope: str) -> None:
    other = {"datasets:write", "models:write"} - {scope}
    for scopes, status in (([scope], 201), (list(other), 403)):
        _, alice.token = accounts.create_token(
            user=alice.user, project=alice.project, name="t", scopes=scopes
        )
        assert alice.post(f"/uploads?purpose={purpose}", b"data").status_code == status


def test_a_node_reads_only_inputs_of_its_own_live_attempts(
    alice: Any, node: Any, objects: dict[str, Any], tick: Any
) -> None:
    machine = objects["node"]
    assert machine.get(f"/artifacts/{objects['sha256']}").status_code == 200
    alice.dataset("others", [{"question": "x", "answer": "y"}])
    unrelated = alice.get("/dataset-versions/resolve?ref=others@1").json()["sha256"]
    assert machine.get(f"/artifacts/{unrelated}").status_code == 404
    Attempt.objects.update(status="ENDED")
    assert machine.get(f"/artifacts/{objects['sha256']}").status_code == 404
