"""Tests of rewards: a run of kind reward_test, what it said, and projects that take only tested rewards."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from control_plane.accounts.models import Role
from control_plane.assets.storage import store
from control_plane.checkpoints.models import Checkpoint, CheckpointState
from control_plane.experiments.sweeps import reconcile_sweeps
from control_plane.fleet.models import Lease
from control_plane.runs import telemetry_hooks
from control_plane.runs.models import Attempt, Run
from oolong.contracts.lifecycle import EndReason

BODY = {"dataset": "sums@1", "split": "train", "model": "tiny", "reward": {"name": "exact_match"}}
SOURCE = "def score(prompt, completion, answer, bonus=0.0):\n    return float(answer in completion) + bonus\n"
REPORT = {
    "zero_variance_frac": None,
    "determinism": {"checked": 2, "differing": 0},
    "latency_seconds": {"p50": 0.001, "p95": 0.002, "max": 0.002},
    "result": "green",
    "reasons": [],
    "range": {"min": 0.0, "max": 1.0, "model_mean": None},
    "probes": {"empty": {"mean": 0.0, "max": 0.0, "success_frac": 0.0}},
}


def create(who: Any, **change: Any) -> Any:
    return who.post("/reward-tests", {**BODY, **change})


def say(test: Any, result: str) -> None:
    """What telemetry does with the summary of the test's controller."""
    run = Run.objects.get(pk=test["run"])
    telemetry_hooks.record_summary(
        run, Attempt(run=run, number=1), "reward_test", {**REPORT, "result": result}
    )


def test_canned_probes_take_no_slot_and_the_report_is_kept(alice: Any, node: Any, tick: Any) -> None:
    machine = node(slots=1)
    test = create(alice).json()
    assert (test["result"], test["report"], test["dataset"]["ref"]) == ("", None, "sums@1")
    tick()
    (attempt,) = machine.beat().attempts
    assert [job.name for job in attempt.jobs] == ["controller", "reward"]
    assert set(attempt.ports) == {"controller", "reward"}
    assert not Lease.objects.exists()
    machine.beat()
    run = Run.objects.get(pk=test["run"])
    assert (run.kind, run.status, run.priority) == ("reward_test", "RUNNING", 0)
    say(test, "amber")
    machine.exit(machine.job("controller"), EndReason.COMPLETED, shipped=10)
    for _ in range(3):
        machine.beat()
        tick()
    seen = alice.get(f"/reward-tests/{test['id']}").json()
    assert (seen["status"], seen["result"], seen["report"]["probes"]["empty"]["max"]) == (
        "SUCCEEDED",
        "amber",
        0.0,
    )
    assert [item["id"] for item in alice.get("/reward-tests?result=amber").json()["data"]] == [test["id"]]
    assert alice.get("/reward-tests?result=green").json()["data"] == []


def test_samples_of_the_model_take_one_slot(alice: Any, node: Any, tick: Any) -> None:
    machine = node(slots=1)
    create(alice, reward_test={"rows": 8, "samples": 2})
    tick()
    (attempt,) = machine.beat().attempts
    assert [job.name for job in attempt.jobs] == ["controller", "reward", "rollout-0"]
    assert Lease.objects.filter(released_at=None).count() == 1


def test_given_completions_reach_the_node_and_no_other(alice: Any, node: Any, tick: Any) -> None:
    machine, other = node(slots=1), None
    stored = [{"row": 0, "completion": "1"}, {"prompt": "q", "answer": "a", "completion": "b"}]
    assert create(alice, stored=stored).status_code == 201
    tick()
    (attempt,) = machine.beat().attempts
    artifact = attempt.sources["samples"]
    assert machine.get(f"/artifacts/{artifact.sha256}").status_code == 200
    other = node("node-2", slots=1)
    assert other.get(f"/artifacts/{artifact.sha256}").status_code == 404
    with store.open_blob(artifact.sha256) as file:
        assert file.read().count(b"\n") == 2


def test_a_test_that_left_no_report_has_failed_and_has_no_result(alice: Any, node: Any, tick: Any) -> None:
    machine = node(slots=1)
    test = create(alice).json()
    tick()
    machine.beat()
    machine.beat()
    machine.exit(machine.job("controller"), EndReason.COMPLETED, shipped=10)
    for _ in range(3):
        machine.beat()
        tick()
    seen = alice.get(f"/reward-tests/{test['id']}").json()
    assert (seen["status"], seen["result"]) == ("FAILED", "")


@pytest.mark.parametrize(
    ("change", "pointer", "code"),
    [
        ({"dataset": "none@1"}, "/dataset", "unknown_dataset"),
        ({"split": "exam"}, "/split", "unknown_split"),
        ({"model": "none"}, "/model", "unknown_model"),
        ({"reward": {"name": "nice"}}, "/reward/name", "unknown_reward"),
        ({"reward": {"function": "none@1"}}, "/reward/function", "unknown_function"),
        ({"reward_test": {"rows": 0}}, "/reward_test/rows", "greater_than_equal"),
        ({"reward_test": {"probes": []}}, "/reward_test/samples", "nothing_scored"),
        ({"reward_test": {"stored": "0" * 64}}, "/reward_test/stored", "invalid"),
        ({"stored": [{"completion": "x"}]}, "/stored/0", "any_of"),
        ({"stored": [{"row": 0, "completion": "x"}], "split": "exam"}, "/split", "unknown_split"),
    ],
)  # fmt: skip
def test_an_odd_test_is_refused_and_nothing_is_queued(
    alice: Any, change: Any, pointer: str, code: str
) -> None:
    before = {blob.sha256 for blob in store.listed()}
    refused = create(alice, **change)
    assert {blob.sha256 for blob in store.listed()} == before
    assert refused.status_code == 422
    assert (pointer, code) in {(error["pointer"], error["code"]) for error in refused.json()["errors"]}
    assert alice.get("/reward-tests").json()["data"] == [] and not Run.objects.exists()


def test_it_is_no_run_that_one_submits(alice: Any) -> None:
    refused = alice.post("/runs", {"spec": alice.spec(kind="reward_test", reward_test={"rows": 4})})
    assert [(e["pointer"], e["code"]) for e in refused.json()["errors"]] == [("/kind", "not_a_run")]


def test_a_viewer_reads_tests_and_starts_none_and_another_team_sees_nothing(alice: Any, person: Any) -> None:
    test = create(alice).json()
    viewer, charlie = person("vera", role=Role.VIEWER), person("charlie", team="blue")
    assert viewer.get(f"/reward-tests/{test['id']}").status_code == 200
    assert create(viewer).json()["code"] == "missing_scope"
    assert charlie.get(f"/reward-tests/{test['id']}").status_code == 404
    assert charlie.get("/reward-tests").json()["data"] == []


# --- projects that take only tested rewards


@pytest.fixture
def strict(alice: Any) -> Any:
    assert alice.call("PATCH", "/project", {"tested_rewards": True}).json()["tested_rewards"] is True
    return alice


def refusal(who: Any, **changes: Any) -> dict[str, Any]:
    reply = who.post("/runs", {"spec": who.spec(**changes)})
    assert reply.status_code == 422, reply.content
    [fault] = reply.json()["errors"]
    return dict(fault)


def test_a_run_is_taken_with_a_green_test_and_refused_without_naming_the_command(strict: Any) -> None:
    fault = refusal(strict)
    assert (fault["pointer"], fault["code"]) == ("/reward/name", "reward_not_tested")
    assert (
        "oolong reward test --dataset sums@1 --split train --model tiny --reward exact_match"
        in fault["message"]
    )
    test = create(strict).json()
    assert "never tested" in refusal(strict)["message"], "it has not ended yet"
    say(test, "green")
    strict.run()
    assert strict.post("/runs/validate", {"spec": strict.spec()}).json()["errors"] == []


@pytest.mark.parametrize("of", ["model", "checkpoint"])
def test_the_named_command_runs_as_printed_and_its_test_is_the_one_that_is_asked_for(
    strict: Any, oolong: Any, clock: Any, of: str
) -> None:
    """A recipe with options of its reward that starts from a warm start, as that of the demo."""
    changes: dict[str, Any] = {
        "reward": {"name": "exact_match", "options": {"extract": "regex", "pattern": "answer is ([0-9]+)$"}}
    }
    if of == "checkpoint":
        changes["model"] = {"checkpoint": stored_checkpoint(strict, clock).pk}
    command = refusal(strict, **changes)["message"].partition("never tested: ")[2]
    words = shlex.split(command)
    assert words[0] == "oolong"
    done = oolong(*words[1:], "--no-wait")
    assert done.code == 0, done.err
    test = strict.get(f"/reward-tests/{done.out.strip()}").json()
    say(test, "green")
    strict.run(**changes)


def test_samples_come_from_a_checkpoint(strict: Any, node: Any, tick: Any, clock: Any) -> None:
    mark = stored_checkpoint(strict, clock)
    body = {name: value for name, value in BODY.items() if name != "model"}
    test = strict.post("/reward-tests", {**body, "checkpoint": mark.pk, "reward_test": {"samples": 2}}).json()
    run = Run.objects.get(pk=test["run"])
    assert (run.initial_checkpoint, run.base_model) == (mark, None)
    machine = node(slots=1)
    tick()
    (attempt,) = machine.beat().attempts
    assert attempt.model.kind == "checkpoint" and attempt.model.sha256 == mark.tar_sha256, attempt.model


@pytest.mark.parametrize("given", [{}, {"model": "tiny", "checkpoint": "x"}])
def test_a_test_takes_a_base_model_or_a_checkpoint(alice: Any, given: Any) -> None:
    body = {name: value for name, value in BODY.items() if name != "model"}
    refused = alice.post("/reward-tests", {**body, **given})
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"] == "/model"


def stored_checkpoint(who: Any, clock: Any) -> Checkpoint:
    return Checkpoint.objects.create(
        project=who.project, run_id="run_x", run_name="warm start", attempt_id="att_x", attempt_number=1,
        node_id="node_1", step=20, manifest_sha256="2" * 64, tar_sha256="1" * 64, bytes=1,
        state=CheckpointState.STORED, created_at=clock.now,
    )  # fmt: skip


def test_the_newest_test_decides(strict: Any, clock: Any) -> None:
    for result in ("green", "amber"):
        clock.forward(1)
        say(create(strict).json(), result)
    assert "was amber" in refusal(strict)["message"]


@pytest.mark.parametrize(
    "reward_test",
    [{"probes": ["empty"]}, {"rows": 4}, {"max_error_rate": 0.5}, {"success_score": 2.0}],
)
def test_a_test_that_looked_away_is_no_proof(strict: Any, reward_test: Any) -> None:
    lenient = create(strict, reward_test=reward_test).json()
    say(lenient, "green")
    assert strict.get(f"/reward-tests/{lenient['id']}").json()["complete"] is False
    assert "none of its tests was complete" in refusal(strict)["message"]
    complete = create(strict, reward_test={"rows": 64, "max_error_rate": 0.001, "samples": 2}).json()
    say(complete, "green")
    assert strict.get(f"/reward-tests/{complete['id']}").json()["complete"] is True
    say(create(strict, reward_test=reward_test).json(), "red")
    strict.run()


def test_a_test_of_other_options_source_or_data_does_not_count(strict: Any) -> None:
    strict.post("/functions", {"name": "near", "kind": "reward", "source": SOURCE})
    say(create(strict, reward={"function": "near@1"}).json(), "green")
    strict.run(reward={"function": "near@latest"})
    strict.run(reward={"function": "near@1", "scale": 5.0})
    assert (
        refusal(strict, reward={"function": "near@1", "options": {"bonus": 1.0}})["code"]
        == "reward_not_tested"
    )
    strict.post("/functions", {"name": "near", "kind": "reward", "source": SOURCE + "# 2\n"})
    assert refusal(strict, reward={"function": "near@latest"})["pointer"] == "/reward/function"
    strict.dataset("more")
    assert (
        "more@1" in refusal(strict, dataset={"version": "more@1"}, reward={"function": "near@1"})["message"]
    )


def test_every_way_to_a_run_asks_for_the_green_test(alice: Any, clock: Any) -> None:
    run = alice.run()
    draft = alice.post("/runs", {"spec": alice.spec(), "draft": True}).json()
    alice.post("/run-templates", {"name": "mine", "spec": alice.spec()})
    body = {"spec": alice.spec(), "plan": {"parameters": [{"pointer": "/seed", "values": [1, 2]}]}}
    sweep = alice.post("/sweeps", {"name": "s", **body}).json()
    alice.call("PATCH", "/project", {"tested_rewards": True})
    Run.objects.filter(pk=run["id"]).update(status="FAILED")
    ways = [
        ("/runs", {"spec": {"name": "x"}, "template": "mine"}),
        ("/runs", {"spec": alice.spec(), "dedupe_key": "once"}),
        (f"/runs/{draft['id']}/submit", None),
        (f"/runs/{run['id']}/clone", {}),
        (f"/runs/{run['id']}/retry", None),
        ("/sweeps", {"name": "t", **body}),
    ]
    for path, given in ways:
        refused = alice.post(path, given)
        assert refused.status_code == 422, (path, refused.content)
        [code] = {error["code"] for error in refused.json()["errors"]}
        assert code == "reward_not_tested", path
    reconcile_sweeps(now=clock.forward(2))
    skipped = alice.get(f"/sweeps/{sweep['id']}/trials").json()["data"][0]["skipped"]
    assert "accepts only rewards with a green test" in skipped
    say(create(alice).json(), "green")
    for path, given in ways:
        assert alice.post(path, given).status_code in (201, 202), path


def test_a_run_that_waited_while_the_test_turned_red_does_not_start(
    strict: Any, node: Any, tick: Any, clock: Any
) -> None:
    say(create(strict).json(), "green")
    run = strict.run()
    clock.forward(1)
    say(create(strict).json(), "red")
    Run.objects.filter(kind="reward_test").update(status="SUCCEEDED")
    node()
    tick()
    ended = strict.see(run["id"])
    assert (ended["status"], ended["reason"]) == ("FAILED", "config_rejected")
    assert "oolong reward test" in ended["reason_message"]


def test_a_run_that_trains_goes_on_whatever_a_later_test_says(
    strict: Any, node: Any, start: Any, tick: Any, clock: Any
) -> None:
    say(create(strict).json(), "green")
    Run.objects.filter(kind="reward_test").update(status="SUCCEEDED")
    machine = node()
    run = start(machine)
    clock.forward(1)
    say(create(strict).json(), "red")
    Run.objects.filter(kind="reward_test").update(status="SUCCEEDED")
    machine.exit(machine.job("trainer"), None, code=1)
    for _ in range(4):
        machine.ship_all()
        machine.beat()
        tick(10)
    assert strict.see(run["id"])["attempt_number"] == 2


def test_what_is_no_rl_run_needs_no_test(strict: Any) -> None:
    strict.run(kind="eval", dataset={"version": "sums@1", "split": "eval"}, evaluation={"prompts": 8})


def test_the_command_tests_and_shows(oolong: Any, alice: Any) -> None:
    Path("s.jsonl").write_text('{"row": 0, "completion": "1"}\n')
    common = ("reward", "test", "--dataset", "sums@1", "--model", "tiny")
    made = oolong(
        *common, "--stored", "s.jsonl", "--option", "extract=whole", "--max-new-tokens", "112", "--no-wait"
    )
    assert made.code == 0, made.err
    assert Run.objects.get(kind="reward_test").spec["reward_test"]["max_new_tokens"] == 112
    say(alice.get(f"/reward-tests/{made.out.strip()}").json(), "red")
    assert "exact_match on sums@1: red" in oolong("reward", "get", made.out.strip()).out
    assert "red" in oolong("reward", "list").out
    assert oolong(*common, "--option", "oops").code == 2
    assert oolong("project", "set", "--tested-rewards", "on").code == 0
    assert oolong("project", "set").code == 2
