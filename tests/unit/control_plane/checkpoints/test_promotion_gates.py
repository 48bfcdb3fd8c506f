"""Protected aliases: they move by a role, or by an eval run of that very checkpoint that holds what their gate asks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from control_plane.accounts.models import Role
from control_plane.checkpoints.models import Checkpoint, CheckpointState
from control_plane.runs.events import transition_run
from control_plane.runs.models import Run
from oolong.contracts.lifecycle import RunStatus

SPEC = {"dataset": {"version": "sums@latest", "split": "eval"}, "evaluation": {"prompts": 32}}
GATE = {"alias": "prod", "spec": SPEC, "assertions": ["eval/accuracy >= 0.8", "eval/prompts >= 32"]}


@pytest.fixture
def checkpoint(alice: Any, clock: Any) -> Callable[..., Checkpoint]:
    def make(step: int = 20) -> Checkpoint:
        return Checkpoint.objects.create(
            project=alice.project, run_id="run_x", run_name="letters", attempt_id=f"att_{step}", attempt_number=1,
            node_id="node_1", step=step, manifest_sha256=hashlib.sha256(b"%d" % step).hexdigest(),
            tar_sha256="1" * 64, bytes=1, state=CheckpointState.STORED, created_at=clock.now,
        )  # fmt: skip

    return make


@pytest.fixture
def bob(person: Any) -> Any:
    """May promote, but not protected aliases."""
    return person("bob", role=Role.EDITOR)


def finish(run_id: str, accuracy: float, *, clock: Any, status: RunStatus = RunStatus.SUCCEEDED) -> None:
    """As its node would have brought it to its end."""
    run = Run.objects.get(pk=run_id)
    for step in (RunStatus.STARTING, RunStatus.RUNNING, RunStatus.FINALIZING, status):
        transition_run(run, step, now=clock.now)
    run.summary = {"evaluation": {"end": {"accuracy": accuracy, "prompts": 32}}}
    run.save(update_fields=["summary"])


def promote(who: Any, checkpoint: Checkpoint, **body: Any) -> Any:
    return who.call("PUT", "/checkpoint-aliases/prod", {"checkpoint": checkpoint.pk, **body})


def test_a_passed_gate_moves_the_alias_and_is_kept_as_evidence(
    alice: Any, bob: Any, clock: Any, checkpoint: Any
) -> None:
    mark = checkpoint()
    gate = alice.post("/checkpoint-gates", GATE)
    assert gate.status_code == 201, gate.content
    assert gate.json()["spec"]["dataset"]["version"].startswith("dsv_"), "what it names is pinned"
    run = bob.post("/checkpoint-gates/prod/runs", {"checkpoint": mark.pk}).json()
    assert (run["kind"], run["model"]["id"]) == ("eval", mark.pk)
    finish(run["id"], 0.9, clock=clock)
    moved = promote(bob, mark).json()
    assert moved["checkpoint"]["id"] == mark.pk
    assert moved["evidence"]["run"] == run["id"]
    assert {check["assertion"]: check["value"] for check in moved["evidence"]["checks"]} == {
        "eval/accuracy >= 0.8": 0.9, "eval/prompts >= 32": 32.0,
    }  # fmt: skip
    event = alice.get("/project/events").json()["data"][0]
    assert event["data"]["evidence"]["run"] == run["id"]


def test_without_a_run_the_refusal_names_the_command(alice: Any, bob: Any, checkpoint: Any) -> None:
    mark = checkpoint()
    alice.post("/checkpoint-gates", GATE)
    refused = promote(bob, mark)
    assert (refused.status_code, refused.json()["code"]) == (409, "gate_missing")
    assert refused.json()["command"] == f"oolong checkpoint gate run prod {mark.pk}"
    assert bob.get("/checkpoint-aliases").json()["data"] == []


def test_a_failed_gate_says_which_assertion_and_what_was_measured(
    alice: Any, bob: Any, clock: Any, checkpoint: Any
) -> None:
    mark = checkpoint()
    alice.post("/checkpoint-gates", GATE)
    run = bob.post("/checkpoint-gates/prod/runs", {"checkpoint": mark.pk}).json()
    finish(run["id"], 0.79, clock=clock)
    refused = promote(bob, mark)
    assert (refused.status_code, refused.json()["code"]) == (409, "gate_failed")
    assert "eval/accuracy >= 0.8 does not hold (0.79)" in refused.json()["detail"]
    assert [check["holds"] for check in refused.json()["result"]["checks"]] == [False, True]


def test_the_newest_run_decides_and_one_that_goes_on_decides_nothing(
    alice: Any, bob: Any, clock: Any, checkpoint: Any
) -> None:
    mark = checkpoint()
    alice.post("/checkpoint-gates", GATE)
    for accuracy, code in ((0.9, None), (0.5, "gate_failed")):
        run = bob.post("/checkpoint-gates/prod/runs", {"checkpoint": mark.pk}).json()
        assert promote(bob, mark).json()["code"] == "gate_missing", "it is queued still"
        finish(run["id"], accuracy, clock=clock)
        assert promote(bob, mark).json().get("code") == code
        clock.forward(1)


@pytest.mark.parametrize(
    "change",
    [
        {"model": {"checkpoint": "other"}},
        {"reward": {"name": "length", "options": {"full_until": 10, "zero_from": 20}}},
        {"dataset": {"version": "sums@1", "split": "train"}},
        {"evaluation": {"prompts": 31}},
        {"rollout": {"max_new_tokens": 500}},
    ],
)
def test_an_eval_run_of_something_else_is_no_evidence(
    alice: Any, bob: Any, clock: Any, checkpoint: Any, change: dict[str, Any]
) -> None:
    mark, other = checkpoint(20), checkpoint(40)
    alice.post("/checkpoint-gates", GATE)
    if "model" in change:
        change = {"model": {"checkpoint": other.pk}}
    run = bob.run(**{"kind": "eval", "name": "x", "model": {"checkpoint": mark.pk}, **SPEC, **change})
    finish(run["id"], 1.0, clock=clock)
    assert promote(bob, mark).json()["code"] == "gate_missing"


def test_an_eval_run_that_somebody_wrote_by_hand_counts_when_it_is_the_same(
    alice: Any, bob: Any, clock: Any, checkpoint: Any
) -> None:
    mark = checkpoint()
    alice.post("/checkpoint-gates", GATE)
    document = {"kind": "eval", "name": "by hand", "model": {"checkpoint": mark.pk}, **SPEC}
    run = bob.post("/runs", {"spec": document}).json()
    finish(run["id"], 1.0, clock=clock)
    assert promote(bob, mark).status_code == 200


def test_a_run_that_failed_has_measured_nothing(alice: Any, bob: Any, clock: Any, checkpoint: Any) -> None:
    mark = checkpoint()
    alice.post("/checkpoint-gates", GATE)
    run = bob.post("/checkpoint-gates/prod/runs", {"checkpoint": mark.pk}).json()
    finish(run["id"], 1.0, clock=clock, status=RunStatus.FAILED)
    refused = promote(bob, mark).json()
    assert refused["code"] == "gate_missing" and "FAILED" in refused["detail"]


def test_an_admin_passes_a_gate_only_with_force_and_an_audit_entry_says_so(
    alice: Any, bob: Any, checkpoint: Any
) -> None:
    mark = checkpoint()
    alice.post("/checkpoint-gates", GATE)
    refused = promote(alice, mark)
    assert (refused.status_code, refused.json()["code"]) == (409, "gate_missing")
    assert "force" in refused.json()["detail"], "whoever may override the gate reads how"
    assert "force" not in promote(bob, mark).json()["detail"]
    assert promote(bob, mark, force=True).json()["code"] == "missing_scope"
    assert alice.get("/checkpoint-aliases").json()["data"] == []

    moved = promote(alice, mark, force=True).json()
    assert (moved["evidence"]["passed"], moved["evidence"]["by_role"]) == (False, True)
    assert "no eval run" in moved["evidence"]["refusal"]
    (entry,) = alice.get("/audit?action=project.checkpoint_gate_overridden").json()["data"]
    assert (entry["data"]["alias"], entry["data"]["to"]) == ("prod", mark.pk)
    assert "no eval run" in entry["message"] and entry["actor"]["name"] == "alice"


def test_force_on_a_passed_gate_is_no_override(alice: Any, clock: Any, checkpoint: Any) -> None:
    mark = checkpoint()
    alice.post("/checkpoint-gates", GATE)
    run = alice.post("/checkpoint-gates/prod/runs", {"checkpoint": mark.pk}).json()
    finish(run["id"], 0.9, clock=clock)
    assert promote(alice, mark, force=True).json()["evidence"]["passed"] is True
    assert alice.get("/audit?action=project.checkpoint_gate_overridden").json()["data"] == []


def test_the_command_overrides_a_gate_with_force_alone_and_warns(
    alice: Any, oolong: Any, checkpoint: Any
) -> None:
    mark = checkpoint()
    alice.post("/checkpoint-gates", GATE)
    refused = oolong("checkpoint", "promote", mark.pk, "prod")
    assert refused.code == 6 and f"oolong checkpoint gate run prod {mark.pk}" in refused.err
    forced = oolong("checkpoint", "promote", mark.pk, "prod", "--force")
    assert forced.code == 0 and "warning: prod was moved although its gate is not passed" in forced.err


def test_the_command_promotes_only_what_the_named_run_and_dataset_made(
    alice: Any, oolong: Any, checkpoint: Any
) -> None:
    run = alice.run()
    mark = checkpoint()
    Checkpoint.objects.filter(pk=mark.pk).update(run_id=run["id"])
    right = ("--trained-by", run["id"], "--trained-on", run["dataset"]["id"])
    for wrong in (("--trained-by", "run_other"), ("--trained-on", "dsv_other")):
        refused = oolong("checkpoint", "promote", mark.pk, "candidate", *wrong)
        assert refused.code == 6 and wrong[1] in refused.err
        assert alice.get("/checkpoint-aliases").json()["data"] == []
    assert oolong("checkpoint", "promote", mark.pk, "candidate", *right).code == 0


def test_a_gate_is_set_and_lifted_by_a_role_only(alice: Any, bob: Any, checkpoint: Any) -> None:
    assert bob.post("/checkpoint-gates", GATE).json()["code"] == "missing_scope"
    alice.post("/checkpoint-gates", GATE)
    promote(alice, checkpoint(), force=True)
    for path in ("/checkpoint-gates/prod", "/checkpoint-aliases/prod"):
        assert bob.call("DELETE", path).json()["code"] == "missing_scope"
    assert alice.call("DELETE", "/checkpoint-gates/prod").status_code == 204
    assert promote(bob, checkpoint(40)).status_code == 200


@pytest.mark.parametrize(
    ("change", "pointer", "code"),
    [
        ({"assertions": ["eval/accuracy > high"]}, "/assertions/0", "not_understood"),
        ({"assertions": ["reward/mean > 0.5"]}, "/assertions/0", "unknown_metric"),
        ({"assertions": []}, "/assertions", "min_length"),
        ({"alias": "Prod"}, "/alias", "invalid"),
        ({"spec": {**SPEC, "model": {"base_model": "tiny"}}}, "/spec/model", "not_of_a_gate"),
        ({"spec": {"dataset": {"version": "none@1"}}}, "/spec/dataset/version", "unknown_dataset"),
        ({"spec": {}}, "/spec/dataset", "missing"),
    ],
)
def test_an_odd_gate_is_refused_and_not_set(alice: Any, change: Any, pointer: str, code: str) -> None:
    refused = alice.post("/checkpoint-gates", {**GATE, **change})
    assert refused.status_code == 422
    assert (pointer, code) in {(error["pointer"], error["code"]) for error in refused.json()["errors"]}
    assert alice.get("/checkpoint-gates").json()["data"] == []


def test_the_command_sets_shows_and_runs_a_gate(oolong: Any, clock: Any, checkpoint: Any) -> None:
    mark = checkpoint()
    Path("eval.yaml").write_text(
        "kind: eval\nname: x\nmodel: {checkpoint: y}\ndataset: {version: sums@1, split: eval}\n"
        "evaluation: {prompts: 32}\n"
    )
    assert (
        oolong("checkpoint", "gate", "set", "prod", "eval.yaml", "--assert", "eval/accuracy >= 0.8").code == 0
    )
    shown = oolong("checkpoint", "gate", "get", "prod", mark.pk)
    assert shown.code == 6 and f"run: oolong checkpoint gate run prod {mark.pk}" in shown.out
    started = oolong("checkpoint", "gate", "run", "prod", mark.pk, "--no-wait")
    finish(started.out.strip(), 0.9, clock=clock)
    assert oolong("checkpoint", "gate", "get", "prod", mark.pk).code == 0
    assert "eval/accuracy >= 0.8" in oolong("checkpoint", "gate", "list").out
