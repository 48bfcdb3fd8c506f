"""Imports from a hub: asked for by a project, taken by one node, stored as a base model, or refused with a reason."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from control_plane.assets.base_models.import_services import MOST_TRIES, SILENCE, advance_imports
from control_plane.assets.models import BaseModel, ModelImport
from control_plane.assets.storage import multipart, store
from control_plane.assets.storage.local import LocalStorage
from control_plane.core.infra.locks import LockClass, session_lock
from control_plane.fleet.models import Node
from tests.support.model_files import archive, files
from tests.unit.control_plane.conftest import check_models_here

COMMIT = "c" * 40


@pytest.fixture(autouse=True)
def _hub(settings: Any, _own_store: None) -> None:
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, hub_url="https://hub.example.org")


def ask(alice: Any, **changes: Any) -> Any:
    return alice.post("/model-imports", {"name": "tiny-hub", "model": "acme/tiny", **changes})


def call(node: Any, import_id: str, verb: str, body: Any = None) -> Any:
    return node.post(f"/imports/{import_id}/{verb}", json.dumps(body or {}))


def send(node: Any, import_id: str, data: bytes) -> Any:
    """The whole journey of a fetched model; the last answer."""
    announced = {"commit": COMMIT, "tar_sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    reply = call(node, import_id, "uploads", announced)
    assert reply.status_code == 200, reply.content
    part = node.client.put(
        f"/api/v1/agent/imports/{import_id}/parts/0", data=data, content_type="application/octet-stream",
        headers={
            "authorization": f"Bearer {node.credential}", "x-part-sha256": hashlib.sha256(data).hexdigest(),
        },
    )  # fmt: skip
    assert part.status_code == 200, part.content
    return call(node, import_id, "complete")


def send_and_check(alice: Any, node: Any, import_id: str, data: bytes) -> Any:
    """The import when what was sent is checked."""
    assert send(node, import_id, data).json()["state"] == "CHECKING"
    assert node.beat().imports == [], "the node has done its part"
    check_models_here()
    return alice.get(f"/model-imports/{import_id}").json()


def test_a_node_hears_of_it_takes_it_and_it_becomes_a_model_with_its_commit(alice: Any, node: Any) -> None:
    asked = ask(alice)
    assert (asked.status_code, asked.json()["state"], asked.json()["revision"]) == (202, "QUEUED", "main")
    identity, first = asked.json()["id"], node()
    assert first.beat().imports == [identity]
    order = call(first, identity, "begin").json()
    assert order == {
        "import_id": identity, "endpoint": "https://hub.example.org", "model": "acme/tiny", "revision": "main",
        "token": "",
    }  # fmt: skip
    call(first, identity, "progress", {"bytes_done": 5, "bytes_total": 10})
    seen = alice.get(f"/model-imports/{identity}").json()
    assert (seen["state"], seen["bytes_done"], seen["bytes_total"]) == ("RUNNING", 5, 10)
    done = send_and_check(alice, first, identity, archive(files()))
    assert done["state"] == "DONE"
    model = done["model"]
    assert (model["name"], model["source"], model["family"]) == ("tiny-hub", "hub", "qwen3")
    assert model["origin"] == f"https://hub.example.org/acme/tiny@{COMMIT}"
    assert first.beat().imports == []


def test_the_same_import_on_its_way_is_not_begun_twice(alice: Any) -> None:
    first, again = ask(alice), ask(alice)
    assert (again.status_code, again.json()["id"]) == (200, first.json()["id"])
    assert ask(alice, revision="v2").json()["id"] != first.json()["id"]


def test_only_the_node_that_took_it_may_go_on_with_it(alice: Any, node: Any) -> None:
    identity = ask(alice).json()["id"]
    first, second = node("one"), node("two")
    assert call(first, identity, "begin").status_code == 200
    assert second.beat().imports == []
    for verb, body in (
        ("begin", {}), ("progress", {}), ("failed", {"message": "x"}), ("complete", {}),
        ("uploads", {"commit": COMMIT, "tar_sha256": "0" * 64, "bytes": 1}),
    ):  # fmt: skip
        assert call(second, identity, verb, body).status_code == 404, verb
    assert call(first, identity, "begin").status_code == 200, "asked again after a restart of the agent"


@pytest.mark.parametrize(
    ("contents", "said"),
    [
        (files(model__safetensors=None), "no *.safetensors file"),
        (files(modeling__py=b"import os"), "is code"),
        (files(config__json=b'{"model_type": "x", "auto_map": {}}'), "auto_map"),
    ],
)
def test_what_the_node_sends_is_checked_as_every_upload_is(
    alice: Any, node: Any, contents: dict[str, bytes], said: str, django_capture_on_commit_callbacks: Any
) -> None:
    identity, first = ask(alice).json()["id"], node()
    call(first, identity, "begin")
    with django_capture_on_commit_callbacks(execute=True):
        seen = send_and_check(alice, first, identity, archive(contents))
    assert seen["state"] == "FAILED"
    assert said in seen["message"] and seen["model"] is None
    assert BaseModel.objects.get(source="hub").state == "INVALID"
    assert not store.has_blob(hashlib.sha256(archive(contents)).hexdigest()), "nobody would ever name it"


def test_an_import_is_put_together_by_one_request_at_a_time(alice: Any, node: Any) -> None:
    """Its node gives up waiting before a large model is hashed, and asks again."""
    identity, first = ask(alice).json()["id"], node()
    call(first, identity, "begin")
    with session_lock(LockClass.COMPLETION, identity):
        early = send(first, identity, archive(files()))
        assert (early.status_code, early.json()["code"], early["Retry-After"]) == (
            503,
            "completion_in_progress",
            "10",
        )
    assert call(first, identity, "complete").json()["state"] == "CHECKING"
    assert call(first, identity, "complete").status_code == 409, "it has ended, and begins no work again"


def test_a_storage_that_is_away_is_not_the_models_fault(
    alice: Any, node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity, first = ask(alice).json()["id"], node()
    call(first, identity, "begin")

    def away(self: Any, sha256: str) -> bool:
        raise store.StorageUnavailable("the bucket does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "has", away)
        assert send(first, identity, archive(files())).status_code == 503
    assert alice.get(f"/model-imports/{identity}").json()["state"] == "RUNNING"
    assert call(first, identity, "complete").json()["state"] == "CHECKING"


def test_the_same_files_again_are_the_version_that_is_there(alice: Any, node: Any) -> None:
    first = node()
    for _ in range(2):
        identity = ask(alice).json()["id"]
        call(first, identity, "begin")
        seen = send_and_check(alice, first, identity, archive(files()))
        assert (seen["state"], seen["model"]["ref"]) == ("DONE", "tiny-hub@1")


def test_what_the_node_says_of_a_failure_is_shown(alice: Any, node: Any) -> None:
    identity, first = ask(alice).json()["id"], node()
    call(first, identity, "begin")
    call(first, identity, "failed", {"message": "acme/tiny is gated: accept its terms"})
    seen = alice.get(f"/model-imports/{identity}").json()
    assert (seen["state"], "is gated" in seen["message"]) == ("FAILED", True)
    assert call(first, identity, "progress").status_code == 409


def test_the_token_is_a_secret_for_that_host_and_only_the_node_that_took_it_gets_it(
    alice: Any, node: Any
) -> None:
    assert ask(alice, secret="HUB").json()["code"] == "unknown_secret"
    alice.post("/secrets", {"name": "HUB", "value": "hub-token", "hosts": ["hub.example.org"]})
    identity = ask(alice, secret="HUB").json()["id"]
    assert "hub-token" not in alice.get(f"/model-imports/{identity}").content.decode()
    assert call(node("one"), identity, "begin").json()["token"] == "hub-token"
    assert call(node("two"), identity, "begin").status_code == 404


def test_a_secret_for_another_host_goes_nowhere(alice: Any, node: Any) -> None:
    alice.post("/secrets", {"name": "HUB", "value": "hub-token", "hosts": ["elsewhere.example.org"]})
    identity = ask(alice, secret="HUB").json()["id"]
    assert call(node(), identity, "begin").status_code == 409
    seen = alice.get(f"/model-imports/{identity}").json()
    assert (seen["state"], "is not for" in seen["message"]) == ("FAILED", True)


def test_a_node_that_falls_silent_loses_it_to_another_a_few_times(alice: Any, node: Any, clock: Any) -> None:
    identity = ask(alice).json()["id"]
    nodes = [node(f"n{number}") for number in range(MOST_TRIES)]
    for one in nodes:
        assert call(one, identity, "begin").status_code == 200
        advance_imports(now=clock.now)
        assert ModelImport.objects.get().state == "RUNNING"
        advance_imports(now=clock.forward((SILENCE + timedelta(seconds=1)).total_seconds()))
        assert call(one, identity, "progress").status_code in (404, 409)
    assert "fell silent" in alice.get(f"/model-imports/{identity}").json()["message"]


def test_what_a_tick_gives_away_while_it_is_joined_is_checked_all_the_same(
    alice: Any, node: Any, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity, first = ask(alice).json()["id"], node()
    call(first, identity, "begin")
    join = multipart.join

    def slow_join(*args: Any, **fields: Any) -> Any:
        advance_imports(now=clock.forward((SILENCE + timedelta(seconds=1)).total_seconds()))
        assert ModelImport.objects.get().state == "QUEUED"
        return join(*args, **fields)

    monkeypatch.setattr(multipart, "join", slow_join)
    seen = send_and_check(alice, first, identity, archive(files()))
    assert (seen["state"], seen["model"]["name"]) == ("DONE", "tiny-hub")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"intent": "CORDONED"}, []),
        ({"intent": "DRAINING"}, []),
        ({"liveness": "UNRESPONSIVE"}, ["it"]),  # a heartbeat makes it ready again
    ],
)
def test_a_node_to_which_nothing_new_goes_takes_none(
    alice: Any, node: Any, changes: dict[str, str], told: list[str]
) -> None:
    identity, first = ask(alice).json()["id"], node()
    row = Node.objects.filter(pk=first.node_id)
    row.update(**changes)
    reply = call(first, identity, "begin")
    assert (reply.status_code, reply.json()["code"]) == (409, "stale_epoch")
    assert (ModelImport.objects.get().state, ModelImport.objects.get().tries) == ("QUEUED", 0)
    assert first.beat().imports == [identity for _ in told]
    row.update(intent="ACTIVE", liveness="READY")
    assert first.beat().imports == [identity]
    assert call(first, identity, "begin").status_code == 200
    row.update(**changes)
    assert first.beat().imports == [identity], "what it has it continues with"
    row.update(**changes)
    assert call(first, identity, "begin").status_code == 200


@pytest.mark.parametrize(
    ("revision", "commit", "said"),
    [
        ("main", "main", "40 hexadecimal digits"),
        ("main", "c" * 39, "40 hexadecimal digits"),
        ("main", "", "40 hexadecimal digits"),
        ("main", "C" * 40, "40 hexadecimal digits"),
        ("d" * 40, COMMIT, "was asked for"),
    ],
)
def test_a_commit_that_is_none_or_another_ends_the_import(
    alice: Any, node: Any, revision: str, commit: str, said: str
) -> None:
    identity, first = ask(alice, revision=revision).json()["id"], node()
    call(first, identity, "begin")
    reply = call(first, identity, "uploads", {"commit": commit, "tar_sha256": "0" * 64, "bytes": 1})
    assert (reply.status_code, reply.json()["errors"][0]["pointer"]) == (422, "/commit")
    seen = alice.get(f"/model-imports/{identity}").json()
    assert (seen["state"], said in seen["message"]) == ("FAILED", True)
    assert first.beat().imports == []


def test_the_commit_that_was_asked_for_is_taken(alice: Any, node: Any) -> None:
    identity, first = ask(alice, revision=COMMIT).json()["id"], node()
    call(first, identity, "begin")
    assert send_and_check(alice, first, identity, archive(files()))["state"] == "DONE"


def test_a_cancelled_import_is_taken_by_nobody(alice: Any, node: Any) -> None:
    identity = ask(alice).json()["id"]
    assert alice.call("DELETE", f"/model-imports/{identity}").json()["state"] == "CANCELLED"
    assert node().beat().imports == []
    assert alice.call("DELETE", f"/model-imports/{identity}").json()["code"] == "has_ended"


@pytest.mark.parametrize(
    "changes",
    [
        {"model": "tiny"},
        {"model": "../tiny"},
        {"model": "a/b/c"},
        {"revision": "-x"},
        {"name": ""},
        {"token": "x"},
    ],
)
def test_an_odd_question_is_refused(alice: Any, changes: dict[str, Any]) -> None:
    assert ask(alice, **changes).status_code == 422
    assert not ModelImport.objects.exists()


def test_import_without_a_hub_names_the_setting_and_others_see_nothing(
    alice: Any, person: Any, settings: Any
) -> None:
    identity = ask(alice).json()["id"]
    charlie = person("charlie", team="blue")
    assert charlie.get(f"/model-imports/{identity}").status_code == 404
    assert charlie.get("/model-imports").json()["data"] == []
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, hub_url="")
    reply = ask(alice)
    assert (reply.status_code, reply.json()["code"]) == (409, "no_hub")
    assert "OOLONG_HUB_URL" in reply.json()["detail"]


def test_the_command_begins_lists_and_cancels(oolong: Any) -> None:
    begun = oolong("model", "import", "acme/tiny", "--name", "t", "--no-wait")
    assert begun.code == 0 and begun.out.startswith("imp_")
    assert "acme/tiny" in oolong("model", "imports").out
    assert "CANCELLED" in oolong("model", "imports", "--cancel", begun.out.strip()).out
    assert oolong("model", "import", "tiny", "--name", "t").code == 2


def test_the_command_shows_one_model(oolong: Any) -> None:
    assert "/models/tiny" in oolong("model", "get", "tiny").out
    assert oolong("model", "get", "nobody").code == 2
