"""Models by a path: offered by nodes, checked by one of them, and run only where they are offered."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from control_plane.assets.base_models.model_check_services import (
    LONGEST_OF_PATH,
    LONGEST_WAIT,
    MOST_TRIES,
    SILENCE,
    advance_model_checks,
)
from control_plane.assets.models import BaseModel, ModelCheck
from control_plane.fleet.models import Node
from oolong.contracts.model_report import Fault, ModelFile, ModelReport

GOOD = ModelReport(
    family="qwen3", parameters=168, tensors=13, config={"model_type": "qwen3"}, prompt="<user>",
    files=[ModelFile("config.json", 7, "c" * 64), ModelFile("model.safetensors", 9, "d" * 64)],
    manifest_sha256="e" * 64,
)  # fmt: skip


def ask(alice: Any, path: str = "/models/mine", name: str = "mine") -> Any:
    return alice.post("/models", {"name": name, "path": path})


def check_of(model: Any) -> str:
    found: str = ModelCheck.objects.get(model_id=model.json()["id"]).pk
    return found


def call(node: Any, check: str, verb: str, body: Any = None) -> Any:
    return node.post(f"/model-checks/{check}/{verb}", msgspec.json.encode(body) if body else b"")


def look(node: Any, check: str, report: ModelReport = GOOD) -> Any:
    assert call(node, check, "begin").status_code == 200
    return call(node, check, "complete", report)


def test_a_node_that_offers_the_directory_looks_and_the_model_is_ready(alice: Any, node: Any) -> None:
    first = node()
    asked = ask(alice)
    assert (asked.status_code, asked.json()["state"], asked.json()["source"]) == (201, "VALIDATING", "path")
    assert ask(alice).json()["id"] == asked.json()["id"], "the same question while it is looked at"
    check = check_of(asked)
    assert first.beat().model_checks == [check]
    assert call(first, check, "begin").json() == {"check_id": check, "path": "/models/mine"}
    assert call(first, check, "progress").status_code == 200
    assert look(first, check).json() == {"state": "READY", "message": ""}
    model = alice.get(f"/models/{asked.json()['id']}").json()
    assert (model["ref"], model["state"], model["parameters"]) == ("mine@1", "READY", 168)
    assert (model["bytes"], len(model["files"]), model["prompt"]) == (16, 2, "<user>")
    assert first.beat().model_checks == []
    assert call(first, check, "complete", GOOD).status_code == 409


def test_a_path_that_is_checked_again_is_the_same_version_or_the_next(alice: Any, node: Any) -> None:
    first = node()
    for report, state, ref in (
        (GOOD, "READY", "mine@1"), (GOOD, "DUPLICATE", ""),
        (msgspec.structs.replace(GOOD, manifest_sha256="f" * 64), "READY", "mine@2"),
    ):  # fmt: skip
        asked = ask(alice)
        assert look(first, check_of(asked), report).json()["state"] == state
        assert alice.get(f"/models/{asked.json()['id']}").json()["ref"] == ref


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("models/mine", "not_absolute"),
        ("/models/../etc", "not_absolute"),
        ("/modelsandmore/mine", "path_not_offered"),
        ("/etc", "path_not_offered"),
        ("/", "path_not_offered"),
    ],
)
def test_a_path_that_no_node_offers_is_refused(alice: Any, node: Any, path: str, code: str) -> None:
    node()
    reply = ask(alice, path)
    assert (reply.status_code, reply.json()["errors"][0]["code"]) == (422, code)
    assert reply.json()["errors"][0]["pointer"] == "/path"
    assert not BaseModel.objects.filter(name="mine").exists()
    assert alice.post("/models", {"name": "x", "path": "/m", "upload_id": "upl_x"}).status_code == 422


def test_without_offering_nodes_the_error_names_the_way_out(alice: Any, node: Any) -> None:
    assert "--model-root" in ask(alice).json()["detail"]
    Node.objects.filter(pk=node().node_id).update(liveness="LOST")
    assert ask(alice).json()["code"] == "path_not_offered"


def test_what_the_node_finds_wrong_is_shown(alice: Any, node: Any) -> None:
    first, asked = node(), ask(alice)
    fault = Fault("/files/model.safetensors", "truncated", "model.safetensors: truncated\x00")
    look(first, check_of(asked), ModelReport(message=fault.message, faults=[fault]))
    model = alice.get(f"/models/{asked.json()['id']}").json()
    assert (model["state"], model["errors"][0]["code"], model["number"]) == ("INVALID", "truncated", None)
    assert "truncated" in model["message"]


def test_only_a_node_that_offers_it_may_look_and_only_the_one_that_took_it(alice: Any, node: Any) -> None:
    first, second, other = node("one"), node("two"), node("other")
    Node.objects.filter(pk=other.node_id).update(model_roots=["/elsewhere"])
    check = check_of(ask(alice))
    assert call(other, check, "begin").status_code == 404
    assert call(first, check, "begin").status_code == 200
    for verb, body in (("begin", None), ("progress", None), ("complete", GOOD)):
        assert call(second, check, verb, body).status_code == 404, verb
    assert second.beat().model_checks == []
    assert first.beat().model_checks == [check], "asked again after a restart of the agent"
    reply = first.post(f"/model-checks/{check}/complete", json.dumps({"faults": 1}))
    assert (reply.status_code, reply.json()["code"]) == (422, "invalid")


def test_a_heartbeat_that_waits_ends_where_the_path_is_offered(
    alice: Any, node: Any, django_capture_on_commit_callbacks: Any
) -> None:
    first, other = node("one"), node("other")
    Node.objects.filter(pk=other.node_id).update(model_roots=["/elsewhere"])
    before = dict(Node.objects.values_list("pk", "desired_revision"))
    with django_capture_on_commit_callbacks(execute=True):
        ask(alice)
    after = dict(Node.objects.values_list("pk", "desired_revision"))
    assert after[first.node_id] > before[first.node_id]
    assert after[other.node_id] == before[other.node_id]


def test_a_cordoned_node_takes_none(alice: Any, node: Any) -> None:
    first = node()
    check = check_of(ask(alice))
    Node.objects.filter(pk=first.node_id).update(intent="CORDONED")
    assert first.beat().model_checks == []
    assert call(first, check, "begin").status_code == 409


def test_a_silent_node_loses_it_to_another_a_few_times(alice: Any, node: Any, clock: Any) -> None:
    asked = ask(alice_with(node, alice))
    check = check_of(asked)
    for number in range(MOST_TRIES):
        one = node(f"n{number}")
        assert call(one, check, "begin").status_code == 200
        advance_model_checks(now=clock.now)
        advance_model_checks(now=clock.forward((SILENCE + timedelta(seconds=1)).total_seconds()))
        assert call(one, check, "progress").status_code in (404, 409)
    assert alice.get(f"/models/{asked.json()['id']}").json()["errors"][0]["code"] == "node_silent"


def test_a_node_that_is_there_and_never_ends_loses_the_check(alice: Any, node: Any, clock: Any) -> None:
    first, asked = node(), ask(alice)
    check = check_of(asked)
    assert call(first, check, "begin").status_code == 200
    for forward, state in ((LONGEST_OF_PATH.total_seconds(), "VALIDATING"), (1, "INVALID")):
        clock.forward(forward)
        ModelCheck.objects.update(touched_at=clock.now)  # it reports all the time
        advance_model_checks(now=clock.now)
        assert alice.get(f"/models/{asked.json()['id']}").json()["state"] == state
    assert alice.get(f"/models/{asked.json()['id']}").json()["errors"][0]["code"] == "took_too_long"
    assert call(first, check, "progress").status_code == 409
    assert first.beat().model_checks == []


def test_what_waits_for_a_node_is_removed_and_what_one_looks_at_is_not(alice: Any, node: Any) -> None:
    first, waiting = node(), ask(alice)
    check = check_of(waiting)
    assert first.beat().model_checks == [check]
    assert alice.call("DELETE", f"/models/{waiting.json()['id']}").status_code == 204
    assert alice.get(f"/models/{waiting.json()['id']}").status_code == 404
    assert call(first, check, "begin").status_code == 404
    assert first.beat().model_checks == []
    begun = ask(alice)
    assert call(first, check_of(begun), "begin").status_code == 200
    refusal = alice.call("DELETE", f"/models/{begun.json()['id']}")
    assert (refusal.status_code, refusal.json()["code"]) == (409, "in_use")
    assert look(first, check_of(begun)).json()["state"] == "READY"


def test_a_model_that_runs_name_is_not_removed(alice: Any, node: Any) -> None:
    node()
    model = alice.run()["spec"]["model"]["base_model"]
    BaseModel.objects.filter(pk=model).update(state="INVALID")
    refusal = alice.call("DELETE", f"/models/{model}")
    assert (refusal.status_code, refusal.json()["code"]) == (409, "in_use")
    assert "runs" in refusal.json()["detail"] and BaseModel.objects.filter(pk=model).exists()


def test_what_no_node_takes_ends(alice: Any, node: Any, clock: Any) -> None:
    node()
    asked = ask(alice)
    ModelCheck.objects.update(created_at=clock.now)
    advance_model_checks(now=clock.now)
    assert alice.get(f"/models/{asked.json()['id']}").json()["state"] == "VALIDATING"
    advance_model_checks(now=clock.forward((LONGEST_WAIT + timedelta(seconds=1)).total_seconds()))
    assert alice.get(f"/models/{asked.json()['id']}").json()["errors"][0]["code"] == "no_node"


def alice_with(node: Any, alice: Any) -> Any:
    """Somebody must offer the directory before she may ask."""
    node("first")
    return alice


def test_a_run_goes_only_to_a_node_that_offers_its_model(alice: Any, node: Any, tick: Any) -> None:
    other = node("other")
    Node.objects.update(model_roots=["/elsewhere"])
    run = alice.run()
    tick()
    assert alice.see(run["id"])["pending_reason"] == "no node offers the model's directory /models/tiny"
    plan = alice.post("/runs/plan", {"spec": alice.spec()}).json()
    assert "no node offers" in json.dumps(plan)
    first = node("one")
    Node.objects.filter(pk=other.node_id).update(model_roots=["/elsewhere"])
    tick()
    first.beat()
    assert alice.see(run["id"])["status"] in ("STARTING", "RUNNING")
    assert [attempt.model_path for attempt in first.beat().attempts] == ["/models/tiny"]
    assert other.beat().attempts == []


def test_attempt_receives_the_measured_sizes(alice: Any, node: Any, tick: Any) -> None:
    first = node()
    look(first, check_of(ask(alice)))
    alice.run(model={"base_model": "mine@1"})
    tick()
    (attempt,) = first.beat().attempts
    assert attempt.model_files == {"config.json": 7, "model.safetensors": 9}


def test_the_command_registers_a_path(oolong: Any, node: Any) -> None:
    assert oolong("model", "register", "/models/mine", "--name", "mine").code == 2
    node()
    begun = oolong("model", "register", "/models/mine", "--name", "mine", "--no-wait", "--json")
    assert (begun.code, json.loads(begun.out)["state"]) == (0, "VALIDATING")
