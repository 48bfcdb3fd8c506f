"""A dry run of a spec: what it would take, where it would stand, and what looks odd. Nothing is written."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from control_plane.runs.models import Run
from oolong.contracts.lifecycle import RunStatus


def plan(person: Any, **changes: Any) -> Any:
    reply = person.post("/runs/plan", {"spec": person.spec(**changes)})
    assert reply.status_code == 200, reply.content
    return reply.json()


def test_a_plan_names_jobs_slots_tokens_and_place(alice: Any, node: Any) -> None:
    node(slots=2)
    shown = plan(alice, trainer={"total_train_steps": 10, "groups_per_step": 32})
    assert shown["valid"] and shown["resolved"]["model"]["base_model"].startswith("bm_")
    made = shown["plan"]
    assert [job["name"] for job in made["jobs"]] == ["controller", "reward", "rollout-0", "trainer"]
    assert (made["slots_needed"], made["groups"]) == (2, 320)
    assert made["tokens"] == {"generated_at_most": 320 * 8 * 112}
    assert made["placement"]["starts_now"] and made["placement"]["position"] is None
    assert made["time"] == {"seconds": None, "seconds_p90": None, "gpu_hours": None, "from_runs": 0}
    assert not Run.objects.exists()


def test_a_plan_says_why_it_would_wait(alice: Any, node: Any, start: Any) -> None:
    start(node(slots=2))
    placement = plan(alice)["plan"]["placement"]
    assert placement["starts_now"] is False and placement["position"] == 1
    assert placement["code"] == "capacity" and "0 of 2 are free" in placement["message"]


def test_the_time_is_the_median_of_runs_of_this_shape(alice: Any, clock: Any) -> None:
    for seconds, engines in ((600, 1), (1200, 1), (9000, 2)):
        made = alice.run(rollout={"engines": engines})
        Run.objects.filter(pk=made["id"]).update(
            status=RunStatus.SUCCEEDED, started_at=clock.now, ended_at=clock.now + timedelta(seconds=seconds),
            train_step=60, attempt_number=1,
        )  # fmt: skip
    guess = plan(alice, trainer={"total_train_steps": 120})["plan"]["time"]
    assert guess == {"seconds": 1800.0, "seconds_p90": None, "gpu_hours": 1.0, "from_runs": 2}


def test_warnings_are_shown_and_do_not_refuse(alice: Any) -> None:
    shown = plan(alice, staleness={"max": 60})
    assert shown["valid"]
    (warning,) = [found for found in shown["warnings"] if found["code"] == "staleness_over_steps"]
    assert warning["pointer"] == "/staleness/max" and warning["severity"] == "warning" and warning["advice"]
    alice.run(staleness={"max": 60})


def test_what_the_lint_calls_an_error_refuses_plan_and_submission(alice: Any) -> None:
    shown = plan(alice, reward={"scale": 0})
    assert not shown["valid"] and shown["plan"] is None and shown["resolved"] is None
    assert [(found["pointer"], found["code"]) for found in shown["errors"]] == [
        ("/reward/scale", "reward_scale_zero")
    ]
    refused = alice.post("/runs", {"spec": alice.spec(reward={"scale": 0})})
    assert (refused.status_code, refused.json()["code"]) == (422, "spec_invalid")


def test_a_body_without_a_spec_and_a_number_no_column_holds_are_refused(alice: Any) -> None:
    missing = alice.post("/runs/plan", {"specs": {}})
    assert (missing.status_code, missing.json()["errors"][0]["pointer"]) == (422, "/spec")
    shown = plan(alice, trainer={"total_train_steps": 2**31})
    assert shown["errors"][0]["pointer"] == "/trainer/total_train_steps"


def test_the_command_prints_findings_and_the_plan(oolong: Any, alice: Any, node: Any, tmp_path: Any) -> None:
    node(slots=2)
    (tmp_path / "work" / "run.yaml").write_text(json.dumps(alice.spec(staleness={"max": 60})))
    planned = oolong("run", "plan", "-f", "run.yaml")
    assert planned.code == 0 and "starts now" in planned.out and "unknown" in planned.out
    assert "warning  /staleness/max" in planned.err
    assert oolong("run", "validate", "-f", "run.yaml").out == "valid\n"
    assert oolong("run", "validate", "-f", "run.yaml", "--strict").code == 2
    (tmp_path / "work" / "bad.yaml").write_text(json.dumps(alice.spec(reward={"scale": 0})))
    refused = oolong("run", "plan", "-f", "bad.yaml")
    assert refused.code == 2 and "error    /reward/scale" in refused.err


def test_plan_diff_names_the_changed_fields(oolong: Any, alice: Any) -> None:
    alice.dataset("other", [{"question": f"{n}", "answer": n} for n in range(64)], split_column=None)
    one, two = alice.run(), alice.run(dataset={"version": "other@1"}, staleness={"max": 2})
    rows = oolong("run", "diff", one["id"], two["id"]).out.splitlines()
    assert "dataset.version\tsums@1\tother@1" in rows and "staleness.max\t4\t2" in rows
    exact = json.loads(oolong("run", "diff", one["id"], two["id"], "--json").out)
    assert exact["spec"]["dataset.version"][0].startswith("dsv_")
