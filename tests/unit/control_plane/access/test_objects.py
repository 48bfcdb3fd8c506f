"""Every route that names an object × callers whose object it is not: for them it does not exist."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import pytest
from django.db import transaction
from drf_spectacular.generators import SchemaGenerator

from control_plane.accounts.models import Membership
from control_plane.core.api.base_view import query_parameters
from control_plane.fleet import pools
from control_plane.fleet.models import Pool
from control_plane.runs.models import Attempt, Run
from control_plane.telemetry.models import OutboxFile
from tests.unit.control_plane.access.doors import PLAIN_VALUES, Route, all_routes, call
from tests.unit.control_plane.access.objects import World, api
from tests.unit.control_plane.access.refusals import (
    ELSEWHERE,
    SECRET,
    forms,
    operations,
    questions,
    rows_in_tables,
)
from tests.unit.control_plane.access.routes import LACKING, NODE, OF_POOLS, OPEN, POOL_CALLERS, ROUTES, STALE

HEARTBEAT = (
    b'{"inventory":{"hostname":"node","agent_version":"0","boot_id":"boot","cpu_count":2,"memory_bytes":1,'
    b'"disk_free_bytes":1,"slots":[]},"jobs":[],"started_at":0.0}'
)
VIEWS = [route for route in all_routes() if route.is_view and ROUTES.get(route.name) not in (None, OPEN)]
NODES_OWN = [route for route in VIEWS if ROUTES[route.name] == NODE]
POOLS_OWN = [route for route in VIEWS if any(part in route.url for part in OF_POOLS)]
# Admins of the installation see every pool; to others those routes are forbidden: see the test of pools below.
WITH_OBJECT = [
    route
    for route in VIEWS
    if route.names_an_object and not (route in POOLS_OWN and ROUTES[route.name] == "installation:admin")
]


def test_what_is_another_teams_or_projects_or_nodes_does_not_exist(world: World) -> None:
    """They get the answer that a made-up id gets, and nothing has happened."""
    for route in WITH_OBJECT:
        others = ("another node",) if ROUTES[route.name] == NODE else ("another team", "another project")
        if "/team/" in route.url or route in POOLS_OWN:
            others = ("another team",)
        for other in others:
            bearer = world.tokens[other]
            foreign, nothing = call(route, bearer, world.ids), call(route, bearer, {})
            assert (foreign.status_code, nothing.status_code) == (404, 404), (
                route.name,
                other,
                foreign.content,
            )
            alike = [{**reply.json(), "detail": "", "request_id": ""} for reply in (foreign, nothing)]
            assert alike[0] == alike[1], (route.name, other)
    assert not OutboxFile.objects.exists()
    assert Run.objects.get(pk=world.ids["run_id"]).status == "STARTING"


def test_what_is_ones_own_exists(world: World) -> None:
    """The counterpart: without it the test above would pass with wrong addresses."""
    for route in (route for route in WITH_OBJECT if route.name not in LACKING):
        bearer = world.tokens["node" if ROUTES[route.name] == NODE else "alice"]
        with transaction.atomic():
            reply = call(route, bearer, world.ids)
            transaction.set_rollback(True)
        assert reply.status_code not in (401, 403, 404, 500), (route.name, reply)


def test_lists_hold_only_ones_own(world: World, schema: dict[str, Any]) -> None:
    own, other, ids = world.tokens["viewer"], world.tokens["another team"], world.ids
    for path in (
        "/runs",
        "/datasets",
        "/models",
        "/checkpoints",
        "/functions",
        "/checkpoint-aliases",
        "/secrets",
        "/sweeps",
        "/run-templates",
    ):
        assert api(own, "GET", path).json()["data"], path
        asked = {given["name"] for given in schema["paths"][f"/api/v1{path}"]["get"]["parameters"]}
        known = {"parent": ids["run_id"], "run": ids["run_id"], "name": "sums", "limit": "5"}
        named = urlencode({name: value for name, value in known.items() if name in asked})
        for bearer in (other, world.tokens["another project"]):
            assert api(bearer, "GET", path).json()["data"] == [], path
            assert api(bearer, "GET", f"{path}?{named}").json()["data"] == [], path


def test_foreign_ids_inside_a_body_do_not_exist_either(world: World) -> None:
    other, ids = world.tokens["another team"], world.ids
    spec = {
        "kind": "rl", "name": "theft", "model": {"checkpoint": ids["checkpoint_id"]},
        "dataset": {"version": ids["version_id"]},
    }  # fmt: skip
    found = api(other, "POST", "/runs/validate", {"spec": spec}).json()["errors"]
    assert {error["code"] for error in found} == {"unknown_checkpoint", "unknown_dataset"}
    assert api(other, "POST", "/dataset-validations", {"upload_id": ids["upload"]}).status_code == 404
    assert api(other, "POST", "/models", {"name": "m", "upload_id": ids["upload"]}).status_code == 404


# A caller with permission gets past the check of access: the pool has a node, and a change must name a field.
REFUSED_BY_CONTENT = {"DELETE /pools/{pool_name}": ("409",), "PATCH /pools/{pool_name}": ("422",)}


def test_a_pool_gives_each_kind_of_caller_what_the_table_says(world: World) -> None:
    assert len(POOLS_OWN) > 10
    for route in POOLS_OWN:
        for name, answers in POOL_CALLERS.items():
            with transaction.atomic():
                reply = call(route, world.tokens[name], world.ids)
                transaction.set_rollback(True)
            expected = answers[ROUTES[route.name]]
            got = str(reply.status_code)
            allowed = {"200", "201", "204", *REFUSED_BY_CONTENT.get(route.name, ())}
            assert got == expected or (expected == "" and got in allowed), (
                route.name,
                name,
                got,
            )
    for name, answers in POOL_CALLERS.items():
        bearer, expected = world.tokens[name], answers["pool:read"] or "200"
        assert str(api(bearer, "GET", "/pool?pool=own").status_code) == expected, name
        listed = [pool["name"] for pool in api(bearer, "GET", "/pools").json()["data"]]
        assert ("own" in listed) == (expected == "200") and "default" in listed, name
        assert ("theirs" in listed) == ("another" in name or "installation" in name), name


def test_the_pool_page_hides_the_names_of_other_teams_runs(world: World) -> None:
    Run.objects.update(status="QUEUED")
    pools.bind_team(Pool.objects.get(pk="own"), world.users["another team"].memberships.get().project.team)
    seen = api(world.tokens["another team"], "GET", "/pool?pool=own").json()
    assert world.hidden not in json.dumps(seen) and world.ids["run_id"] not in json.dumps(seen)
    assert seen["queue"][0]["name"] == "another team's run"
    assert world.hidden in json.dumps(api(world.tokens["viewer"], "GET", "/pool?pool=own").json())


# --- doors whose need depends on what is asked


@pytest.mark.parametrize(("purpose", "scope"), [("dataset", "datasets:write"), ("model", "models:write")])
def test_an_upload_needs_the_scope_of_its_purpose(world: World, purpose: str, scope: str) -> None:
    session = {"filename": "f", "purpose": purpose, "bytes": 1}
    for holder in ("datasets:write", "models:write"):
        bearer, expected = world.tokens[f"only {holder}"], 201 if holder == scope else 403
        assert api(bearer, "POST", f"/uploads?purpose={purpose}", b"data").status_code == expected
        assert api(bearer, "POST", "/upload-sessions", session).status_code == expected


# --- nodes


def test_a_node_that_the_run_has_left_behind_is_fenced(world: World) -> None:
    Attempt.objects.update(status="ENDED")
    Run.objects.update(epoch=2)
    for route in NODES_OWN:
        with transaction.atomic():
            reply = call_as_node(route, world)
            transaction.set_rollback(True)
        assert reply.status_code == STALE[route.name], (route.name, reply.content)


def call_as_node(route: Route, world: World) -> Any:
    """With a body that is right for the route."""
    checkpoint = {"step": 3, "manifest_sha256": "0" * 64, "tar_sha256": "0" * 64, "bytes": 1, "epoch": 1}
    bodies = {"/heartbeat": HEARTBEAT, "/checkpoints": checkpoint, "/parts/{number}": b"checkpoint 2",
              "/secrets": {"epoch": 1}}  # fmt: skip
    body = next((body for end, body in bodies.items() if route.name.endswith(end)), b"")
    path = route.path(world.ids).removeprefix("/api/v1")
    at = "?offset=0" if "offset" in query_parameters(route.view, route.method) else ""
    return api(world.tokens["node"], route.method, f"{path}{at}", body)


def test_a_node_reads_only_inputs_of_its_own_live_attempts(world: World) -> None:
    own, other = world.tokens["node"], world.tokens["another node"]
    path = f"/agent/artifacts/{world.ids['sha256']}"
    assert api(own, "GET", path).status_code == 200
    assert api(other, "GET", path).status_code == 404


# --- power follows the person


def test_who_is_demoted_or_leaves_loses_the_power_of_old_tokens_at_once(world: World) -> None:
    bearer, own = world.tokens["admin"], Membership.objects.filter(user=world.users["admin"])
    assert api(bearer, "POST", "/invitations", {"role": "viewer"}).status_code == 201
    own.update(role="viewer")
    assert api(bearer, "POST", "/invitations", {"role": "viewer"}).status_code == 403
    assert api(bearer, "GET", "/runs").status_code == 200
    own.delete()
    assert api(bearer, "GET", "/runs").status_code == 401


def test_who_is_no_longer_pool_admin_loses_the_power_of_old_tokens_at_once(world: World) -> None:
    bearer, user = world.tokens["pool admin"], world.users["pool admin"]
    assert api(bearer, "POST", "/pools/own/join-tokens").status_code == 201
    pools.remove_admin(Pool.objects.get(pk="own"), user.pk)
    assert api(bearer, "POST", "/pools/own/join-tokens").status_code == 403
    assert api(bearer, "GET", "/pool?pool=own").status_code == 200


def test_a_priority_is_capped_by_role_and_a_run_keeps_one_that_it_has(world: World) -> None:
    run, urgent = f"/runs/{world.ids['run_id']}", {"priority": 501}
    Run.objects.update(status="QUEUED")
    refused = api(world.tokens["editor"], "PATCH", run, urgent)
    assert (refused.status_code, refused.json()["errors"]) == (
        422,
        [
            {
                "pointer": "/priority",
                "code": "priority_above_cap",
                "message": "priority 501 is above 500, the cap of the role editor; use at most 500, or ask an "
                "operator or admin of the project to raise it",
            }
        ],
    )
    assert api(world.tokens["operator"], "PATCH", run, {"priority": 801}).status_code == 422
    assert api(world.tokens["operator"], "PATCH", run, {"priority": 800}).status_code == 200
    assert api(world.tokens["editor"], "PATCH", run, {"notes": "same", "priority": 800}).status_code == 200
    assert api(world.tokens["editor"], "PATCH", run, {"priority": 700}).status_code == 200, "lower is free"
    assert api(world.tokens["editor"], "PATCH", run, {"priority": 701}).status_code == 422
    assert Run.objects.get(pk=world.ids["run_id"]).priority == 700
    assert api(world.tokens["admin"], "PATCH", run, {"priority": 1000}).status_code == 200


def test_a_submission_above_the_cap_of_the_role_is_refused(world: World) -> None:
    def submit(who: str, priority: int) -> Any:
        spec = {
            "kind": "rl", "name": "hurry", "model": {"base_model": "tiny"}, "dataset": {"version": "sums@1"},
            "placement": {"priority": priority},
        }  # fmt: skip
        return api(world.tokens[who], "POST", "/runs", {"spec": spec})

    for who, cap in (("editor", 500), ("operator", 800)):
        (error,) = submit(who, cap + 1).json()["errors"]
        assert (error["pointer"], error["code"]) == ("/placement/priority", "priority_above_cap")
        assert f"priority {cap + 1} is above {cap}, the cap of the role {who}" in error["message"]
        assert submit(who, cap).status_code == 201
    assert submit("admin", 1000).status_code == 201


# --- what is wrong is reported field by field, and nothing of it stays


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    found: dict[str, Any] = SchemaGenerator(api_version="v1").get_schema(request=None, public=True)
    return found


def faults_of(world: World, name: str, body: Any, query: str = "") -> dict[str, str]:
    """Pointer → message of the refusal."""
    method, _, path = name.partition(" ")
    reply = api(world.tokens["alice"], method, path.format_map({**PLAIN_VALUES, **world.ids}) + query, body)
    assert reply.status_code == 422, (name, query, body, reply.status_code, reply.content[:500])
    return {error["pointer"]: error["message"] for error in reply.json()["errors"]}


def test_a_body_that_is_wrong_in_every_field_gets_an_error_for_each_with_its_value(
    world: World, schema: dict[str, Any]
) -> None:
    before, routes = rows_in_tables(), list(forms(schema))
    assert len(routes) > 60
    for form in routes:
        told = faults_of(world, form.name, form.wrong) if form.wrong else {}
        for name, value in form.wrong.items():
            [message] = [said for pointer, said in told.items() if f"{pointer}/".startswith(f"/{name}/")] or [
                ""
            ]
            quotes = repr(value) in message or (isinstance(value, list) and "it is a list" in message)
            assert message and (name in SECRET or quotes), (form.name, name, told)
        told = faults_of(world, form.name, {"nonsense": 1})
        assert told["/nonsense"].startswith("unknown key 'nonsense'; known: "), form.name
        if form.required:
            told = faults_of(world, form.name, {})
            for name in form.required:
                assert told[f"/{name}"] == "required, and missing", (form.name, name)
    assert rows_in_tables() == before


def test_a_query_that_is_wrong_in_one_field_gets_an_error_with_its_name_and_value(
    world: World, schema: dict[str, Any]
) -> None:
    asked = list(questions(schema))
    assert len(asked) > 60
    for one in asked:
        query = "?" + urlencode({**one.others, one.field: one.wrong})
        told = faults_of(world, one.name, None, query)
        assert list(told) == [f"/{one.field}"] and told[f"/{one.field}"], (one, told)


def test_a_parameter_that_no_address_knows_is_refused_and_never_passed_over(
    world: World, schema: dict[str, Any]
) -> None:
    asked = 0
    for name, _ in operations(schema):
        method, _, path = name.partition(" ")
        reply = api(
            world.tokens["alice"],
            method,
            f"{path.format_map({**PLAIN_VALUES, 'link': 'x', **world.ids})}?nonsense=1",
            {},
        )
        if reply.status_code in (401, 403):
            continue  # nodes', operators': who may not come in gets that error and nothing else
        asked += 1
        assert reply.status_code == 422, (name, reply.status_code)
        [fault] = reply.json()["errors"]
        assert fault["pointer"] == "/nonsense" and fault["message"].startswith(
            "unknown parameter 'nonsense'; "
        )
    assert asked > 120
    assert api(world.tokens["alice"], "HEAD", "/runs?status=RUNNING").status_code == 200
    assert api(world.tokens["alice"], "HEAD", "/runs?nonsense=1").status_code == 422
    assert api(world.tokens["alice"], "PUT", "/runs?nonsense=1", {}).status_code == 405


def test_what_is_tested_elsewhere_is_a_route(schema: dict[str, Any]) -> None:
    assert set(ELSEWHERE) <= {
        f"{method.upper()} {path.removeprefix('/api/v1')}"
        for path in schema["paths"]
        for method in schema["paths"][path]
    }
