"""Sweeps: points that are checked before the first run, a few runs at a time, a table, a best, and an end."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from celery.exceptions import SoftTimeLimitExceeded
from django.db import connection, transaction

from control_plane.accounts.identity.services import create_token
from control_plane.accounts.models import AuditEntry, Membership, Role
from control_plane.core.stream import event_stream
from control_plane.experiments import sweeps
from control_plane.experiments.models import Sweep, SweepTrial
from control_plane.experiments.sweep_plan import SweepPlan
from control_plane.runs import telemetry_hooks
from control_plane.runs.locking import for_each_locked
from control_plane.runs.models import Run
from oolong.contracts.lifecycle import RunStatus
from tests.support.pages import block

RATES = {"pointer": "/trainer/learning_rate", "values": [1e-6, 1e-5]}
STALENESS = {"pointer": "/staleness/max", "values": [0, 4]}


def sweep(person: Any, *, max_parallel: int = 2, spec: Any = None, **plan: Any) -> Any:
    body = {
        "name": "rates", "spec": spec or person.spec(), "plan": {"parameters": [RATES, STALENESS], **plan},
        "max_parallel": max_parallel,
    }  # fmt: skip
    return person.post("/sweeps", body)


def see(person: Any, made: Any) -> Any:
    return person.get(f"/sweeps/{made['id']}").json()


def trials(person: Any, made: Any) -> Any:
    return person.get(f"/sweeps/{made['id']}/trials").json()["data"]


def advance(clock: Any) -> None:
    sweeps.reconcile_sweeps(now=clock.forward(2))


def end(run_id: str, status: RunStatus = RunStatus.SUCCEEDED, **metrics: float) -> None:
    row = Run.objects.get(pk=run_id)
    Run.objects.filter(pk=run_id).update(status=status, metrics=row.metrics | metrics)


def test_a_grid_runs_a_few_at_a_time_and_names_its_best(alice: Any, clock: Any) -> None:
    made = sweep(alice)
    assert made.status_code == 201, made.content
    made = made.json()
    assert (made["trials"], made["counts"]["waiting"]) == (4, 4)
    advance(clock)
    first = [trial for trial in trials(alice, made) if trial["run"]]
    assert [trial["values"] for trial in first] == [
        {"/trainer/learning_rate": 1e-6, "/staleness/max": 0},
        {"/trainer/learning_rate": 1e-6, "/staleness/max": 4},
    ]
    run = alice.see(first[0]["run"]["id"])
    assert run["name"] == "rates learning_rate=1e-06 max=0" and run["tags"] == [f"sweep:{made['id']}"]
    assert (run["spec"]["trainer"]["learning_rate"], run["spec"]["staleness"]["max"]) == (1e-6, 0)
    advance(clock)
    assert see(alice, made)["counts"]["running"] == 2, "no more than two at a time"
    for number, trial in enumerate(first):
        end(trial["run"]["id"], **{"reward/mean": 0.3 + number / 10})
    advance(clock)
    for trial in trials(alice, made)[2:]:
        end(trial["run"]["id"], RunStatus.FAILED)
    advance(clock)
    ended = see(alice, made)
    assert ended["status"] == "FINISHED" and ended["ended_at"]
    assert ended["counts"] == {
        "waiting": 0, "running": 0, "succeeded": 2, "stopped": 0, "failed": 2, "skipped": 0,
    }  # fmt: skip
    assert (ended["best"]["number"], ended["best"]["objective"]) == (2, 0.4)
    assert len(alice.get(f"/runs?sweep={made['id']}").json()["data"]) == 4


def test_random_points_come_from_the_seed() -> None:
    plan = {
        "method": "random", "samples": 30, "seed": 3,
        "parameters": [
            {"pointer": "/trainer/learning_rate", "low": 1e-7, "high": 1e-4, "scale": "log"},
            {"pointer": "/staleness/max", "low": 0, "high": 8, "integer": True},
            {"pointer": "/algorithm/objective", "values": ["ppo", "gspo"]},
        ],
    }  # fmt: skip
    points = SweepPlan.model_validate(plan).points()
    assert (
        points
        == SweepPlan.model_validate(plan).points()
        != SweepPlan.model_validate({**plan, "seed": 4}).points()
    )
    rates = [point["/trainer/learning_rate"] for point in points]
    assert all(1e-7 <= rate <= 1e-4 for rate in rates)
    assert sum(rate < 10**-5.5 for rate in rates) >= 5, "spread over the decades"
    assert {type(point["/staleness/max"]) for point in points} == {int}


def test_a_run_that_is_worse_than_the_rule_says_is_stopped_and_a_target_ends_the_rest(
    alice: Any, clock: Any, node: Any, tick: Any
) -> None:
    machine = node(slots=2)
    made = sweep(alice, max_parallel=1, stop={"at_step": 10, "worse_than": 0.2, "target": 0.9}).json()
    advance(clock)
    tick()
    machine.beat()
    machine.beat()
    row = Run.objects.get()
    assert row.status == "RUNNING"
    for step, status in ((9, "RUNNING"), (10, "STOPPING")):
        with transaction.atomic():
            telemetry_hooks.record_steps(
                [(Run.objects.get(), step, {"reward/mean": 0.1})], event_stream.EventBatch()
            )
        advance(clock)
        assert Run.objects.get().status == status
    assert "worse than 0.2" in alice.events(row.pk)[-1]["message"]
    end(row.pk, RunStatus.STOPPED)
    advance(clock)
    second = Run.objects.latest("pk")
    end(second.pk, **{"reward/mean": 0.9})
    advance(clock)
    advance(clock)
    ended = see(alice, made)
    assert (ended["status"], ended["counts"]["skipped"], ended["counts"]["stopped"]) == ("FINISHED", 2, 1)
    assert trials(alice, made)[-1]["skipped"] == "the target was reached"


def test_pause_resume_and_cancel_are_of_the_whole(alice: Any, clock: Any) -> None:
    made = sweep(alice).json()
    advance(clock)
    assert alice.post(f"/sweeps/{made['id']}/pause").json()["status"] == "PAUSED"
    by_hand = Run.objects.earliest("pk")
    advance(clock)
    assert {run.status for run in Run.objects.all()} == {"PAUSED"}
    advance(clock)
    assert Run.objects.count() == 2, "nothing begins"
    alice.post(f"/sweeps/{made['id']}/resume")
    advance(clock)
    assert {run.status for run in Run.objects.all()} == {"QUEUED"}
    alice.post(f"/runs/{by_hand.pk}/pause")
    advance(clock)
    assert Run.objects.get(pk=by_hand.pk).status == "PAUSED", "what a person paused, a person resumes"
    for _ in range(2):
        assert alice.post(f"/sweeps/{made['id']}/cancel").json()["status"] == "CANCELLED"
    advance(clock)
    assert {run.status for run in Run.objects.all()} == {"STOPPED"}
    assert see(alice, made)["counts"]["skipped"] == 2
    for verb in ("pause", "resume"):
        refused = alice.post(f"/sweeps/{made['id']}/{verb}")
        assert (refused.status_code, refused.json()["code"]) == (409, "has_ended")


def test_a_maker_who_left_and_an_input_that_is_gone_are_said(alice: Any, person: Any, clock: Any) -> None:
    bob = person("bob")
    made = sweep(bob).json()
    Membership.objects.filter(user=bob.user).delete()
    advance(clock)
    failed = see(alice, made)
    assert failed["status"] == "FAILED" and "bob may no longer submit" in failed["message"]
    other = sweep(alice).json()
    row = Sweep.objects.get(pk=other["id"])
    row.spec["model"] = {"base_model": "gone"}
    row.save()
    advance(clock)
    assert "gone" in trials(alice, other)[0]["skipped"]


@pytest.mark.parametrize(
    ("plan", "pointer", "says"),
    [
        ({"parameters": []}, "/parameters", "at least 1"),
        ({"parameters": [{"pointer": "learning_rate", "values": [1]}]}, "/parameters/0/pointer", "must match"),
        ({"parameters": [{"pointer": "/seed"}]}, "/parameters/0", "give values"),
        ({"parameters": [{"pointer": "/seed", "low": 3, "high": 3}]}, "/parameters/0", "must be below"),
        ({"parameters": [{"pointer": "/seed", "low": 0, "high": 1, "scale": "log"}]}, "/parameters/0", "above 0"),
        ({"parameters": [RATES, RATES]}, "", "varied twice"),
        ({"parameters": [{"pointer": "/trainer", "values": [{}]}, RATES]}, "", "varied twice"),
        ({"parameters": [{"pointer": "/seed", "low": 0, "high": 9}]}, "", "requires values"),
        ({"method": "random"}, "", "requires samples"),
        ({"samples": 3}, "", "not allowed for a grid"),
        ({"parameters": [{"pointer": f"/seed{n}", "values": [*range(20)]} for n in range(2)]}, "", "400 points"),
        ({"objective": {"metric": "reward/mean", "goal": "most"}}, "/objective/goal", "'max', 'min'"),
        ({"stop": {}}, "/stop", "leave the stop rule out"),
        ({"stop": {"at_step": 3}}, "/stop", "together"),
        ({"hue": "red"}, "/hue", "unknown key"),
        ({"parameters": [{"pointer": "/trainer/lerning_rate", "values": [1]}]}, "/spec/trainer/lerning_rate", "point 1"),
        ({"parameters": [{"pointer": "/trainer/minibatches", "values": [4, 5]}]}, "/spec/trainer/minibatches", "point 2 (minibatches=5)"),
        ({"parameters": [{"pointer": "/model/base_model", "values": ["none"]}]}, "/spec/model/base_model", "no base model"),
        ({"parameters": [{"pointer": "/model/base_model", "values": ["tiny", "none"]}]}, "/spec/model/base_model", "point 2 (base_model=none)"),
        ({"parameters": [{"pointer": "/dataset/split", "values": ["train", "exam"]}]}, "/spec/dataset/split", "point 2 (split=exam)"),
        ({"parameters": [{"pointer": "/trainer/groups_per_step", "values": [8, 1000]}]}, "/spec/dataset/split", "point 2 (groups_per_step=1000)"),
    ],
)  # fmt: skip
def test_a_sweep_that_cannot_be_is_refused_before_its_first_run(
    alice: Any, plan: dict[str, Any], pointer: str, says: str
) -> None:
    refused = sweep(alice, **plan)
    assert (refused.status_code, refused.json()["code"]) == (422, "sweep_invalid"), refused.content
    error = refused.json()["errors"][0]
    assert error["pointer"] == pointer and says in error["message"], error
    assert not Sweep.objects.exists() and not Run.objects.exists()


def test_a_large_sweep_is_checked_point_by_point_and_names_twenty_faults(
    alice: Any, django_assert_max_num_queries: Any
) -> None:
    seeds = {"pointer": "/seed", "values": [*range(100)]}
    with django_assert_max_num_queries(100 * 8):
        assert sweep(alice, parameters=[seeds]).status_code == 201
    rewards = {"pointer": "/reward/name", "values": ["exact_match", *(f"none{n}" for n in range(100))]}
    errors = sweep(alice, parameters=[rewards]).json()["errors"]
    assert len(errors) == 20
    assert all(error["message"].startswith(f"point {n} (") for n, error in enumerate(errors, start=2))


def test_no_point_of_a_sweep_has_a_priority_that_its_maker_may_not_give(alice: Any, person: Any) -> None:
    asked = {"parameters": [{"pointer": "/placement/priority", "values": [500, 501, 1]}]}
    bob = person("bob", role=Role.EDITOR)
    _, narrow = create_token(
        user=alice.user, project=alice.project, name="narrow", scopes=["runs:read", "runs:write"]
    )
    for who in (bob, dataclasses.replace(alice, token=narrow)):
        refused = sweep(who, spec=alice.spec(), **asked)
        assert refused.status_code == 422, refused.content
        [error] = refused.json()["errors"]
        assert (error["pointer"], error["code"]) == ("/spec/placement/priority", "priority_above_cap")
        assert "point 2 (priority=501)" in error["message"]
        assert ("a token with that scope" in error["message"]) == (
            who is not bob
        ) and not Sweep.objects.exists()
    assert sweep(alice, spec=alice.spec(), **asked).status_code == 201


def test_another_team_sees_no_sweep(alice: Any, person: Any) -> None:
    made = sweep(alice).json()
    charlie = person("charlie", team="blue")
    assert charlie.get(f"/sweeps/{made['id']}/trials").status_code == 404
    assert charlie.post(f"/sweeps/{made['id']}/cancel").status_code == 404
    assert charlie.get("/sweeps").json()["data"] == []


def test_the_command_makes_shows_and_cancels_a_sweep(
    oolong: Any, alice: Any, clock: Any, tmp_path: Any
) -> None:
    import yaml

    body = {"name": "rates", "max_parallel": 1, "spec": alice.spec(), "plan": {"parameters": [RATES]}}
    (tmp_path / "work" / "sweep.yaml").write_text(yaml.safe_dump(body))
    made = oolong("sweep", "create", "-f", "sweep.yaml")
    assert made.code == 0, made.err
    identity = made.out.strip()
    advance(clock)
    table = oolong("sweep", "get", identity).out.splitlines()
    assert len(table) == 2 and "learning_rate=1e-06" in table[0] and "waiting" in table[1]
    assert "rates\tRUNNING\t0/2" in oolong("sweep", "list").out
    assert oolong("sweep", "cancel", identity).out == f"{identity} is CANCELLED\n"
    (tmp_path / "work" / "odd.yaml").write_text("name: x\n")
    assert oolong("sweep", "create", "-f", "odd.yaml").code == 2


def test_the_sweep_on_the_page_is_one(alice: Any, clock: Any) -> None:
    from pathlib import Path

    import yaml

    body = yaml.safe_load(
        block(Path(__file__).parents[4] / "docs" / "how-to" / "sweep.md", "yaml", "sweep.yaml")
    )
    body["spec"] |= {"model": {"base_model": "tiny"}, "dataset": {"version": "sums@latest"}}
    made = alice.post("/sweeps", body)
    assert made.status_code == 201, made.content
    assert made.json()["trials"] == 4


def test_a_cancelled_sweep_cancels_each_run_once_and_leaves_what_finishes(
    alice: Any, clock: Any, node: Any, tick: Any
) -> None:
    machine = node(slots=4)
    made = sweep(alice).json()
    advance(clock)
    tick()
    machine.beat()
    machine.beat()
    done, going = Run.objects.order_by("pk")
    Run.objects.filter(pk=done.pk).update(status=RunStatus.FINALIZING)
    alice.post(f"/sweeps/{made['id']}/cancel")
    for _ in range(3):
        advance(clock)
    done.refresh_from_db()
    going.refresh_from_db()
    assert (done.status, done.reason) == ("FINALIZING", "")
    assert (going.status, going.reason) == ("STOPPING", "cancelled_by_user")
    assert list(AuditEntry.objects.filter(action="run.cancel").values_list("target_id", flat=True)) == [
        going.pk
    ]


def test_a_tick_that_dies_before_it_notes_a_pause_has_not_paused(alice: Any, clock: Any) -> None:
    made = sweep(alice).json()
    advance(clock)
    alice.post(f"/sweeps/{made['id']}/pause")

    def die(execute: Any, sql: str, *rest: Any) -> Any:
        if sql.startswith(f'UPDATE "{SweepTrial._meta.db_table}"'):
            raise SystemExit
        return execute(sql, *rest)

    with connection.execute_wrapper(die), pytest.raises(SystemExit):
        advance(clock)
    assert {run.status for run in Run.objects.all()} == {"QUEUED"}
    advance(clock)
    alice.post(f"/sweeps/{made['id']}/resume")
    advance(clock)
    assert {run.status for run in Run.objects.all()} == {"QUEUED"}


def test_a_tick_whose_time_is_over_goes_no_further(
    alice: Any, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def over(row: Any, **_: Any) -> None:
        seen.append(row.pk)
        raise SoftTimeLimitExceeded

    for _ in range(2):
        sweep(alice)
        alice.run()
    monkeypatch.setattr(sweeps, "_reconcile", over)
    with pytest.raises(SoftTimeLimitExceeded):
        advance(clock)
    assert len(seen) == 1
    with pytest.raises(SoftTimeLimitExceeded):
        for_each_locked(list(Run.objects.values_list("pk", flat=True)), over)
    assert len(seen) == 2
