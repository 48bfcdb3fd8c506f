"""The checkpoint registry: names, links, lineage, export, and that nothing needed is ever freed."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from control_plane.accounts.models import ApiToken, Role, User
from control_plane.assets.storage import store
from control_plane.checkpoints import registry
from control_plane.checkpoints.models import Checkpoint, CheckpointState
from control_plane.runs import maintenance, submission
from control_plane.runs.maintenance import clean_up
from control_plane.runs.models import Attempt, Run
from tests.support.checkpoint_tars import pack_checkpoint

FILES = {
    "hf/config.json": b'{"model_type": "qwen3"}',
    "hf/model.safetensors": b"\x00" * 3000,
    "trainer.json": b"{}",
}


def checkpoint_tar(marker: str = "", more: dict[str, bytes] | None = None) -> bytes:
    files = {**FILES, **(more or {}), "trainer.json": json.dumps({"marker": marker}).encode()}
    return pack_checkpoint(files)


@pytest.fixture
def stored(alice: Any, clock: Any) -> Any:
    """Makes STORED checkpoints of ended runs of Alice's, each with bytes of its own."""

    def make(
        run: str = "run_x",
        *,
        step: int = 20,
        name: str = "letters",
        more: dict[str, bytes] | None = None,
        **changes: Any,
    ) -> Checkpoint:
        data = checkpoint_tar(f"{run} {step}", more)
        blob = store.put([data])
        given = {"metrics": {"reward_mean": step / 100}, "stored_at": clock.now, **changes}
        return Checkpoint.objects.create(
            project=alice.project, run_id=run, run_name=name, attempt_id=f"att_{run}", attempt_number=1,
            node_id="node_1", step=step, manifest_sha256=hashlib.sha256(f"{run}{step}".encode()).hexdigest(),
            tar_sha256=blob.sha256, bytes=blob.bytes, state=CheckpointState.STORED, created_at=clock.now, **given,
        )  # fmt: skip

    return make


def set_alias(person: Any, name: str, reference: str, **changes: Any) -> Any:
    return person.call("PUT", f"/checkpoint-aliases/{name}", {"checkpoint": reference, **changes})


# --- names ------------------------------------------------------------------------------------------------


def test_an_alias_means_one_checkpoint_and_moves(alice: Any, stored: Any) -> None:
    first, second = stored(step=20), stored(step=40)
    assert set_alias(alice, "best", first.pk).json()["checkpoint"]["aliases"] == ["best"]
    assert set_alias(alice, "best", "letters@latest").json()["checkpoint"]["id"] == second.pk
    assert alice.get("/checkpoints/resolve?ref=best").json()["id"] == second.pk
    assert alice.get(f"/checkpoints/{first.pk}").json()["aliases"] == []
    moves = [event["data"] for event in alice.get("/project/events").json()["data"]]
    assert [(move["from"], move["to"]) for move in moves] == [(first.pk, second.pk), (None, first.pk)]


@pytest.mark.parametrize(
    ("reference", "step"),
    [("run_x@20", 20), ("letters@20", 20), ("letters@latest", 40), ("run_x@latest", 40), ("letters@30", None),
     ("nobody@latest", None), ("prod", None), ("ckpt_none", None), ("letters@x", None), ("", None)],
)  # fmt: skip
def test_a_checkpoint_is_found_by_its_run_and_step(
    alice: Any, stored: Any, reference: str, step: int | None
) -> None:
    stored(step=20), stored(step=40)
    reply = alice.get(f"/checkpoints/resolve?ref={reference}")
    assert (reply.json()["step"] if reply.status_code == 200 else None) == step


def test_an_alias_that_is_no_name_is_refused_with_the_alias(alice: Any, stored: Any) -> None:
    refused = set_alias(alice, "Best", stored(step=20).pk)
    (error,) = refused.json()["errors"]
    assert (refused.status_code, error["pointer"]) == (422, "/alias")
    assert "'Best' is no name here: small letters" in error["message"]


def test_two_movers_of_an_alias_do_not_undo_each_other(alice: Any, stored: Any) -> None:
    first, second = stored(step=1), stored(step=2)
    set_alias(alice, "best", first.pk)
    assert set_alias(alice, "best", second.pk, expected=first.pk).status_code == 200
    late = set_alias(alice, "best", first.pk, expected=first.pk)
    assert (late.status_code, late.json()["code"]) == (409, "alias_moved")


def test_a_protected_alias_moves_only_for_an_admin(alice: Any, person: Any, stored: Any) -> None:
    bob = person("bob", role=Role.EDITOR)
    first, second = stored(step=1), stored(step=2)
    assert set_alias(bob, "best", first.pk).status_code == 200
    assert set_alias(bob, "best", first.pk, protected=True).status_code == 403
    assert set_alias(alice, "best", first.pk, protected=True).json()["protected"] is True
    for refused in (
        set_alias(bob, "best", second.pk), set_alias(bob, "best", second.pk, protected=False),
        bob.call("DELETE", "/checkpoint-aliases/best"),
    ):  # fmt: skip
        assert (refused.status_code, refused.json()["code"]) == (403, "missing_scope")
    assert set_alias(alice, "best", second.pk).json()["protected"] is True
    assert alice.call("DELETE", "/checkpoint-aliases/best").status_code == 204
    assert alice.call("DELETE", "/checkpoint-aliases/best").status_code == 404


@pytest.mark.parametrize("name", ["Best", "9", "a b", "x" * 61])
def test_an_odd_alias_name_is_refused(alice: Any, stored: Any, name: str) -> None:
    assert set_alias(alice, name, stored().pk).status_code == 422


def test_an_alias_of_nothing_is_refused(alice: Any, person: Any, stored: Any) -> None:
    assert set_alias(alice, "best", "ckpt_none").status_code == 404
    assert set_alias(person("charlie", team="blue"), "best", stored().pk).status_code == 404


def test_a_run_may_start_from_an_alias_and_is_pinned_to_the_checkpoint(alice: Any, stored: Any) -> None:
    checkpoint = stored()
    set_alias(alice, "prod", checkpoint.pk)
    run = alice.run(model={"checkpoint": "prod"})
    assert run["spec"]["model"]["checkpoint"] == checkpoint.pk


def test_a_checkpoint_has_a_kind_that_lists_are_filtered_by(alice: Any, stored: Any) -> None:
    state, weights = stored("run_rl"), stored("run_sft", kind="weights")

    def listed(kind: str) -> Any:
        return alice.get(f"/checkpoints?kind={kind}")

    assert [found["id"] for found in listed("weights").json()["data"]] == [weights.pk]
    assert [(found["id"], found["kind"]) for found in listed("training").json()["data"]] == [
        (state.pk, "training")
    ]
    odd = listed("adapter")
    assert (odd.status_code, odd.json()["detail"]) == (422, "kind='adapter': one of training, weights")
    [node] = alice.get(f"/checkpoints/{weights.pk}/lineage").json()["nodes"]
    assert node["checkpoint_kind"] == "weights"
    assert "| kind of checkpoint | weights |" in alice.get(f"/checkpoints/{weights.pk}/card").content.decode()


def test_a_list_is_filtered_by_alias_and_by_the_name_of_a_run(alice: Any, stored: Any) -> None:
    first, second = stored("run_x", name="letters"), stored("run_y", name="sums")
    set_alias(alice, "prod", first.pk)

    def ids(query: str) -> list[str]:
        return [found["id"] for found in alice.get(f"/checkpoints?{query}").json()["data"]]

    assert ids("alias=prod") == [first.pk]
    assert ids("alias=nothing") == []
    assert ids("run=sums") == ids("run=run_y") == [second.pk]
    assert ids("run=sums&alias=prod") == []


def test_a_warm_start_leaves_weights_from_which_nothing_goes_on(
    alice: Any, node: Any, start: Any, tick: Any, commit_checkpoint: Any
) -> None:
    rows = [{"question": f"{n}+1", "answer": n, "demo": str(n + 1), "split": "train"} for n in range(64)]
    alice.dataset("demos", rows, completion_column="demo")
    machine = node(slots=1)
    sft = {
        "steps": 2,
        "validation_split": None,
        "required_greedy_accuracy": None,
        "stop_at_greedy_accuracy": None,
    }
    run = start(machine, kind="sft", dataset={"version": "demos@1"}, sft=sft)
    attempt = Attempt.objects.get()
    for train_step, planned in ((0, 2), (2, 2), (3, 4), (4, 4)):  # a second seed's steps follow the first's
        Run.objects.update(train_step=train_step)
        assert alice.get(f"/runs/{run['id']}").json()["total_train_steps"] == planned
    commit_checkpoint(run["id"], attempt.pk, step=2, final=True)
    machine.upload_checkpoint(attempt.pk, attempt.epoch, step=2, final=True)
    checkpoint = Checkpoint.objects.get()
    assert (checkpoint.kind, checkpoint.state) == ("weights", "STORED")
    Run.objects.update(status="FAILED")
    Attempt.objects.update(status="ENDED")
    retry = alice.post(f"/runs/{run['id']}/retry").json()
    assert Run.objects.get(pk=retry["id"]).resume_checkpoint is None
    fork = alice.post(f"/runs/{run['id']}/clone", {"checkpoint": "latest"}).json()
    assert fork["spec"]["model"]["checkpoint"] == checkpoint.pk


# --- downloads --------------------------------------------------------------------------------------------


def test_a_signed_link_downloads_without_a_token_until_it_expires(
    alice: Any, stored: Any, clock: Any
) -> None:
    checkpoint = stored()
    link = alice.post(f"/checkpoints/{checkpoint.pk}/links", {"expires_in_seconds": 60}).json()
    path = link["url"].removeprefix("http://testserver")
    whole = Client().get(path)
    assert b"".join(whole.streaming_content) == Path(store.presign(checkpoint.tar_sha256)).read_bytes()
    part = Client().get(path, headers={"range": "bytes=0-99"})
    assert (part.status_code, part["Content-Range"]) == (206, f"bytes 0-99/{checkpoint.bytes}")
    part.close()
    assert Client().get(path[:-1] + ("A" if path[-1] != "A" else "B")).status_code == 404
    clock.forward(61)
    late = Client().get(path)
    assert (late.status_code, late.json()["code"]) == (410, "link_expired")


def local(url: str) -> str:
    return url.removeprefix("http://testserver")


def test_a_link_has_a_manifest_by_which_one_file_is_fetched_alone(alice: Any, stored: Any) -> None:
    link = alice.post(f"/checkpoints/{stored().pk}/links").json()
    listed = Client().get(local(link["files_url"])).json()
    config = next(file for file in listed["files"] if file["name"] == "hf/config.json")
    first, last = config["offset"], config["offset"] + config["bytes"] - 1
    part = Client().get(local(link["url"]), headers={"range": f"bytes={first}-{last}"})
    assert b"".join(part.streaming_content) == FILES["hf/config.json"]
    for wrong in (f"bytes={link['bytes']}-", "bytes=9-3"):
        refused = Client().get(local(link["url"]), headers={"range": wrong})
        assert (refused.status_code, refused.json()["code"]) == (416, "range")
        assert refused["Content-Range"] == f"bytes */{link['bytes']}"
    forged = local(link["files_url"]).replace("/files", "x/files")
    assert Client().get(forged).json()["code"] == "not_found"


@pytest.mark.parametrize("how", ["left", "deactivated", "revoked", "narrowed"])
def test_a_link_ends_with_the_power_of_who_made_it(alice: Any, person: Any, stored: Any, how: str) -> None:
    bob, checkpoint = person("bob", role=Role.VIEWER), stored()
    url = local(bob.post(f"/checkpoints/{checkpoint.pk}/links").json()["url"])
    kept = local(alice.post(f"/checkpoints/{checkpoint.pk}/links").json()["url"])
    token = ApiToken.objects.get(user=bob.user)
    if how == "left":
        assert alice.call("DELETE", f"/members/{bob.user.pk}").status_code == 204
    elif how == "deactivated":
        User.objects.filter(pk=bob.user.pk).update(is_active=False)
    elif how == "revoked":
        assert alice.call("DELETE", f"/tokens/{token.pk}").status_code == 204
    else:
        ApiToken.objects.filter(pk=token.pk).update(scopes=["runs:read"])
    for path in (url, f"{url}/files"):
        refused = Client().get(path)
        assert (refused.status_code, refused.json()["code"]) == (410, "link_revoked")
    answer = Client().get(kept)
    assert answer.status_code == 200
    answer.close()


def test_a_link_works_no_longer_than_the_token_that_made_it(alice: Any, stored: Any, clock: Any) -> None:
    ends = clock.now + timedelta(seconds=90)
    ApiToken.objects.filter(user=alice.user).update(expires_at=ends)
    link = alice.post(f"/checkpoints/{stored().pk}/links", {"expires_in_seconds": 3600}).json()
    assert datetime.fromisoformat(link["expires_at"]) == ends
    clock.forward(91)
    assert Client().get(local(link["url"])).json()["code"] == "link_expired"


@pytest.mark.parametrize("seconds", [0, 59, 10**9, "soon"])
def test_a_link_of_no_or_endless_life_is_refused(alice: Any, stored: Any, seconds: Any) -> None:
    body = {"expires_in_seconds": seconds}
    assert alice.post(f"/checkpoints/{stored().pk}/links", body).status_code == 422


def test_the_list_of_files_says_where_each_lies_in_the_download(alice: Any, stored: Any) -> None:
    checkpoint = stored()
    listed = alice.get(f"/checkpoints/{checkpoint.pk}/files").json()
    config = next(file for file in listed["files"] if file["name"] == "hf/config.json")
    last = config["offset"] + config["bytes"] - 1
    part = alice.get(f"/checkpoints/{checkpoint.pk}/download", Range=f"bytes={config['offset']}-{last}")
    data = b"".join(part.streaming_content)
    assert data == FILES["hf/config.json"]
    assert hashlib.sha256(data).hexdigest() == config["sha256"]


def test_checkpoint_only_on_its_node_or_deleted_cannot_be_downloaded(alice: Any, stored: Any) -> None:
    checkpoint = stored()
    for state, status, code in (("LOCAL", 409, "not_stored"), ("DELETED", 410, "deleted")):
        Checkpoint.objects.update(state=state)
        for path in ("files", "download"):
            reply = alice.get(f"/checkpoints/{checkpoint.pk}/{path}")
            assert (reply.status_code, reply.json()["code"]) == (status, code)
        assert alice.post(f"/checkpoints/{checkpoint.pk}/links").status_code == status


# --- lineage ----------------------------------------------------------------------------------------------


def test_the_lineage_leads_from_model_and_dataset_to_the_run_that_starts_from_it(
    alice: Any, node: Any, start: Any, commit_checkpoint: Any, person: Any
) -> None:
    machine = node()
    run = start(machine, name="first")
    attempt = Attempt.objects.get()
    commit_checkpoint(run["id"], attempt.pk, step=1)
    machine.upload_checkpoint(attempt.pk, attempt.epoch, step=1)
    checkpoint = Checkpoint.objects.get()
    child = alice.run(name="second", model={"checkpoint": checkpoint.pk})
    graph = alice.get(f"/checkpoints/{checkpoint.pk}/lineage").json()
    names = {found["id"]: found["name"] for found in graph["nodes"]}
    edges = {(names[edge["from"]], names[edge["to"]], edge["kind"]) for edge in graph["edges"]}
    assert edges == {
        ("tiny", "first", "starts_from"), ("sums@1", "first", "trained_on"), ("first", "first step 1", "left"),
        ("first step 1", "second", "starts_from"), ("sums@1", "second", "trained_on"),
    }  # fmt: skip
    assert child["id"] in names
    card = alice.get(f"/checkpoints/{checkpoint.pk}/card").content.decode()
    assert "first" in card and "sums@1" in card and '"kind": "rl"' in card


# --- retention --------------------------------------------------------------------------------------------


def plan(alice: Any, **policy: Any) -> Any:
    return alice.post("/checkpoint-retention/plan", policy).json()


def test_a_dry_run_frees_nothing_and_applying_frees_exactly_that(
    alice: Any, stored: Any, django_capture_on_commit_callbacks: Any
) -> None:
    old, new = stored(step=20), stored(step=40)
    alice.call("PUT", "/checkpoint-retention", {"keep_last": 1})
    seen = plan(alice)
    assert ([found["id"] for found in seen["free"]], seen["free_bytes"]) == ([old.pk], old.bytes)
    assert Checkpoint.objects.filter(state="STORED").count() == 2 and store.has_blob(old.tar_sha256)
    with django_capture_on_commit_callbacks(execute=True):
        assert alice.post("/checkpoint-retention/apply").json() == seen
    assert not store.has_blob(old.tar_sha256) and store.has_blob(new.tar_sha256)
    assert alice.get(f"/checkpoints/{old.pk}").json()["state"] == "DELETED"
    assert plan(alice)["free"] == []


def test_bytes_that_another_checkpoint_shares_stay(
    alice: Any, stored: Any, django_capture_on_commit_callbacks: Any
) -> None:
    old, new = stored(step=20), stored(step=40)
    Checkpoint.objects.filter(pk=new.pk).update(tar_sha256=old.tar_sha256)
    alice.call("PUT", "/checkpoint-retention", {"keep_last": 1})
    with django_capture_on_commit_callbacks(execute=True):
        alice.post("/checkpoint-retention/apply")
    assert Checkpoint.objects.get(pk=old.pk).state == "DELETED" and store.has_blob(old.tar_sha256)


def test_bytes_that_somebody_uploaded_again_stay(
    alice: Any, stored: Any, django_capture_on_commit_callbacks: Any
) -> None:
    old, _ = stored(step=20), stored(step=40)
    with store.open_blob(old.tar_sha256) as file:
        alice.upload(file.read(), "model")
    alice.call("PUT", "/checkpoint-retention", {"keep_last": 1})
    with django_capture_on_commit_callbacks(execute=True):
        alice.post("/checkpoint-retention/apply")
    assert Checkpoint.objects.get(pk=old.pk).state == "DELETED" and store.has_blob(old.tar_sha256)


def test_checkpoint_of_an_alias_pin_or_run_is_never_deleted(alice: Any, stored: Any) -> None:
    aliased, pinned, base, loose = (stored(f"run_{n}", step=1) for n in range(4))
    stored("run_3", step=2)
    for run in ("run_0", "run_1", "run_2"):
        stored(run, step=2)
    set_alias(alice, "prod", aliased.pk)
    alice.call("PATCH", f"/checkpoints/{pinned.pk}", {"pinned": True})
    child = alice.run(model={"checkpoint": base.pk})
    seen = plan(alice, keep_last=1)
    assert [found["id"] for found in seen["free"]] == [loose.pk]
    why = {found["id"]: found["keep_reasons"] for found in seen["keep"]}
    assert why[aliased.pk] == ["alias prod"]
    assert why[pinned.pk] == ["pinned"]
    assert why[base.pk] == [f"run 'a run' ({child['id']}) starts from it"]


def test_an_evaluation_or_a_chat_needs_its_checkpoint_while_it_lasts(alice: Any, stored: Any) -> None:
    scored, talked = stored("run_0", step=1), stored("run_1", step=1)
    stored("run_0", step=2), stored("run_1", step=2)
    split = {"version": "sums@1", "split": "eval"}
    alice.run(kind="eval", model={"checkpoint": scored.pk}, dataset=split, evaluation={"prompts": 8})
    alice.post("/playgrounds", {"models": [{"checkpoint": talked.pk}]})
    assert plan(alice, keep_last=1)["free"] == []
    Run.objects.update(status="SUCCEEDED")
    assert {found["id"] for found in plan(alice, keep_last=1)["free"]} == {scored.pk, talked.pk}


def test_what_a_live_run_would_resume_from_stays_and_is_deleted_once_it_has_ended(
    alice: Any, node: Any, start: Any, commit_checkpoint: Any, clock: Any
) -> None:
    machine = node()
    run = start(machine)
    attempt = Attempt.objects.get()
    for step in (1, 2):
        commit_checkpoint(run["id"], attempt.pk, step=step)
        machine.upload_checkpoint(attempt.pk, attempt.epoch, step=step)
    seen = plan(alice, every_steps=100)
    assert [found["keep_reasons"] for found in seen["keep"]] == [
        [f"the active run {run['id']} would resume from it"]
    ]
    Run.objects.update(status="FAILED")
    assert len(plan(alice, every_steps=100)["free"]) == 2
    retry = alice.post(f"/runs/{run['id']}/retry").json()
    kept = plan(alice, every_steps=100)["keep"]
    assert [found["keep_reasons"] for found in kept] == [[f"run 'a run' ({retry['id']}) resumes from it"]]


def test_a_checkpoint_that_is_deleted_between_check_and_submission_starts_no_run(
    alice: Any, stored: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = stored()
    resolve = submission.resolve_spec

    def freed_after(*arguments: Any) -> Any:
        found = resolve(*arguments)
        Checkpoint.objects.update(state="DELETED")
        return found

    monkeypatch.setattr(submission, "resolve_spec", freed_after)
    reply = alice.post("/runs", {"spec": alice.spec(model={"checkpoint": checkpoint.pk})})
    assert (reply.status_code, reply.json()["code"]) == (409, "deleted")
    assert not Run.objects.exists()


def test_a_policy_may_be_of_one_kind(alice: Any, stored: Any) -> None:
    old_state, old_weights = stored("run_rl", step=1), stored("run_sft", step=1, kind="weights")
    stored("run_rl", step=2), stored("run_sft", step=2, kind="weights")
    assert (
        alice.call("PUT", "/checkpoint-retention", {"keep_last": 1, "kinds": ["training"]}).status_code == 200
    )
    assert alice.get("/checkpoint-retention").json()["kinds"] == ["training"]
    seen = alice.post("/checkpoint-retention/plan").json()
    assert [found["id"] for found in seen["free"]] == [old_state.pk]
    why = {found["id"]: found["keep_reasons"] for found in seen["keep"]}
    assert why[old_weights.pk] == ["the policy frees no checkpoint of kind weights"]


def test_an_automatic_policy_is_applied_by_the_clean_up_and_a_manual_one_is_not(
    alice: Any, stored: Any, clock: Any
) -> None:
    old, _ = stored(step=1), stored(step=2)
    for automatic, state in ((False, "STORED"), (True, "DELETED")):
        alice.call("PUT", "/checkpoint-retention", {"keep_last": 1, "automatic": automatic})
        clean_up(now=clock.now)
        assert Checkpoint.objects.get(pk=old.pk).state == state


def test_bytes_that_the_storage_did_not_delete_go_at_a_later_clean_up(
    alice: Any,
    stored: Any,
    clock: Any,
    monkeypatch: pytest.MonkeyPatch,
    django_capture_on_commit_callbacks: Any,
) -> None:
    old, older = stored(step=2), stored(step=1)
    kept = stored(step=3)
    alice.call("PUT", "/checkpoint-retention", {"keep_last": 1, "automatic": True})

    def away(*_: Any) -> None:
        raise store.StorageUnavailable("it is away")

    with monkeypatch.context() as patch:
        patch.setattr(store.storage(), "delete", away)
        with django_capture_on_commit_callbacks(execute=True):
            clean_up(now=clock.now)
    assert Checkpoint.objects.filter(state="DELETED").count() == 2
    assert store.has_blob(old.tar_sha256) and store.has_blob(older.tar_sha256)
    clean_up(now=clock.now)
    assert not store.has_blob(old.tar_sha256) and not store.has_blob(older.tar_sha256)
    assert store.has_blob(kept.tar_sha256)


def test_a_project_whose_retention_breaks_holds_up_no_other(
    alice: Any, person: Any, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    people = [alice, person("charlie", team="blue", role=Role.ADMIN)]
    for one in people:
        reply = one.call("PUT", "/checkpoint-retention", {"keep_last": 1, "automatic": True})
        assert reply.status_code == 200
    asked: list[str] = []

    def broken(project: Any, *_: Any, **__: Any) -> None:
        asked.append(project.pk)
        raise store.StorageUnavailable("it is away")

    monkeypatch.setattr(registry, "apply_retention", broken)
    clean_up(now=clock.now)
    assert sorted(asked) == sorted(one.project.pk for one in people)


def test_a_step_of_the_clean_up_that_breaks_holds_up_no_other(
    clock: Any, monkeypatch: pytest.MonkeyPatch, db: None
) -> None:
    done: list[str] = []

    def broken(**_: Any) -> None:
        raise store.StorageUnavailable("it is away")

    monkeypatch.setattr(maintenance, "apply_automatic_retention", broken)
    monkeypatch.setattr(store, "drop_unfinished", lambda **_: done.append("dropped"))
    clean_up(now=clock.now)
    assert done == ["dropped"]


@pytest.mark.parametrize(
    "policy",
    [
        {"keep_last": 0},
        {"kinds": ["adapter"]},
        {"kinds": "training"},
        {"best_mode": "most"},
        {"keep_lst": 1},
        {"ttl_days": -1},
        {"every_steps": "x"},
    ],
)
def test_an_odd_policy_is_refused_and_not_set(alice: Any, policy: dict[str, Any]) -> None:
    for method, path in (("PUT", "/checkpoint-retention"), ("POST", "/checkpoint-retention/plan")):
        assert alice.call(method, path, policy).status_code == 422
    assert alice.get("/checkpoint-retention").json()["keep_last"] is None


def test_only_an_admin_frees(alice: Any, person: Any) -> None:
    bob = person("bob", role=Role.EDITOR)
    assert bob.post("/checkpoint-retention/apply").status_code == 403
    assert bob.call("PUT", "/checkpoint-retention", {"keep_last": 1}).status_code == 403
    assert bob.post("/checkpoint-retention/plan", {"keep_last": 1}).status_code == 200


def test_what_is_freed_cannot_be_named_or_pinned_or_trained_from(alice: Any, stored: Any) -> None:
    checkpoint = stored()
    Checkpoint.objects.update(state="DELETED")
    assert set_alias(alice, "best", checkpoint.pk).json()["code"] == "deleted"
    assert alice.call("PATCH", f"/checkpoints/{checkpoint.pk}", {"pinned": True}).status_code == 409
    spec = alice.spec(model={"checkpoint": checkpoint.pk})
    assert alice.post("/runs/validate", {"spec": spec}).json()["errors"][0]["code"] == "deleted"


# --- the command ------------------------------------------------------------------------------------------


def test_the_command_promotes_and_exports_a_model_that_verifies(oolong: Any, stored: Any) -> None:
    checkpoint = stored()
    assert checkpoint.pk in oolong("checkpoint", "promote", "letters@20", "best").out
    assert "\tbest\n" in oolong("checkpoint", "list", "--kind", "training", "--state", "STORED").out
    assert "letters" not in oolong("checkpoint", "list", "--kind", "weights").out
    assert oolong("checkpoint", "list", "--kind", "adapter").code == 2
    assert oolong("checkpoint", "export", "best", "model").code == 0
    assert {path.name for path in Path("model").iterdir()} == {
        "config.json",
        "model.safetensors",
        "README.md",
    }
    assert Path("model/model.safetensors").read_bytes() == FILES["hf/model.safetensors"]
    assert "letters, step 20" in Path("model/README.md").read_text()
    assert oolong("checkpoint", "download", "best", "-o", "all.tar").code == 0
    assert hashlib.sha256(Path("all.tar").read_bytes()).hexdigest() == checkpoint.tar_sha256


def test_an_export_with_a_wrong_byte_is_an_error_and_leaves_no_such_file(oolong: Any, stored: Any) -> None:
    path = Path(store.presign(stored().tar_sha256))
    path.write_bytes(path.read_bytes().replace(b"qwen3", b"qwen4"))
    done = oolong("checkpoint", "export", "letters@20", "model")
    assert done.code == 1 and "hf/config.json: sha256 is" in done.err
    assert not Path("model/config.json").exists()


def test_merging_the_checkpoint_of_a_run_without_lora_is_an_error(oolong: Any, stored: Any) -> None:
    checkpoint = stored()
    done = oolong("checkpoint", "export", "letters@20", "model", "--merged")
    assert done.code == 2 and f"{checkpoint.pk} holds a whole model" in done.err
    assert not Path("model").exists()


def test_the_command_shows_what_would_be_freed_before_it_frees(oolong: Any, stored: Any) -> None:
    old, _ = stored(step=1), stored(step=2)
    assert f"would delete\t{old.pk}" in oolong("checkpoint", "retention", "--keep-last", "1", "--dry-run").out
    assert "would delete" not in oolong("checkpoint", "prune").out
    assert oolong("checkpoint", "retention", "--keep-last", "1").code == 0
    assert oolong("checkpoint", "pin", old.pk).out == f"{old.pk} is pinned\n"
    assert f"keep\t{old.pk}" in oolong("checkpoint", "prune", "--apply").out
    oolong("checkpoint", "unpin", old.pk)
    assert f"deleted\t{old.pk}" in oolong("checkpoint", "prune", "--apply").out
    assert oolong("checkpoint", "retention").code == 2
    assert oolong("checkpoint", "get", "nothing@1").code == 2
